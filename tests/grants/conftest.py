"""One database for each test, with an owner, a producer, a worker, a viewer, and somebody who was granted nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import Connection

from tenure.store.grants import Grants
from tenure.store.postgres import PostgresStore
from tests.support.roles import a_role, as_role

PARTS = ("owner", "producer", "worker", "viewer", "stranger")


class Cast:
    """The roles of a database, by their parts.

    Args:
        dsn: of a superuser.
        names: the role of each part.
    """

    def __init__(self, dsn: str, names: dict[str, str], stack: ExitStack) -> None:
        self.dsn = dsn
        self.names = names
        self._stack = stack

    def login(self, part: str) -> str:
        """The DSN of a part."""
        return as_role(self.dsn, self.names[part])

    def store(self, part: str) -> PostgresStore:
        """A store in the role of a part; closed at the end of the test."""
        store = PostgresStore(self.login(part))
        self._stack.callback(store.close)
        return store

    def conn(self, part: str) -> Connection:
        """A connection in autocommit in the role of a part; closed at the end of the test."""
        return self._stack.enter_context(psycopg.connect(self.login(part), autocommit=True))

    @property
    def admin(self) -> Connection:
        """A connection of a superuser."""
        return self._stack.enter_context(psycopg.connect(self.dsn, autocommit=True))


@pytest.fixture
def cast(pg_dsn: str) -> Iterator[Cast]:
    """The parts, on each supported server, with the rights that ``tenure grants`` gives."""
    with ExitStack() as roles:
        names = {part: roles.enter_context(a_role(pg_dsn, part)) for part in PARTS}
        store = PostgresStore(pg_dsn)
        store.grant(Grants(names["owner"], [names["producer"]], [names["worker"]], [names["viewer"]]))
        store.close()
        with ExitStack() as stack:
            yield Cast(pg_dsn, names, stack)
