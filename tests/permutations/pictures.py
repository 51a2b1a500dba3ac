"""What a store keeps, in parts that can be judged one by one; alike for PostgreSQL and for the store in memory.

Under each key: its jobs, wherever they are, the key's row, and the dedup rows that go with it. And apart from that the
dedup row of a natural key, which a prune comes to by another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection

from tenure.store.memory import MemoryStore
from tenure.store.memory_rows import Key, Row
from tests.permutations.acts import KEYS, Told, jobs_of

Picture = dict[str, Any]
"""By part, what is there."""

PARTS = [*KEYS, *(f"effect of {key}" for key in KEYS)]

SHORT = timedelta(hours=2)
"""Leases from before are shorter, those that sessions make are longer, and still are when time has passed."""


class JobSeen(NamedTuple):
    """A job: ``token`` of its lease or of the settlement that ended it; ``lease`` over, short or long."""

    id: UUID
    state: str
    reason: str | None
    attempts: int
    claims: int
    redrives: int
    suspect: bool
    cancel: bool
    token: UUID | None
    lease: str | None
    result: str | None
    history: tuple[tuple[str, int, int], ...]


class KeySeen(NamedTuple):
    """A key's row."""

    key: str
    job_id: UUID
    state: str | None
    token: UUID | None
    over: bool | None
    result: str | None


class EffectSeen(NamedTuple):
    """A dedup row; the queue of a natural key is empty."""

    queue: str
    job_id: UUID


_ENDED = """
    select id, state::text, reason, attempts, claims, redrives, false, false, token, null, result::text, history
    from tenure.{table}
"""

_JOBS = f"""
    select id, state::text, null as reason, attempts, claims, redrives, suspect, cancel, token,
           case when lease_until <= clock_timestamp() then 'over'
                when lease_until <= clock_timestamp() + interval '{SHORT.total_seconds()} s' then 'short'
                when lease_until is not null then 'long' end as lease,
           null as result, history
    from tenure.jobs
    union all {_ENDED.format(table="archive")}
    union all {_ENDED.format(table="dead")}
"""  # noqa: S608

_KEYS = "select key, job_id, state::text, token, expires_at <= clock_timestamp(), result::text from tenure.keys"
_EFFECTS = "select queue, job_id from tenure.dedup"


def of_postgres(conn: Connection) -> Picture:
    """What others than the sessions see."""
    with conn.pipeline():
        jobs, keys, effects = conn.execute(_JOBS), conn.execute(_KEYS), conn.execute(_EFFECTS)
    seen = (JobSeen._make([*row[:-1], _history(row[-1])]) for row in jobs.fetchall())
    return _parts(seen, map(KeySeen._make, keys.fetchall()), map(EffectSeen._make, effects.fetchall()))


def of_memory(store: MemoryStore) -> Picture:
    """The same of the store in memory."""
    now = store.now()
    rows = (*store.hot.values(), *store.archive.values(), *store.dead.values())
    keys = (_key(key, held, now) for (_, key), held in store._keys.items())
    effects = (EffectSeen(queue, effect.job_id) for (queue, _, _), effect in store._effects.items())
    return _parts((_job(row, now) for row in rows), keys, effects)


def about(told: Told, part: str) -> Told:
    """What a session was told of the jobs of a part; of a natural key's effect nobody is told."""
    return {id: answer for id, answer in told.items() if part in KEYS and id in jobs_of(part)}


def key_of(part: str) -> str:
    """The key that a part belongs to."""
    return part[-1]


def _parts(jobs: Iterable[JobSeen], keys: Iterable[KeySeen], effects: Iterable[EffectSeen]) -> Picture:
    lists = sorted(jobs, key=str), [*keys], [*effects]
    return {part: seen for key in KEYS for part, seen in _of_key(key, *lists)}


def _of_key(key: str, jobs: list[JobSeen], keys: list[KeySeen], effects: list[EffectSeen]) -> Iterator[tuple[str, Any]]:
    ids = jobs_of(key)
    ours = [effect for effect in effects if effect.job_id in ids]
    yield (
        key,
        (
            [job for job in jobs if job.id in ids],
            [row for row in keys if row.key == key],
            [effect for effect in ours if effect.queue],
        ),
    )
    yield f"effect of {key}", [effect for effect in ours if not effect.queue]


def _job(row: Row, now: datetime) -> JobSeen:
    return JobSeen(
        row.id,
        row.state.value,
        row.reason,
        row.attempts,
        row.claims,
        row.redrives,
        row.suspect,
        row.cancel,
        row.token or row.settled,
        _lease(row.lease_until, now),
        row.result,
        _history(row.history),
    )


def _lease(until: datetime | None, now: datetime) -> str | None:
    if until is None:
        return None
    return "over" if until <= now else "short" if until <= now + SHORT else "long"


def _key(key: str, held: Key, now: datetime) -> KeySeen:
    over = None if held.expires_at is None else held.expires_at <= now
    return KeySeen(key, held.job_id, held.state, held.settled, over, held.result)


def _history(entries: list[dict[str, Any]] | None) -> tuple[tuple[str, int, int], ...]:
    return tuple((entry["type"], entry["attempt"], entry["claim"]) for entry in entries or [])
