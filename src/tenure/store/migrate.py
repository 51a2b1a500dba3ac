"""Brings a schema up to this code's: numbered files, forward only, under one lock.

All that is missing is applied in one transaction, so a migrator that dies leaves nothing and the next one starts over;
any number at once wait for each other, and all but one find nothing to do. A file whose first line says
``-- compatible`` may be run under older code; after any other, older code refuses to start.

The functions for those who speak SQL come after the tables. They have no numbers: whatever stands there is replaced by this
code's, unless newer code has been here.
"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import psycopg
from psycopg import Connection, sql

from tenure.errors import SchemaMismatch
from tenure.faultpoints import point
from tenure.store.statements import DEFINERS, FUNCTIONS, function, in_schema, schema_name


class Migration(NamedTuple):
    """One file: its number, name and text, and whether older code may go on with it."""

    number: int
    name: str
    text: str
    compatible: bool


def migrations() -> list[Migration]:
    """All that this code knows, in order."""
    found = sorted(
        (file.name, file.read_text("utf-8"))
        for file in files("tenure.store.migrations").iterdir()
        if file.name.endswith(".sql")
    )
    return [Migration(int(name[:4]), name[5:-4], text, text.startswith("-- compatible")) for name, text in found]


def migrate(conn: Connection, schema: str = "tenure") -> list[str]:
    """Apply what is missing, all of it or nothing; answers the names of what was applied.

    Args:
        conn: an autocommit connection of the schema's owner, or of a role that may create it.

    Raises:
        SchemaMismatch: the schema is newer than this code.
    """
    schema_name(schema)
    with conn.transaction():
        lock = "select pg_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0::bigint))"
        conn.execute(lock, [f"tenure.migrate/{schema}"])
        if not conn.execute("select from pg_namespace where nspname = %s", [schema]).rowcount:
            # Only then: "if not exists" would ask for the right to create one even where it is there.
            conn.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        conn.execute(
            in_schema(
                "create table if not exists tenure.migrations (number integer primary key, name text not null,"
                " compatible boolean not null, applied_at timestamptz not null default clock_timestamp())",
                schema,
            )
        )
        applied = _applied(conn, schema)
        refuse_newer(applied, schema)
        missing = [m for m in migrations() if m.number not in applied]
        for migration in missing:
            conn.execute(in_schema(migration.text, schema))
            point("migrate.between")
            conn.execute(
                in_schema("insert into tenure.migrations (number, name, compatible) values (%s, %s, %s)", schema),
                [migration.number, migration.name, migration.compatible],
            )
        if max(applied, default=0) <= migrations()[-1].number:
            _make_functions(conn, schema)
    return [f"{m.number:04} {m.name}" for m in missing]


def check_schema(conn: Connection, schema: str = "tenure") -> None:
    """See that the schema fits this code.

    Raises:
        SchemaMismatch: it is missing, older, or newer in a way this code cannot work with.
    """
    try:
        applied = _applied(conn, schema)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        raise schema_missing(schema) from None
    refuse_newer(applied, schema)
    missing = [m for m in migrations() if m.number not in applied]
    if missing:
        raise SchemaMismatch(
            f"Schema {schema!r} is older than this code: {missing[0].number:04} {missing[0].name} is missing.",
            hint="Run: tenure migrate",
        )


def schema_exists(conn: Connection, schema: str) -> bool:
    """Whether the schema has been made by ``migrate``, of whatever version."""
    found = conn.execute("select from pg_tables where schemaname = %s and tablename = 'migrations'", [schema])
    return found.rowcount > 0


def schema_missing(schema: str) -> SchemaMismatch:
    """The error for a database without our tables."""
    return SchemaMismatch(f"There is no schema {schema!r} in this database.", hint="Run: tenure migrate")


def _make_functions(conn: Connection, schema: str) -> None:
    """Make those that are not there or were made from another text."""
    there = conn.execute(
        "select p.proname, p.prosrc from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = %s",
        [schema],
    ).fetchall()
    for made in (function(name, schema) for name in (*DEFINERS, *FUNCTIONS)):
        if not any(name == made.name and made.digest in body and body in made.text for name, body in there):
            conn.execute(made.text)
            if made.name in DEFINERS:
                _make_owners(conn, schema, made.name)


def _make_owners(conn: Connection, schema: str, name: str) -> None:
    """Give a function that runs with its owner's rights to the owner of the tables, and let nobody call it unasked."""
    found = conn.execute(
        in_schema(
            "select p.oid::regprocedure::text, c.relowner::regrole::text from pg_proc p join pg_class c"
            " on c.relnamespace = p.pronamespace where c.oid = 'tenure.jobs'::regclass and p.proname = %s",
            schema,
        ),
        [name],
    ).fetchall()
    for procedure, owner in found:
        conn.execute(f"alter function {procedure} owner to {owner}".encode())
        conn.execute(f"revoke all on function {procedure} from public".encode())


def _applied(conn: Connection, schema: str) -> dict[int, bool]:
    return dict(conn.execute(in_schema("select number, compatible from tenure.migrations", schema)).fetchall())


def refuse_newer(applied: dict[int, bool], schema: str) -> None:
    """See that this code may go on with a schema that has had these migrations.

    Raises:
        SchemaMismatch: one is newer than this code, and not for it to work with.
    """
    newest = migrations()[-1].number
    breaking = sorted(number for number, compatible in applied.items() if number > newest and not compatible)
    if breaking:
        raise SchemaMismatch(
            f"Schema {schema!r} is at migration {breaking[-1]:04}; this code knows up to {newest:04}.",
            hint="Upgrade Tenure in this process.",
        )
