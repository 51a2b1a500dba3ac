"""The queries that pages show for an operator find what the page says they find."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import IsolationLevel

from tests.docs.pages import ROOT, blocks


@pytest.mark.parametrize(
    ("level", "held"),
    [
        (IsolationLevel.REPEATABLE_READ, "select count(*) from pg_class"),
        (IsolationLevel.READ_COMMITTED, "select pg_current_xact_id()"),
    ],
    ids=["snapshot", "xid"],
)
def test_the_session_that_keeps_dead_rows_is_found(dsn: str, level: IsolationLevel, held: str) -> None:
    [query] = [block.text for block in blocks(ROOT / "docs/explanation/speed.md") if block.language == "sql"]
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as operator:
        mine = holder.info.backend_pid
        assert mine not in found(operator, query)
        holder.isolation_level = level
        holder.execute(held.encode())
        assert mine in found(operator, query)


def found(conn: psycopg.Connection, query: str) -> list[int]:
    """The processes of the sessions that a query finds."""
    return [pid for pid, *_ in conn.execute(query.encode()).fetchall()]
