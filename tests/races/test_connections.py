"""Other people's connections, and connections after a fork."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row, scalar_row

from tenure import State, Tenure
from tenure.errors import StoreUnavailable
from tenure.faultpoints import InjectedError
from tenure.store.connections import AsyncConnections, Connections, connect
from tenure.store.protocol import LookUp

FORKING = """
import os, sys
from tenure import Tenure

app = Tenure()

@app.job()
async def work(who: str) -> None: ...

def enqueue(who):
    ticket = work.enqueue_sync(who, key=who)
    os.write(1, f"{ticket.id} {who}\\n".encode())

enqueue("parent-0")
for turn in range(1, 4):
    children = []
    for child in range(4):
        pid = os.fork()
        if pid == 0:
            for n in range(5):
                enqueue(f"child-{turn}-{child}-{n}")
            os._exit(0)
        children.append(pid)
    enqueue(f"parent-{turn}")
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
app.close()
"""


@pytest.mark.parametrize("rows", [dict_row, scalar_row])
def test_the_callers_row_factory_is_none_of_our_business(dsn: str, rows: Any) -> None:
    with Tenure(dsn) as app:

        @app.job()
        async def work(n: int) -> None: ...

        with psycopg.connect(dsn, row_factory=rows) as conn:
            ticket = work.enqueue_sync(1, conn=conn)
        assert ticket.look_up_sync() is not None

        async def scene() -> None:
            async with await psycopg.AsyncConnection.connect(dsn, row_factory=rows) as conn:
                ticket = await work.enqueue(2, conn=conn)
            assert await ticket.look_up() is not None

        asyncio.run(scene())


@pytest.mark.parametrize("cursors", [psycopg.ClientCursor, psycopg.RawCursor])
def test_the_callers_cursor_class_is_none_of_our_business(dsn: str, cursors: type[psycopg.Cursor[Any]]) -> None:
    with Tenure(dsn) as app:

        @app.job()
        async def work(n: int) -> None: ...

        with psycopg.connect(dsn, cursor_factory=cursors) as conn:
            ticket = work.enqueue_sync(1, conn=conn)
        assert ticket.look_up_sync() is not None


def test_a_job_enqueued_in_the_callers_pipeline_is_there_with_it(dsn: str) -> None:
    with Tenure(dsn) as app:

        @app.job()
        async def work(n: int) -> None: ...

        with psycopg.connect(dsn) as conn, conn.pipeline():
            ticket = work.enqueue_sync(1, conn=conn, key="one")
            assert work.enqueue_sync(1, conn=conn, key="one").answer == "same"
        assert ticket.look_up_sync() is not None


def test_a_forked_process_gets_connections_of_its_own(dsn: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKING],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TENURE_DSN": dsn},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    told = dict(line.split() for line in ended.stdout.splitlines())
    assert len(told) == 4 + 3 * 4 * 5
    with Tenure(dsn) as app:
        found = app.store.run(LookUp(None, [UUID(id) for id in told]))
        assert {str(job.id): job.key for job in found.values()} == told
        assert {job.state for job in found.values()} == {State.PENDING}


def test_each_server_that_a_dsn_names_says_why_it_cannot_be_used() -> None:
    with pytest.raises(StoreUnavailable) as told:
        connect("host=127.0.0.1,127.0.0.2 port=1,1 user=u password=hunter2 dbname=d")
    assert told.value.what.count("Connection refused") == 2
    for server in ('at "127.0.0.1", port 1', 'at "127.0.0.2", port 1'):
        assert server in told.value.what
    assert "hunter2" not in str(told.value)


def last_said(dsn: str, conn: psycopg.Connection | psycopg.AsyncConnection) -> str:
    """The last statement of a session, as the server tells it."""
    with psycopg.connect(dsn) as other:
        row = other.execute("select query from pg_stat_activity where pid = %s", (conn.info.backend_pid,)).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize("prepare", [True, False])
def test_plans_are_made_anew_now_and_then_where_any_are_kept(
    dsn: str, monkeypatch: pytest.MonkeyPatch, prepare: bool
) -> None:
    """A plan that was made while the tables were empty is not used on for long when they are full."""
    connections = Connections(dsn, 1, prepare=prepare)
    with connections.take() as conn:
        conn.execute("select 1")
    with connections.take() as same:
        assert same is conn
        assert last_said(dsn, conn) == "select 1"
    monkeypatch.setattr("tenure.store.connections.PLANS", 0.0)
    with connections.take():
        assert last_said(dsn, conn) == ("discard plans" if prepare else "select 1")
    connections.close()


def test_plans_of_an_event_loops_connections_are_made_anew_too(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        connections = AsyncConnections(dsn, 1)
        async with connections.take() as conn:
            await conn.execute("select 1")
        monkeypatch.setattr("tenure.store.connections.PLANS", 0.0)
        async with connections.take():
            assert last_said(dsn, conn) == "discard plans"
        connections.drop()

    asyncio.run(run())


@pytest.mark.parametrize(
    "settings", [{"patience": None}, {"prepare": False, "patience": 1.0}], ids=["effects", "pooler"]
)
def test_where_others_speak_too_the_planner_is_left_alone(dsn: str, settings: dict[str, Any]) -> None:
    """A handler's statements in an effect, and what other clients of a pooler say in the same session."""
    with psycopg.connect(dsn) as plain:
        theirs = plain.execute(PLANNER).fetchone()
    connections = Connections(dsn, 1, **settings)
    with connections.take() as conn:
        assert conn.execute(PLANNER).fetchone() == theirs
    connections.close()


PLANNER = "select current_setting('enable_seqscan'), current_setting('jit'), current_setting('statement_timeout')"


def test_what_meets_a_new_connection_comes_before_its_use_and_closes_it_where_it_fails(dsn: str) -> None:
    met: list[psycopg.AsyncConnection] = []

    async def meet(conn: psycopg.AsyncConnection) -> None:
        met.append(conn)
        if len(met) == 1:
            raise InjectedError("not this one")

    async def run() -> None:
        connections = AsyncConnections(dsn, 1, meet=meet)
        with pytest.raises(InjectedError):
            async with connections.take():
                pytest.fail("it was used")
        assert met[0].closed
        async with connections.take() as conn:
            assert met == [met[0], conn]
        async with connections.take() as same:
            assert same is conn
            assert len(met) == 2
        connections.drop()

    asyncio.run(run())
