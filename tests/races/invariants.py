"""What must hold of accepted jobs after every step of every race."""

from __future__ import annotations

from uuid import UUID

from psycopg import Connection

_PLACES = """
    select id, place, attempts, max_attempts, token, lease_until > clock_timestamp() as leased
    from (
        select id, state::text as place, attempts, max_attempts, token, lease_until from tenure.jobs
        union all
        select id, state::text, attempts, max_attempts, null, null from tenure.archive
        union all
        select id, 'dead', attempts, max_attempts, null, null from tenure.dead
    ) everywhere
"""


class Invariants:
    """Watches jobs: each in exactly one place, never over-attempted, no lease token ever seen again once it is gone.

    Args:
        conn: an autocommit connection that nobody else uses.
        accepted: the jobs there must be, and no others.
    """

    def __init__(self, conn: Connection, accepted: list[UUID]) -> None:
        self._conn = conn
        self._accepted = sorted(accepted)
        self._holder: dict[UUID, UUID | None] = {}
        self._gone: set[UUID] = set()
        self.check()

    def check(self) -> dict[UUID, str]:
        """See that all of it holds now; answers where each job is."""
        rows = self._conn.execute(_PLACES).fetchall()
        assert sorted(row[0] for row in rows) == self._accepted, "a job is not in exactly one place"
        for id, place, attempts, max_attempts, token, leased in rows:
            assert 0 <= attempts <= max_attempts, f"{attempts} of {max_attempts} attempts"
            assert leased in (None, False) or place == "running", f"a lease on a job that is {place}"
            self._see(id, token)
        return {row[0]: row[1] for row in rows}

    def _see(self, id: UUID, token: UUID | None) -> None:
        before = self._holder.get(id)
        if token == before:
            return
        assert token not in self._gone, "a token came back"
        if before is not None:
            self._gone.add(before)
        self._holder[id] = token
