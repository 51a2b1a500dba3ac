"""What a server is set to that makes an accepted job less than kept: refused, or told at the start.

An unlogged table is empty after the next crash of the server: nothing that it holds was ever accepted, so it is refused.
The settings are the operator's own choice, and cost the last moments before a crash; they are told, and that is all.
"""

from __future__ import annotations

from psycopg import Connection

from tenure.errors import ServerUnsuitable

_ASKED = """
    select array(
        select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = %s and c.relkind = 'r' and c.relpersistence = 'u' order by c.relname
    ), array(
        select s.name from pg_settings s
        where s.name in ('fsync', 'full_page_writes', 'synchronous_commit') and s.setting = 'off' order by s.name
    )
"""

_RISKS = {
    "fsync": "fsync is off: a crash of its machine can destroy the database, accepted jobs with it.",
    "full_page_writes": "full_page_writes is off: a crash of its machine can destroy the database, accepted jobs with it.",
    "synchronous_commit": "synchronous_commit is off: a crash of the server loses what it accepted in its last moments.",
}


def require_durable(conn: Connection, schema: str) -> list[str]:
    """See that the tables are kept through a crash; answers what else puts accepted jobs at risk, a sentence each.

    Args:
        conn: as jobs will be accepted on: a setting may be that of a role or of a DSN.

    Raises:
        ServerUnsuitable: tables are unlogged.
    """
    found = conn.execute(_ASKED, [schema]).fetchone()
    unlogged, off = found or ([], [])
    if unlogged:
        raise ServerUnsuitable(
            f"Tables of schema {schema!r} are UNLOGGED, and empty after a crash of the server: {', '.join(unlogged)}.",
            hint=f'For each: alter table "{schema}".{unlogged[0]} set logged',
        )
    return [_RISKS[setting] for setting in off]
