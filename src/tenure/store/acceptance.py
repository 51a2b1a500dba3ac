"""How a job is accepted when one statement is not enough: late keys, replacements, answers that were lost.

Scripts: they say operations and are told the answers, on whatever connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any, TypeVar
from uuid import UUID

from tenure.drivers import Script, Statement
from tenure.errors import OutcomeUnknown
from tenure.job import Accepted, State
from tenure.store.protocol import Accept, Follow, Op, Replace, Whereabouts

T = TypeVar("T")

Ask = Callable[[Op[Any]], Script[Any]]
"""Makes the script of one operation."""

_BEGIN = Statement("begin isolation level read committed", answers=False)
_COMMIT = Statement("commit", answers=False)
_ROLLBACK = Statement("rollback", answers=False)


def accepting(op: Accept, ask: Ask) -> Script[list[Accepted]]:
    """Accept, looking again for keys that another session committed meanwhile, and replace what is to be replaced."""
    answers = yield from _seen(op, ask)
    held = [
        (place, job._replace(id=told.id))
        for place, (job, told) in enumerate(zip(op.jobs, answers, strict=True))
        if job.replace and told.id != job.id and told.answer in ("same", "conflict")
    ]
    if held:
        jobs = [job for _, job in held]
        done = set((yield from ask(Replace(op.queue, op.kind, op.version, op.fingerprint_kind, jobs))))
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


def accepting_again(op: Accept, ask: Ask) -> Script[list[Accepted]]:
    """Accept, after an earlier try whose answer was lost; on a connection without a transaction of its own.

    The earlier try committed all its jobs or none. So all are inserted again under the same ids, which waits for a try that
    is still committing, and then, with a new snapshot, those are looked for that have ended meanwhile. If one of ours is
    found, it was the earlier try that stands, and this one is rolled back.

    Raises:
        OutcomeUnknown: keyless jobs are found nowhere, and their queue keeps nothing of what has ended; or a job that was
            to be replaced has been claimed since.
    """
    yield _BEGIN
    try:
        answers = yield from accepting(op, ask)
        ended = yield from ask(Follow(op.queue, [job.id for job in op.jobs]))
        if any(told.answer == "conflict" and told.held == told.given for told in answers):
            raise OutcomeUnknown(
                "The connection was lost around the commit, and a job that was to be replaced has been claimed since.",
                kept="It may have been replaced before that, or not.",
                hint="Look at the job: tenure jobs show ID",
            )
        ours = [told for job, told in zip(op.jobs, answers, strict=True) if told.id == job.id]
        stands = any(told.answer == "same" or _has_ended(ended[told.id]) for told in ours)
        if not stands and _may_have_gone(op, answers, ended):
            raise OutcomeUnknown(
                "The connection was lost around the commit.",
                kept="The jobs may or may not have been stored, and run: their queue keeps nothing of what has ended.",
                hint="Give jobs an idempotency key: then repeating is always safe.",
            )
    except BaseException:
        yield _ROLLBACK
        raise
    if not stands:
        yield _COMMIT
        return answers
    yield _ROLLBACK
    return [
        _of_the_first(told, ended[job.id]) if told.id == job.id else told
        for job, told in zip(op.jobs, answers, strict=True)
    ]


def _has_ended(where: Whereabouts) -> bool:
    return where.state is not None and State(where.state).ended


def _may_have_gone(op: Accept, answers: list[Accepted], ended: dict[UUID, Whereabouts]) -> bool:
    return any(
        job.key is None and told.answer == "new" and not ended[job.id].kept
        for job, told in zip(op.jobs, answers, strict=True)
    )


def _of_the_first(told: Accepted, where: Whereabouts) -> Accepted:
    if told.answer not in ("new", "same"):
        return told
    state = State(where.state) if where.state else told.state
    return told._replace(answer="new", state=state, result=where.result or told.result)
