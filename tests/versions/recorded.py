"""Databases as earlier releases left them: what was recorded, loaded, with its moments moved to the present."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import psycopg
from psycopg import sql

from tests.conftest import Server

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.sql"))
"""One file for each release, the oldest first, named after the last migration that it had."""

_MOMENTS = """
    select c.relname, array_agg(a.attname::text)
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where c.relnamespace = 'tenure'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
      and a.atttypid = 'timestamptz'::regtype and not a.attisdropped
    group by c.relname
"""


def loaded(server: Server, file: Path) -> str:
    """A new database with what was recorded; answers its DSN."""
    text = file.read_text("utf-8")
    recorded_at = datetime.fromisoformat(text.partition("\n")[0].removeprefix("-- recorded "))
    dsn = server.fresh(template="template0")
    with psycopg.connect(dsn) as conn:
        conn.execute(text.encode())
    with psycopg.connect(dsn) as conn:
        for table, columns in conn.execute(_MOMENTS).fetchall():
            moved = sql.SQL(", ").join(sql.SQL("{0} = {0} + %(by)s").format(sql.Identifier(name)) for name in columns)
            statement = sql.SQL("update {} set {}").format(sql.Identifier("tenure", table), moved)
            conn.execute(statement, {"by": datetime.now(UTC) - recorded_at})
    return dsn


_SHAPE = [
    """
    select c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
           pg_get_expr(d.adbin, d.adrelid)
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attnum > 0 and c.relkind in ('r', 'p') and {ours}
    """,
    "select c.relname, c.relkind, array_to_string(c.reloptions, ',') from pg_class c where {ours}",
    """
    select c.relname, o.conname, translate(pg_get_constraintdef(o.oid), '()', '')  -- a dump writes some and leaves some out
    from pg_constraint o join pg_class c on c.oid = o.conrelid and o.contype <> 'n'
    where {ours}
    """,
    """
    select c.relname, pg_get_indexdef(i.indexrelid)
    from pg_index i join pg_class c on c.oid = i.indexrelid
    where {ours}
    """,
    "select p.proname, pg_get_functiondef(p.oid) from pg_proc p where p.pronamespace = 'tenure'::regnamespace",
    """
    select t.typname, array_to_string(array_agg(e.enumlabel order by e.enumsortorder), ',')
    from pg_type t join pg_enum e on e.enumtypid = t.oid
    where t.typnamespace = 'tenure'::regnamespace
    group by t.typname
    """,
]

_OURS = "c.relnamespace = 'tenure'::regnamespace and c.relname !~ '^archive_[0-9]{8}'"  # the days are as it comes


def shape(dsn: str) -> set[tuple[object, ...]]:
    """Everything that a schema is made of, in the server's own words: columns, constraints, indexes, functions, types."""
    with psycopg.connect(dsn) as conn:
        return {row for query in _SHAPE for row in conn.execute(query.replace("{ours}", _OURS).encode())}
