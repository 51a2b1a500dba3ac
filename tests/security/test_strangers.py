"""Functions that somebody else has made in a schema on the search path are never called, though they would fit better.

In databases that were made before PostgreSQL 15 everybody may create functions in ``public``. One whose arguments are of
just the right types comes before the server's own, where that takes more than is given, or anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import AsyncConnection

from tenure import Job, Tenure
from tenure.store.protocol import PauseQueues, Status
from tests.conftest import Server
from tests.worker.here import QUICK, finish

FITTING = (
    "hashtextextended(text, integer) returns bigint",
    "convert_to(text, text) returns bytea",
    "cardinality(uuid[]) returns integer",
    "unnest(text[]) returns setof text",
    "jsonb_build_object(text, smallint) returns jsonb",
    "jsonb_build_object(text, text, text, text, text, text, text, text) returns jsonb",
    "joined(text, uuid) returns text",
)


@pytest.fixture
def strange(server: Server) -> Iterator[str]:
    """A database with them, and without a schema of ours."""
    dsn = server.fresh(template="template1")
    with psycopg.connect(dsn, autocommit=True) as conn:
        for function in FITTING:
            conn.execute(
                f"create function public.{function} language plpgsql as"
                " $body$ begin raise exception 'a stranger was called'; end $body$".encode()
            )
        conn.execute("create operator public.|| (leftarg = text, rightarg = uuid, function = public.joined)")
    yield dsn
    server.drop(dsn)


def test_no_function_of_a_stranger_is_called_by_whoever_migrates_enqueues_or_works(strange: str) -> None:
    with Tenure(strange) as app:
        app.migrate()

        @app.job(backoff=QUICK, max_attempts=2)
        async def fails_once(job: Job) -> None:
            if job.attempt == 1:
                raise ConnectionError("not yet")

        @app.job(effect=True)
        async def writes(tx: AsyncConnection, job: Job) -> None:
            await tx.execute("select %s", [job.attempt])

        finish(app, fails_once.enqueue_sync(key="a"), writes.enqueue_sync(key="b"))
        assert {row.queue for row in app.store.run(Status())} == {"default"}
        app.store.run(PauseQueues(["default"]))
