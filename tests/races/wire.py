"""A way to the database on which every statement is written down, and each can be cut before or after its commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tenure.chaos.proxy import COMMIT, Cut, Proxy
from tenure.store.postgres import PostgresStore


@dataclass
class Wire:
    """A store behind a proxy.

    Args:
        statements: what was executed, in order, since they were last cleared.
    """

    proxy: Proxy
    store: PostgresStore
    statements: list[bytes] = field(default_factory=list)

    def cut(self, when: str, statement: str) -> Cut:
        """Lose the connection before the server gets the next statement of this name, or after it has committed."""
        words = f"-- {statement}:".encode()
        cut = self.proxy.cut_before if when == "before" else self.proxy.cut_after
        return cut(lambda text: text.startswith(words))

    def cut_commit(self, when: str) -> Cut:
        """The same at the next COMMIT."""
        return self.proxy.cut_before(COMMIT) if when == "before" else self.proxy.cut_after(COMMIT)

    def see(self, statement: bytes) -> None:
        self.statements.append(statement)


@contextmanager
def tapped(dsn: str) -> Iterator[Wire]:
    """A wire to a database, for the length of the block."""
    with Proxy(dsn) as proxy:
        store = PostgresStore(proxy.dsn())
        wire = Wire(proxy, store)
        proxy.cut_before(wire.see)  # never true, so it goes on counting
        try:
            yield wire
        finally:
            store.close()
