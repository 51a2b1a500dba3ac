"""How jobs are accepted when one statement is not enough: late keys, replacements, answers that were lost.

Scripts: they say operations and are told the answers, on whatever connection.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from tenure.drivers import Script, Statement, sqlstate
from tenure.errors import OutcomeUnknown
from tenure.job import Accepted, NewJob, State
from tenure.store.protocol import Accept, Follow, Op, Replace, Whereabouts

T = TypeVar("T")

Ask = Callable[[Op[Any]], Script[Any]]
"""Makes the script of one operation."""

CERTAIN_TTL: Final = 60.0
"""A key that is held for so long after its job's end, seconds, is there when a lost answer is looked for."""

_NOT_THERE: Final = ("new", "full", "draining")
"""What is answered for a job that is not there; it may have been, and have ended."""

DEADLOCK: Final = "40P01"
RERUNS: Final = 3
"""How often a statement is said again that was given up to end a deadlock."""

_BEGIN = Statement("begin isolation level read committed", answers=False)
_COMMIT = Statement("commit", answers=False)
_ROLLBACK = Statement("rollback", answers=False)


def accepting(op: Accept, ask: Ask) -> Script[list[Accepted]]:
    """Accept, looking again for keys that another session committed meanwhile, and replace what is to be replaced."""
    answers = yield from _seen(op, ask)
    if not any(job.replace for job in op.jobs):
        return answers
    held = [
        (place, job._replace(id=told.id))
        for place, (job, told) in enumerate(zip(op.jobs, answers, strict=True))
        if job.replace and told.id != job.id and told.answer in ("same", "conflict")
    ]
    if held:
        jobs = [job for _, job in held]
        done = set((yield from ask(Replace(op.queue, op.kind, op.version, op.fingerprint_kind, jobs, op.limit_name))))
        for place, job in held:
            told = answers[place]
            answers[place] = replaced(told) if job.id in done else told._replace(answer="conflict")
    return answers


def replaced(told: Accepted) -> Accepted:
    """The answer for a job that holds the key and now has the content that was offered."""
    return told._replace(answer="replaced", state=State.PENDING, held=told.given)


def _seen(op: Accept, ask: Ask) -> Script[list[Accepted]]:
    answers: list[Any] = yield from ask(op)
    while places := [place for place, told in enumerate(answers) if told.answer == "unseen"]:
        rest = yield from ask(changed(op, jobs=[op.jobs[place] for place in places]))
        for place, told in zip(places, rest, strict=True):
            answers[place] = told
    return answers


def accepting_alone(op: Accept, ask: Ask) -> Script[list[Accepted]]:
    """The same on a connection where each statement commits by itself.

    One transaction around them would take keys in another order than the one they are taken in, and two batches could wait
    for each other.

    Raises:
        OutcomeUnknown: a later statement was refused, and what the ones before it have done is committed.
    """
    said = 0

    def counted(one: Op[Any]) -> Script[Any]:
        nonlocal said
        answer = yield from _until_no_deadlock(one, ask)
        said += 1
        return answer

    try:
        return (yield from accepting(op, counted))
    except Exception as error:
        code = sqlstate(error)
        if said and len(op.jobs) > 1 and code is not None:
            raise OutcomeUnknown(
                f"The database gave up in the middle of the batch: {str(error).partition(chr(10))[0]}.",
                kept="Some of its jobs were stored, others were not.",
                hint="Enqueue those with an idempotency key again: that never stores a second job. Look for the others.",
            ) from error
        raise


def _until_no_deadlock(op: Op[T], ask: Ask) -> Script[T]:
    """One statement that commits by itself, said again where the database gave it up to end a deadlock.

    Batches take keys in one order, but a key that is over is removed before a new one is made: two batches with some of
    both may wait for each other.
    """
    for _ in range(RERUNS):
        try:
            return cast(T, (yield from ask(op)))
        except Exception as error:
            if sqlstate(error) != DEADLOCK:
                raise
    return cast(T, (yield from ask(op)))


def accepting_again(op: Accept, ask: Ask) -> Script[list[Accepted]]:
    """Accept, after an earlier try whose answer was lost; on a connection without a transaction of its own.

    All jobs are accepted again under the same ids, which waits for a try that is still committing, and finds the jobs that
    live; and then, with a new snapshot, those are looked for that have ended meanwhile. What the earlier try has accepted
    is not accepted a second time: the transaction is rolled back, and begun anew without it. What it had not come to is
    accepted now. One without a key that has been moved would not be found in its queue, so it is looked for before.

    Raises:
        OutcomeUnknown: jobs may have run and left no trace, in a queue that keeps nothing; or a job that was to be replaced
            has been claimed since.
    """
    stood = yield from _there(op, ask)
    while jobs := [job for job in op.jobs if job.id not in stood]:
        yield _BEGIN
        try:
            answers = yield from accepting(changed(op, jobs=jobs), ask)
            where = yield from ask(Follow(op.queue, [job.id for job in jobs]))
            found = _standing(op, list(zip(jobs, answers, strict=True)), where, some=bool(stood))
        except BaseException:
            yield from _rolled_back()
            raise
        if not found:
            yield _COMMIT
            return _in_order(op, stood | {job.id: _ours(job, told) for job, told in zip(jobs, answers, strict=True)})
        yield _ROLLBACK
        stood |= found
    return _in_order(op, stood)


def _there(op: Accept, ask: Ask) -> Script[dict[UUID, Accepted]]:
    """The jobs without a key that are somewhere already."""
    ids = [job.id for job in op.jobs if job.key is None]
    where = (yield from ask(Follow(op.queue, ids))) if ids else {}
    return {
        id: Accepted(id, "new", State(found.state), found.result, None, None)
        for id, found in where.items()
        if found.state is not None
    }


def _standing(
    op: Accept, answered: Sequence[tuple[NewJob, Accepted]], where: dict[UUID, Whereabouts], *, some: bool
) -> dict[UUID, Accepted]:
    """What the earlier try has accepted and this one must not: the answers for it; those that live need nothing."""
    if any(told.answer == "conflict" and told.held == told.given for _, told in answered):
        raise OutcomeUnknown(
            "The connection was lost around the commit, and a job that was to be replaced has been claimed since.",
            kept="It may have been replaced before that, or not.",
            hint="Look at the job: tenure jobs show ID",
        )
    ours = [(job, told) for job, told in answered if told.id == job.id and told.answer in ("same", *_NOT_THERE)]
    ended = {
        job.id: told._replace(
            answer="new", state=State(str(where[job.id].state)), result=where[job.id].result, room=None
        )
        for job, told in ours
        if told.answer in _NOT_THERE and _has_ended(where[job.id])
    }
    some = some or bool(ended) or any(told.answer == "same" for _, told in ours)
    untraced = {
        job.id: told
        for job, told in ours
        if told.answer in _NOT_THERE and job.id not in ended and not where[job.id].kept and not _certain(op, job)
    }
    if any(job.key is not None or not some for job, _ in ours if job.id in untraced):
        raise OutcomeUnknown(
            "The connection was lost around the commit.",
            kept="The jobs may or may not have been stored, and run: their queue keeps nothing of what has ended.",
            hint="Give jobs an idempotency key that is held for a while after their end: then repeating is always safe.",
        )
    # One that stands speaks for all without a key: they were in the statement that came before. They have run.
    return ended | untraced


def _certain(op: Accept, job: NewJob) -> bool:
    """Whether its key would be there if it had been accepted, whatever became of it."""
    return job.key is not None and op.key_ttl >= CERTAIN_TTL


def _has_ended(where: Whereabouts) -> bool:
    return where.state is not None and State(where.state).ended


def _ours(job: NewJob, told: Accepted) -> Accepted:
    """A job of this call is new to its caller, whichever try has accepted it."""
    return told._replace(answer="new") if told.id == job.id and told.answer == "same" else told


def _in_order(op: Accept, answers: dict[UUID, Accepted]) -> list[Accepted]:
    return [answers[job.id] for job in op.jobs]


def _rolled_back() -> Script[None]:
    """Roll back; where even that fails, what went wrong before is the news."""
    with contextlib.suppress(Exception):
        yield _ROLLBACK
