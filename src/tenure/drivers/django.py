"""Django: the connection of ``django.db``, with its cursors and its errors."""

from __future__ import annotations

from typing import Any

from tenure.drivers.script import Dialect, Rows, Statement, dialect, plain


class Django:
    """``django.db.connection``, or one of ``django.db.connections``."""

    dialect: Dialect

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self.dialect = dialect(conn.vendor)

    def fetch(self, statement: Statement) -> Rows:
        """Run a statement; its rows as tuples. Each of Django's backends takes values by name."""
        statement = plain(statement)
        with self._conn.cursor() as cursor:
            cursor.execute(statement.text, dict(statement.values) or None)
            return [tuple(row) for row in cursor.fetchall()] if statement.answers else []

    def in_transaction(self) -> bool:
        """Inside ``atomic``, or its owner has turned Django's autocommit off."""
        return bool(self._conn.in_atomic_block or not self._conn.get_autocommit())
