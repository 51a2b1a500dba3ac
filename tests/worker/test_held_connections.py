"""A handler that leaves something open on its connection: its attempt fails, and the next effect has a connection."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tenure import Backoff, State, Tenure
from tests.worker.here import QUICK, finish, record


@pytest.mark.parametrize("form", ["on the loop", "in a thread"])
@pytest.mark.parametrize("left", ["a stream that raises", "a stream", "a copy"])
def test_what_a_handler_leaves_open_stops_nobody(dsn: str, form: str, left: str) -> None:
    kept: list[Any] = []
    with Tenure(dsn) as app:

        @app.job(effect=True, max_attempts=1)
        def in_thread(tx: psycopg.Connection[Any]) -> None:
            cursor = tx.cursor()
            if left == "a copy":
                copy = cursor.copy("copy (select generate_series(1, 1000)) to stdout")
                kept.append(copy)
                copy.__enter__()
                return
            rows = cursor.stream("select generate_series(1, 1000)")
            kept.append(rows)
            for _ in rows:
                if left == "a stream that raises":
                    raise ValueError("bad row")
                return

        @app.job(effect=True, max_attempts=1)
        async def on_loop(tx: psycopg.AsyncConnection[Any]) -> None:
            cursor = tx.cursor()
            if left == "a copy":
                copy = cursor.copy("copy (select generate_series(1, 1000)) to stdout")
                kept.append(copy)
                await copy.__aenter__()
                return
            rows = cursor.stream("select generate_series(1, 1000)")
            kept.append(rows)
            async for _ in rows:
                if left == "a stream that raises":
                    raise ValueError("bad row")
                return

        @app.job(effect=True, backoff=QUICK)
        async def good(tx: psycopg.AsyncConnection[Any]) -> str:
            await tx.execute("select 1")
            return "good"

        bad = (on_loop if form == "on the loop" else in_thread).enqueue_sync()
        after = good.enqueue_sync(delay=0.1)
        finish(app, bad, after)
        assert record(app, after.id).state is State.DONE
        found = record(app, bad.id)
        assert found.state is State.DEAD
        assert ("ValueError" if left == "a stream that raises" else "still holds the connection") in str(found.history)


def test_a_database_of_stricter_transactions_makes_no_difference(dsn: str) -> None:
    name = dsn.rsplit("dbname=", 1)[1]
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"alter database {name} set default_transaction_isolation = 'repeatable read'".encode())
    with Tenure(dsn) as app:

        @app.job(effect=True, lease="1s", max_attempts=1, backoff=Backoff("10ms", "20ms"))
        async def long(tx: psycopg.AsyncConnection[Any]) -> str:
            await tx.execute("select pg_sleep(1.2)")
            found = await (await tx.execute("show transaction_isolation")).fetchone()
            return str(found[0]) if found else ""

        tickets = [long.enqueue_sync() for _ in range(2)]
        finish(app, *tickets, concurrency=1)
        assert [record(app, ticket.id).result for ticket in tickets] == ['"read committed"'] * 2
