"""Bugs to be planted: a queue that breaks its promise in one way, so that the checker is seen to catch it.

They live here and change the code of processes that were told so in their environment by ``tenure chaos --plant``; the
store and the worker know nothing of them. A bug that finds another text than the one it is to change is an error: a plant
that does nothing would prove nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

from psycopg.abc import PQGen

from tenure.errors import ConfigError

PLANT = "_TENURE_CHAOS_PLANT"
"""Which bug a process has; from the command to those it starts."""

WINDOW = 0.3
"""How long a producer waits between its promise and the commit, seconds, where that is the bug."""

_SOME = 50  # of so many jobs one is dropped, or run twice

Edits = dict[str, dict[str, str]]
"""For each SQL file what stands in place of what."""

_FENCE = "sql/fragments/mine.sql"
_BY_ID = {
    "join locked l on l.id = given.id and l.token = given.token": "join locked l on l.id = given.id",
    "where l.lease_until > clock_timestamp()": "where true",
}
"""The fence, without token and time."""


class Plant(NamedTuple):
    """A bug.

    Args:
        what: is wrong with it.
        plant: changes the code of this process.
        faults: that make it show, with commas, as ``--faults``.
        shown: what the checker counts then, a field of its verdict.
    """

    what: str
    plant: Callable[[], None]
    faults: str
    shown: str


def planted() -> str | None:
    """The bug that this process has."""
    return os.environ.get(PLANT) or None


def plant_from_environment() -> None:
    """Plant it."""
    if (name := planted()) is not None:
        require(name).plant()


def require(name: str) -> Plant:
    """A bug, by its name.

    Raises:
        ConfigError: there is none of this name.
    """
    try:
        return PLANTS[name]
    except KeyError:
        raise ConfigError(f"There is no bug {name[:40]!r}.", hint=f"There are: {', '.join(PLANTS)}.") from None


def _drop() -> None:
    from tenure.worker.attempt import Attempts
    from tenure.worker.outcome import DONE

    run = Attempts.run

    async def dropping(self: Attempts, kind: Any, job: Any, *more: Any) -> Any:
        if not kind.effect and job.id.int % _SOME == 0:
            return DONE
        return await run(self, kind, job, *more)

    Attempts.run = dropping  # type: ignore[method-assign,assignment]


def _run_twice() -> None:
    from tenure.worker.attempt import Attempts

    run = Attempts.run

    async def twice(self: Attempts, kind: Any, job: Any, *more: Any) -> Any:
        if not kind.effect and job.id.int % _SOME == 0:
            await run(self, kind, job, *more)
        return await run(self, kind, job, *more)

    Attempts.run = twice  # type: ignore[method-assign,assignment]


def _settle_by_id() -> None:
    _trust_leases()
    _edit({_FENCE: _BY_ID})


def _return_by_id() -> None:
    _trust_leases()
    by_id = {"{mine}": _changed(_FENCE, _BY_ID)}
    _edit(dict.fromkeys(("sql/retry.sql", "sql/release.sql", "sql/fragments/deferred.sql"), by_id))


def _heartbeat_unfenced() -> None:
    _trust_leases()
    until = "set lease_until = clock_timestamp() + make_interval(secs => m.lease)"
    _edit(
        {
            "sql/extend.sql": {
                "join locked l on l.id = g.id and l.token = g.token": "join locked l on l.id = g.id",
                "where l.lease_until > clock_timestamp()\n": "where true\n",
                until: until + ", token = (select g.token from given g where g.id = m.id)",  # noqa: S608 - our own
                "and j.id between m.id and m.id\n": "and j.id between m.id and m.id and j.state = 'running'\n",
            }
        }
    )


def _attempt_on_failure() -> None:
    _edit(
        {
            "sql/fragments/leased.sql": {"attempts = j.attempts + 1": "attempts = j.attempts"},
            "sql/retry.sql": {"set {pending}, ": "set {pending}, attempts = j.attempts + 1, "},
            "sql/release.sql": {"attempts = j.attempts - 1": "attempts = j.attempts"},
        }
    )


def _dedup_own_commit() -> None:
    from tenure.drivers import Statement
    from tenure.drivers.pipeline import talk
    from tenure.effects import steps

    begin = steps.Transaction.begin

    def in_two(self: Any, conn: Any, effect: Any) -> PQGen[None]:
        yield from begin(self, conn, effect)
        answers: list[Any] = []
        said = [Statement("commit"), Statement("begin"), Statement("select pg_current_xact_id()::text")]
        yield from talk(conn, said, answers)
        self._xid = answers[-1].get_value(0, 0).decode()

    steps.Transaction.begin = in_two  # type: ignore[method-assign]


def _repeat_anew() -> None:
    from tenure.store import acceptance, postgres
    from tenure.store.protocol import Accept

    again = acceptance.accepting_again

    def anew(op: Accept, ask: Any) -> Any:
        return again(replace(op, jobs=[job._replace(id=uuid4()) for job in op.jobs]), ask)

    postgres.accepting_again = anew  # type: ignore[attr-defined]


def _order_ungated() -> None:
    """Without the key, too: two of one key past the gate are what the guard does not let in."""
    from tenure import offer
    from tenure.job import NewJob

    def without(**more: Any) -> NewJob:
        return NewJob(**{**more, "order_key": None})

    offer.NewJob = without  # type: ignore[attr-defined,assignment]


def _retry_passed() -> None:
    asked = "and (select q.order_retry = 'skip' from tenure.queues q where q.name = %(queue)s) then"
    _edit({"sql/fragments/lets_pass.sql": {asked: "then"}})


def _ack_before_commit() -> None:
    """Producers look by themselves, see ``producer``."""


def _trust_leases() -> None:
    """A worker that never gives up a job by itself: else its own clock hides what the database would let through."""
    from tenure.worker.leases import Leases
    from tenure.worker.watch import Watch

    def none(_leases: Any) -> list[Any]:
        return []

    def kept(_watch: Any, _held: Any) -> None: ...

    Leases.overdue = none  # type: ignore[method-assign,assignment]
    Watch._lose = kept  # type: ignore[method-assign,assignment]


def _edit(edits: Edits) -> None:
    from tenure.store import statements

    read = statements._read
    texts = {path: _changed(path, changes) for path, changes in edits.items()}

    def edited(path: str) -> str:
        return texts[path] if path in texts else read(path)

    statements._read = edited
    statements.statement.cache_clear()


def _changed(path: str, changes: dict[str, str]) -> str:
    from tenure.store import statements

    text = statements._read(path)
    for old, new in changes.items():
        if old not in text:
            raise AssertionError(f"{path} does not say {old!r} any more: the planted bug must change with it")
        text = text.replace(old, new)
    return text


PLANTS = {
    "drop": Plant("one job in 50 is called done without being run", _drop, "kill", "lost"),
    "settle-by-id": Plant(
        "a settlement looks at the job's id, not at token and time", _settle_by_id, "stop", "stale_accepted"
    ),
    "return-by-id": Plant(
        "the same for what gives a job back: a retry, a snooze, a release", _return_by_id, "stop", "stale_accepted"
    ),
    "ack-before-commit": Plant(
        "a producer is promised a job that is not committed yet", _ack_before_commit, "kill,terminate", "lost"
    ),
    "repeat-anew": Plant(
        "an enqueue whose answer was lost is repeated as another job", _repeat_anew, "answer", "unexpected"
    ),
    "dedup-own-commit": Plant("the dedup row is committed before the effect", _dedup_own_commit, "kill", "lost"),
    "heartbeat-unfenced": Plant(
        "a heartbeat takes the lease, whoever has it", _heartbeat_unfenced, "stop", "stale_accepted"
    ),
    "attempt-on-failure": Plant(
        "an attempt is counted when it fails, not when it begins", _attempt_on_failure, "kill", "over_attempted"
    ),
    "run-twice": Plant("one job in 50 is run twice under one claim", _run_twice, "kill", "unexplained_runs"),
    "order-ungated": Plant(
        "jobs with an ordering key enter as if they had none, past the gate", _order_ungated, "kill", "out_of_order"
    ),
    "retry-passed": Plant(
        "a job that waits for its next attempt lets others of its ordering key pass",
        _retry_passed,
        "kill",
        "out_of_order",
    ),
}
"""The bugs."""
