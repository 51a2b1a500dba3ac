"""Where a run takes place: a server, a schema of its own, and a directory for what is outside the database."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from psycopg import sql

from tenure.chaos.apps import COLUMNS, NARROW, ROOM, effects_table
from tenure.chaos.ledger import Ledger
from tenure.embedded.engine import Engine
from tenure.errors import ConfigError
from tenure.stage import require_there, temporary, undisturbed
from tenure.store.connections import connect
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import SetQueue


@dataclass(frozen=True)
class Place:
    """Where a run takes place.

    Args:
        dsn: the database.
        schema: the queue's.
        scratch: a directory for ledgers and logs.
    """

    dsn: str = field(repr=False)
    schema: str
    scratch: Path

    @property
    def ledger(self) -> Ledger:
        """What workers, producers and the nemesis write."""
        path = self.scratch / "ledger"
        path.mkdir(exist_ok=True)
        return Ledger(path)

    @property
    def elsewhere(self) -> Path:
        """Another database, an SQLite file."""
        return self.scratch / "elsewhere.db"

    @property
    def log(self) -> Path:
        """What processes say."""
        return self.scratch / "log"

    @property
    def verdict(self) -> Path:
        """What is wrong, where something is: then the directory is kept."""
        return self.scratch / "verdict.json"

    @property
    def rows(self) -> Path:
        """The jobs as the database had them in the end, and the rows of their effects, as JSON lines; likewise."""
        return self.scratch / "rows.jsonl"

    def furnish(self) -> None:
        """Make the tables that effects write into, and the queue that is bounded."""
        with closing(PostgresStore(self.dsn, self.schema)) as store:
            store.run(SetQueue(NARROW, {"max_depth": ROOM, "when_full": "reject"}))
        with connect(self.dsn) as conn:
            table = effects_table(self.schema)
            conn.execute(sql.SQL("create table if not exists {} {}").format(table, sql.SQL(COLUMNS)))
        with closing(sqlite3.connect(self.elsewhere)) as db:
            db.execute(f"create table effects {COLUMNS}")


@contextmanager
def scratch(kept: Path | None) -> Iterator[Path]:
    """A directory, gone afterwards unless a verdict was left in it.

    Args:
        kept: where it is to be then, instead of among the temporary files.

    Raises:
        ConfigError: there is something already.
    """
    if kept is not None and kept.exists():
        raise ConfigError(f"{kept} is there already.", kept="Nothing was done to it.", hint="Name a new directory.")
    path = Path(tempfile.mkdtemp(prefix="tenure-chaos-"))
    try:
        yield path
    finally:
        with undisturbed():
            if not Place("", "", path).verdict.exists():
                shutil.rmtree(path, ignore_errors=True)
            elif kept is not None:
                shutil.move(path, kept)


@contextmanager
def server(dsn: str | None) -> Iterator[tuple[str, Engine | None]]:
    """The database of the run, and the server where it is ours to stop."""
    if dsn is not None:
        require_there(dsn)
        yield dsn, None
        return
    with temporary() as engine:
        yield engine.dsn, engine


@contextmanager
def schema(dsn: str, name: str, *, drop: bool) -> Iterator[str]:
    """A schema with a queue in it, for the length of the block.

    Args:
        drop: at the end.

    Raises:
        ConfigError: there is one of this name that holds jobs.
    """
    _require_empty(dsn, name)
    try:
        with closing(PostgresStore(dsn, name)) as store:
            store.migrate()
        yield name
    finally:
        if drop:
            with undisturbed(), connect(dsn) as conn:
                conn.execute(sql.SQL("set lock_timeout = '30s'"))
                conn.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(name)))


def _require_empty(dsn: str, schema: str) -> None:
    with connect(dsn) as conn:
        for table in ("jobs", "archive", "dead", "chaos_effects"):
            named = sql.Identifier(schema, table)
            row = conn.execute("select to_regclass(%s)", [named.as_string(conn)]).fetchone()
            if row is None or row[0] is None:
                continue
            if conn.execute(sql.SQL("select from {} limit 1").format(named)).fetchone() is not None:
                raise ConfigError(
                    f"The schema {schema} holds jobs.",
                    kept="Nothing was done to them.",
                    hint="Leave --schema out, or name one that is empty.",
                )
