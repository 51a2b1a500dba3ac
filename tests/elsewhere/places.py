"""Databases for effects, and an eye on what has committed there."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tests.conftest import Server
from tests.support import mariadb
from tests.worker.ledger import until


class Place(NamedTuple):
    """Where effects are.

    Args:
        dialect: ``postgresql``, ``mysql`` or ``sqlite``.
        at: DSN, name of the database, or path.
    """

    dialect: str
    at: str

    def url(self, driver: str) -> str:
        """What SQLAlchemy is told."""
        return mariadb.url(self.at, driver) if self.dialect == "mysql" else f"sqlite+{driver}:///{self.at}"


class Eye:
    """What everybody sees: a session of its own, which never holds a snapshot."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._conn: Any
        if place.dialect == "postgresql":
            self._conn = psycopg.connect(place.at, autocommit=True)
        elif place.dialect == "mysql":
            self._conn = mariadb.connect(place.at, autocommit=True)
        else:
            self._conn = sqlite3.connect(place.at, isolation_level=None, timeout=60)
        self.all("create table notes (note varchar(100))")

    def all(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query, or none."""
        with closing(self._conn.cursor()) as cursor:
            cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    @property
    def notes(self) -> list[str]:
        """What effects have written."""
        return [note for (note,) in self.all("select note from notes order by note")]

    @property
    def keys(self) -> list[str]:
        """The keys that ``once`` remembers."""
        return [
            key.decode() if isinstance(key, bytes) else key
            for (key,) in self.all("select dedup_key from tenure_once order by dedup_key, step")
        ]

    @property
    def installed(self) -> bool:
        """Whether the table is there."""
        query = {
            "postgresql": "select to_regclass('tenure_once') is not null",
            "mysql": "select count(*) from information_schema.tables"
            " where table_schema = database() and table_name = 'tenure_once'",
            "sqlite": "select count(*) from sqlite_master where name = 'tenure_once'",
        }[self.place.dialect]
        return bool(self.all(query)[0][0])

    def age(self, days: int, where: str = "1 = 1") -> None:
        """Let rows be so many days older."""
        earlier = {
            "postgresql": "{0} - interval '{1} days'",
            "mysql": "{0} - interval {1} day",
            "sqlite": "strftime('%Y-%m-%d %H:%M:%f', {0}, '-{1} days')",
        }[self.place.dialect]
        changes = ", ".join(f"{column} = {earlier.format(column, days)}" for column in ("made_at", "expires_at"))
        self.all(f"update tenure_once set {changes} where {where}")  # noqa: S608 - ours

    def await_waiting(self, count: int = 1) -> None:
        """Wait until so many writers wait for a lock; SQLite cannot tell."""
        until(lambda: self._waiting() >= count, f"{count} who wait")

    def _waiting(self) -> float:
        if self.place.dialect == "sqlite":
            return math.inf
        if self.place.dialect == "postgresql":
            query = (
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            )
            return int(self.all(query)[0][0])
        ours = {id for (id,) in self.all("select id from information_schema.processlist where db = database()")}
        told = self.all("show engine innodb status")[0][2].split("---TRANSACTION")  # innodb_trx is told from a cache
        waiting = {int(number) for one in told if "LOCK WAIT" in one for number in re.findall(r"thread id (\d+)", one)}
        return len(ours & waiting)

    def close(self) -> None:
        self._conn.close()


@contextmanager
def a_place(dialect: str, server: Server, directory: Path) -> Iterator[Place]:
    """A new database without a queue.

    Args:
        server: where it is if it is a PostgreSQL.
        directory: where it is if it is an SQLite.
    """
    if dialect == "mysql":
        with mariadb.a_database() as name:
            yield Place(dialect, name)
    elif dialect == "sqlite":
        yield Place(dialect, str(directory / "elsewhere.db"))
    else:
        dsn = server.fresh(template="template0")
        yield Place(dialect, dsn)
        server.drop(dsn)
