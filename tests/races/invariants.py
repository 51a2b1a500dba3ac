"""What must hold of accepted jobs after every step of every race."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from psycopg import Connection

_PLACES = """
    select id, place, attempts, max_attempts, claims, token, lease_until > clock_timestamp() as leased, history
    from (
        select id, state::text as place, attempts, max_attempts, claims, token, lease_until, history from tenure.jobs
        union all
        select id, state::text, attempts, max_attempts, claims, null, null, history from tenure.archive
        union all
        select id, 'dead', attempts, max_attempts, claims, null, null, history from tenure.dead
    ) everywhere
"""

_HOLDERS = """
    select key, 'a job without its key'
    from (
        select id, key, coalesce(key_queue, queue) as queue, null as state from tenure.jobs
        union all
        select id, key, coalesce(key_queue, queue), 'dead' from tenure.dead
    ) j
    where j.key is not null and not exists (
        select from tenure.keys k
        where k.queue = j.queue and k.key = j.key and k.job_id = j.id and k.state::text is not distinct from j.state
    )
    union all
    select key, 'a held key without its job'
    from tenure.keys k
    where k.expires_at is null
      and not exists (select from tenure.jobs j where j.id = k.job_id and j.key = k.key)
      and not exists (select from tenure.dead d where d.id = k.job_id and d.key = k.key)
    union all
    select dedup_key, 'an effect without its key'
    from tenure.dedup d
    where d.queue <> '' and d.expires_at is null
      and not exists (
          select from tenure.keys k where k.queue = d.queue and k.queue || '/' || k.kind || '/' || k.key = d.dedup_key
      )
"""

_EFFECTS = "select queue, dedup_key, step, job_id from tenure.dedup"

_FULL = 10
"""How many failures a history keeps."""


class Invariants:
    """Watches jobs: each in exactly one place, never over-attempted, its claims only rising, its history only growing, no
    lease token ever seen again once it is gone; keys: held by each job that lives or is dead, and by no other; and dedup
    rows: kept until their job has ended, and those of a key as long as that.

    Args:
        conn: an autocommit connection that nobody else uses.
        accepted: the jobs there must be, and no others.
    """

    def __init__(self, conn: Connection, accepted: list[UUID]) -> None:
        self._conn = conn
        self._accepted = sorted(accepted)
        self._holder: dict[UUID, UUID | None] = {}
        self._gone: set[UUID] = set()
        self._claims: dict[UUID, int] = {}
        self._failed: dict[UUID, list[int]] = {}
        self._effects: dict[tuple[Any, ...], UUID] = {}
        self.check()

    def expect(self, accepted: Collection[UUID]) -> None:
        """From now on there must be these jobs, and no others."""
        self._accepted = sorted(accepted)

    def check(self) -> dict[UUID, str]:
        """See that all of it holds now; answers where each job is."""
        with self._conn.pipeline():  # effects before jobs: what is gone there had no job that is alive here
            effects, places, strays = (self._conn.execute(query) for query in (_EFFECTS, _PLACES, _HOLDERS))
        rows = places.fetchall()
        assert sorted(row[0] for row in rows) == self._accepted, "a job is not in exactly one place"
        for id, place, attempts, max_attempts, claims, token, leased, history in rows:
            assert 0 <= attempts <= max_attempts, f"{attempts} of {max_attempts} attempts"
            assert leased in (None, False) or place == "running", f"a lease on a job that is {place}"
            assert claims >= self._claims.get(id, 0), f"claims went down to {claims}"
            self._claims[id] = claims
            self._see(id, token)
            self._read(id, [failure["claim"] for failure in history or []])
        where = {row[0]: row[1] for row in rows}
        self._keep({row[:3]: row[3] for row in effects.fetchall()}, where)
        found = strays.fetchall()
        assert not found, f"keys, jobs and effects do not agree: {found}"
        return where

    def _see(self, id: UUID, token: UUID | None) -> None:
        before = self._holder.get(id)
        if token == before:
            return
        assert token not in self._gone, "a token came back"
        if before is not None:
            self._gone.add(before)
        self._holder[id] = token

    def _read(self, id: UUID, failed: list[int]) -> None:
        """Of each claim that failed there is one entry, in their order; what was written stays, up to ten."""
        before = self._failed.get(id, [])
        assert failed == sorted({*failed}), f"a history of the claims {failed}"
        assert failed[-1:] <= [self._claims[id]], f"a history of the claims {failed} of {self._claims[id]}"
        assert failed[: len(before)] == before or len(failed) == _FULL, f"a history of {before} became {failed}"
        self._failed[id] = failed

    def _keep(self, effects: dict[tuple[Any, ...], UUID], where: dict[UUID, str]) -> None:
        alive = {id for id, place in where.items() if place in ("pending", "running", "dead")}
        forgotten = [effect for effect, id in self._effects.items() if effect not in effects and id in alive]
        assert not forgotten, f"an effect was forgotten before its job had ended: {forgotten}"
        self._effects = effects
