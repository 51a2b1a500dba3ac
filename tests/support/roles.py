"""Roles of a test's own. They belong to the whole server: each has a name that no other test uses, and goes at the end."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

_numbers = itertools.count()


@contextmanager
def a_role(dsn: str, what: str = "somebody") -> Iterator[str]:
    """A new role that may log in, and no more; answers its name. What it was granted in this database goes with it."""
    name = f"{what}_{os.getpid()}_{next(_numbers)}"
    quoted = sql.Identifier(name)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create role {} login").format(quoted))
        try:
            yield name
        finally:
            admin.execute(sql.SQL("drop owned by {} cascade").format(quoted))
            admin.execute(sql.SQL("drop role {}").format(quoted))


def as_role(dsn: str, role: str) -> str:
    """The same database, in another role."""
    return make_conninfo(dsn, user=role)
