"""What takes back whatever somebody has changed of a session of PostgreSQL, so that another one finds it as it was."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import pq

from tenure.drivers.script import Statement

_LEFT = tuple(map(Statement, ("reset session authorization", "reset all", "close all", "discard temp")))


def _ours(local: str) -> str:
    return (
        f"select set_config('datestyle', 'iso', {local}),"
        f" set_config('default_transaction_isolation', 'read committed', {local})"
    )


RESET = (*_LEFT, Statement(_ours("false")))
"""What takes back a handler's settings, cursors and temporary tables, also within a transaction."""

RESET_LOCALLY = (*_LEFT, Statement(_ours("true")))
"""The same in a session that is another's after the transaction: nothing is set that outlives it."""

CLEAN = (
    *_LEFT,
    Statement("unlisten *"),
    Statement(
        f"{_ours('false')}, pg_advisory_unlock_all(), exists (select from pg_prepared_statements where from_sql)"
    ),
)
"""What takes back all that a handler may have changed of its session, once its transaction is over.

Its last answer says at the end whether there are prepared statements left: to drop them all costs ours, too.
"""


def leaves_prepared(answers: Sequence[pq.abc.PGresult]) -> bool:
    """Whether there are, by the answers to ``CLEAN`` at the end of these."""
    return answers[-1].get_value(0, 3) != b"f"
