"""The ways into the table of jobs: one job, many as arrays, very many as a stream.

All three refuse the same and store the same rows, so the choice is made here, by number and content, and told to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tenure.bounds import refused_for, sheds
from tenure.drivers import Rows, Script, Statement, as_uuid, sqlstate
from tenure.job import Accepted, NewJob, State
from tenure.store.arrays import column
from tenure.store.protocol import Accept
from tenure.store.statements import statement
from tenure.store.stream import Terms, blocks, can_stream, has_order

THERE_ALREADY: Final = "23505"


def entering(op: Accept, schema: str) -> Script[list[Accepted]]:
    """Accept in one statement, in whatever transaction; what a single job is refused for is found out by a second one.

    That its queue has no room is told by the first: a refusal must cost less than what it refuses.
    """
    job = op.jobs[0]
    simple = len(op.jobs) == 1 and job.key is None and not job.wants_result and op.limit_name is None
    if simple and (rows := (yield Statement(statement("accept_one", schema), _terms(op) | job._asdict()))):
        [(id, room)] = rows
        if room is not None:
            return [refused_for(job, room)]
        if id is not None:
            return [_new(job)]
    rows = yield Statement(statement("accept", schema), _terms(op) | _columns(op.jobs))
    return _answers(op.jobs, rows)


def entering_alone(op: Accept, schema: str) -> Script[list[Accepted]]:
    """The same on a connection of our own, where each statement commits by itself."""
    if can_stream(op):
        [(max_attempts, now, exact, room)] = yield Statement(statement("accept_terms", schema), _terms(op) | _load(op))
        if exact or (room is not None and sheds(room)):
            return (yield from entering(op, schema))
        if room is not None:
            return [refused_for(job, room) for job in op.jobs]
        try:
            said = "accept_copy_ordered" if has_order(op) else "accept_copy"
            yield Statement(statement(said, schema), stream=blocks(op, Terms(max_attempts, now)))
        except Exception as error:
            if sqlstate(error) != THERE_ALREADY:
                raise
        else:
            yield Statement(statement("ring", schema), {"queue": op.queue})
            return [_new(job) for job in op.jobs]
    return (yield from entering(op, schema))


def _terms(op: Accept) -> dict[str, Any]:
    return {
        "queue": op.queue,
        "kind": op.kind,
        "version": op.version,
        "fingerprint_kind": op.fingerprint_kind,
        "max_attempts": op.max_attempts,
        "key_ttl": op.key_ttl,
        "max_bytes": op.max_bytes,
        "limit_name": op.limit_name,
    }


def _load(op: Accept) -> dict[str, Any]:
    """What a stream would bring: how many jobs, about how many bytes, and the lowest of their priorities."""
    return {
        "jobs": len(op.jobs),
        "bytes": sum(len(job.payload) for job in op.jobs),
        "lowest": max(job.priority for job in op.jobs),
    }


def _columns(jobs: Sequence[NewJob]) -> dict[str, Any]:
    return dict(zip(NewJob._fields, map(column, zip(*jobs, strict=True)), strict=True))


def _answers(jobs: Sequence[NewJob], rows: Rows) -> list[Accepted]:
    """What the rows tell by their places; a job that no row tells of is simply new."""
    answers = [_new(job) for job in jobs]
    for place, id, answer, state, *rest in rows:
        answers[place - 1] = Accepted(as_uuid(id), answer, State(state), *rest)
    return answers


def _new(job: NewJob) -> Accepted:
    return Accepted(job.id, "new", State.PENDING, None, None, None)
