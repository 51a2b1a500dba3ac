"""What makes effects quick, and can be counted: round trips, and plans that are kept."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, Connection

from tenure import Tenure
from tenure.chaos.proxy import Proxy
from tests.worker.effect_forms import WRITE
from tests.worker.here import burst, finish, record

Database = psycopg.Connection[Any]


@pytest.mark.parametrize("form", ["on the loop", "in a thread"])
def test_an_effect_takes_two_round_trips_beside_its_handlers_own(dsn: str, database: Database, form: str) -> None:
    """One begins it, one completes, commits and cleans."""
    seen: list[int] = []
    with Proxy(dsn) as proxy, Tenure(proxy.dsn()) as app:

        def look() -> None:
            seen.append(sum(one.round_trips for one in proxy.connections() if one.carries(b"-- dedup:")))

        @app.job(effect=True)
        async def on_loop(tx: AsyncConnection, n: int) -> None:
            await tx.execute(WRITE, [f"row {n}", 1])
            look()

        @app.job(effect=True)
        def in_thread(tx: Connection, n: int) -> None:
            tx.execute(WRITE, [f"row {n}", 1])
            look()

        kind = on_loop if form == "on the loop" else in_thread
        finish(app, *kind.enqueue_many_sync([{"n": n} for n in range(12)]), concurrency=1)
    steps = [later - earlier for earlier, later in pairwise(seen[6:])]  # prepared by then
    assert steps == [3] * 5


def test_the_plan_of_a_completion_is_kept(app: Tenure) -> None:
    """A new one for each effect would take three times as long as all the rest of the completion."""

    @app.job(effect=True)
    async def look(tx: AsyncConnection, n: int) -> list[int]:
        cursor = await tx.execute(
            "select custom_plans, generic_plans from pg_prepared_statements where statement like '-- complete_effects:%'"
        )
        return list(await cursor.fetchone() or ())

    tickets = look.enqueue_many_sync([{"n": n} for n in range(20)])
    burst(app, concurrency=1)
    counts = [json.loads(record(app, ticket.id).result or "") for ticket in tickets]
    assert max(custom for custom, _ in filter(None, counts)) <= 5
    assert max(generic for _, generic in filter(None, counts)) >= 10
