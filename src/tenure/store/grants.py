"""Rights for roles, as a script that a person reads and applies, or that is applied here.

What a role may do stands in ``grants/<kind>.sql``, one file for each. A script only adds: what a role was given otherwise
it keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from psycopg import Connection

from tenure.errors import ConfigError
from tenure.store.migrate import check_schema
from tenure.store.statements import granting, quoted

LONGEST = 63
"""Bytes of a role's name; the server would cut off the rest, and find another role."""


class Grants(NamedTuple):
    """Which role becomes what; one that has several parts is named for each.

    Args:
        owner: owns the schema and migrates.
        producers: enqueue.
        workers: run jobs.
        viewers: look.
    """

    owner: str | None = None
    producers: Sequence[str] = ()
    workers: Sequence[str] = ()
    viewers: Sequence[str] = ()

    @property
    def roles(self) -> list[str]:
        """All that are named, each once."""
        named = [*([self.owner] if self.owner is not None else []), *self.producers, *self.workers, *self.viewers]
        return list(dict.fromkeys(named))


def script(grants: Grants, schema: str) -> str:
    """The SQL that gives these roles their rights, to be run in one transaction; it may be run again.

    Raises:
        ConfigError: no role is named, or one cannot be the name of a role.
    """
    if not grants.roles:
        raise ConfigError("No role is named.", hint="Use --owner, --producer, --worker or --viewer.")
    for role in grants.roles:
        _checked(role)
    path = "set local search_path = pg_catalog, pg_temp;"  # what somebody put into another schema is not called
    owner = [granting("owner", schema, grants.owner)] if grants.owner is not None else []
    others = [
        granting(kind, schema, role)
        for kind, roles in (("producer", grants.producers), ("worker", grants.workers), ("viewer", grants.viewers))
        for role in roles
    ]
    head = [granting("owned", schema)] if others else []
    return "\n".join([path, *owner, *head, *others])


def grant(conn: Connection, grants: Grants, schema: str) -> None:
    """Run the script, all of it or nothing.

    Args:
        conn: an autocommit connection of the schema's owner; to change the owner, of a superuser or a member of both.

    Raises:
        ConfigError: a role does not exist.
        SchemaMismatch: the schema is missing, or older than this code.
    """
    text = script(grants, schema)
    there = {row[0] for row in conn.execute("select rolname from pg_roles where rolname = any(%s)", [grants.roles])}
    for role in grants.roles:
        if role not in there:
            raise ConfigError(
                f"There is no role {role!r} on this server.",
                kept="Nothing was granted.",
                hint=f"Create it: create role {quoted(role)} login;",
            )
    if grants.producers or grants.workers or grants.viewers:
        check_schema(conn, schema)  # an owner's schema may be made first, and migrated by the owner
    with conn.transaction():
        conn.execute(text.encode())


def _checked(role: str) -> None:
    if not 0 < len(role.encode()) <= LONGEST or "\0" in role:
        raise ConfigError(f"{role!r} cannot be the name of a role.", hint=f"A name has 1 to {LONGEST} bytes.")
