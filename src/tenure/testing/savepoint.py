"""The test's own transaction, lent to an effect: what an effect that fails has written is rolled back, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection, pq

from tenure.drivers import aborrow, borrow, require_transaction
from tenure.errors import ConfigError, Permanent


def require_open(tx: object) -> None:
    """See that what is written on a connection is part of the test's transaction; of a fake nobody knows.

    Raises:
        ConfigError: it is in autocommit, and no transaction is open.
    """
    for find in (borrow, aborrow):
        try:
            lent = find(tx)
        except ConfigError:
            continue
        require_transaction(lent)


@asynccontextmanager
async def savepoint(tx: object) -> AsyncIterator[None]:
    """In this block a handler may write; a connection of psycopg cannot be committed in it.

    Args:
        tx: a connection of psycopg, or a connection or session of SQLAlchemy; anything else is left as it is.

    Raises:
        ConfigError: as ``require_open``.
        psycopg.errors.InFailedSqlTransaction: a statement failed, and the handler went on.
    """
    require_open(tx)
    if isinstance(tx, AsyncConnection):
        await tx.execute("select")  # begins, where nothing has been said yet
        async with tx.transaction():
            yield
            _require_sound(tx)
    elif isinstance(tx, Connection):
        tx.execute("select")
        with tx.transaction():
            yield
            _require_sound(tx)
    elif (nested := getattr(tx, "begin_nested", None)) is not None:  # SQLAlchemy, which need not be there
        block = nested()
        if hasattr(block, "__aenter__"):
            async with block:
                yield
                _require_active(block)
        else:
            with block:
                yield
                _require_active(block)
    else:
        yield


def _require_active(block: Any) -> None:
    if not block.is_active:
        raise Permanent(
            "the handler ended the transaction of tx itself: a worker refuses that, and its effect is undone"
        )


def _require_sound(tx: AsyncConnection | Connection) -> None:
    if tx.info.transaction_status == pq.TransactionStatus.INERROR:
        raise psycopg.errors.InFailedSqlTransaction(
            "a statement of the effect failed and the handler went on; put such a statement into tx.transaction()"
        )
