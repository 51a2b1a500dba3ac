"""A connection that is handed to ``enqueue`` is of the right kind, or nothing is sent on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tenure import ConfigError, Tenure
from tenure.kind import Kind
from tenure.store.protocol import ListJobs


@pytest.fixture
def work(dsn: str) -> Iterator[Kind]:
    with Tenure(dsn) as app:

        @app.job()
        def work(n: int) -> None: ...

        yield work


async def in_vain(work: Kind, conn: Any, match: str) -> None:
    for refused in (work.enqueue(1, conn=conn), work.enqueue_many([{"n": 1}], conn=conn)):
        with pytest.raises(ConfigError, match=match):
            await refused


def in_vain_sync(work: Kind, conn: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        work.enqueue_sync(1, conn=conn)
    with pytest.raises(ConfigError, match=match):
        work.enqueue_many_sync([{"n": 1}], conn=conn)


def test_a_synchronous_connection_is_for_the_synchronous_twin(work: Kind, dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        asyncio.run(in_vain(work, conn, "psycopg.Connection cannot be used here.* name ends in _sync"))
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert work.enqueue_sync(2, conn=conn).answer == "new"
    assert [job.payload for job in work.app.store.run(ListJobs())] == ['{"n": 2}']


def test_an_async_connection_is_for_the_async_twin(work: Kind, dsn: str) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            in_vain_sync(work, conn, "psycopg.AsyncConnection cannot be used here.* that is awaited")
            assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            assert (await work.enqueue(2, conn=conn)).answer == "new"

    asyncio.run(main())
    assert [job.payload for job in work.app.store.run(ListJobs())] == ['{"n": 2}']


@pytest.mark.parametrize("conn", ["x", 5, object()])
def test_anything_else_is_no_connection(work: Kind, conn: object) -> None:
    asyncio.run(in_vain(work, conn, "Hand over an open connection of psycopg"))
    in_vain_sync(work, conn, "Hand over an open connection of psycopg")
    assert work.app.store.run(ListJobs()) == []


def test_a_connection_in_autocommit_has_no_transaction_to_join(work: Kind, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        in_vain_sync(work, conn, "in autocommit and no transaction is open.*Nothing was stored.*conn.transaction")
        with conn.transaction():
            assert work.enqueue_sync(1, conn=conn).answer == "new"

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await in_vain(work, conn, "in autocommit and no transaction is open")
            async with conn.transaction():
                assert (await work.enqueue(2, conn=conn)).answer == "new"

    asyncio.run(main())
    assert [job.payload for job in work.app.store.run(ListJobs())] == ['{"n": 2}', '{"n": 1}']
