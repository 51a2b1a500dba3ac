"""Behind a pooler in transaction mode a worker keeps no state in its sessions."""

from __future__ import annotations

import asyncio
from typing import Literal

import psycopg
import pytest
from psycopg import AsyncConnection

from tenure import Tenure
from tenure.chaos.proxy import Proxy
from tests.worker.here import eventually, working

JOBS = 30  # many more than the executions after which psycopg prepares a statement


@pytest.mark.parametrize("pooler", ["transaction", None])
def test_statements_are_prepared_only_where_sessions_are_ours(dsn: str, pooler: Literal["transaction"] | None) -> None:
    with Proxy(dsn) as proxy, Tenure(proxy.dsn(), pooler=pooler) as app, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create table written (what int)")

        @app.job(lease="1s")
        async def plain(n: int) -> None:
            await asyncio.sleep(2.5 if n == 0 else 0.001)  # the first one is to see heartbeats

        @app.job(effect=True)
        async def write(tx: AsyncConnection, n: int) -> int:
            await tx.execute("insert into written values (%s)", [n])
            [prepared] = await (await tx.execute("select count(*) from pg_prepared_statements")).fetchone() or (-1,)
            assert isinstance(prepared, int)
            return prepared

        plain.enqueue_many_sync([{"n": n} for n in range(JOBS)])
        writes = write.enqueue_many_sync([{"n": n} for n in range(JOBS)])

        async def work() -> list[bool]:
            async with working(app, concurrency=2, prefetch=0) as worker:
                done = JOBS + JOBS
                await eventually(lambda: worker.counts["settled"] + worker.counts["committed"] == done, "all jobs")
                assert any(one.carries(b"-- extend:") for one in proxy.connections())
                return [one.prepares for one in proxy.connections()]

        prepares = asyncio.run(work())
        assert any(prepares) == (pooler is None)
        in_effects = {int((writes[-1].look_up_sync() or pytest.fail("unknown job")).result or 0)}
        assert (in_effects == {0}) == (pooler is not None)
        assert conn.execute("select count(*) from written").fetchone() == (JOBS,)
