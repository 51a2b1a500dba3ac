"""How an attempt ended, and what the queue is told about it: pure decisions.

An outcome is a plain value, because it may come from a child process. What it means is decided here, in the process that
holds the lease, from the policy and from the job's counts.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any, Literal, NamedTuple
from uuid import UUID

from tenure import jsontext
from tenure.inert import quiet
from tenure.job import DeadReason, Job
from tenure.policy import Policy, Verdict, delay, throttle_delay
from tenure.store import protocol as ask

DEATHS = 2
"""Children killed in a row that make a job poison."""

MESSAGE_BYTES = 2_000
TRACEBACK_BYTES = 8_000

Uniform = Callable[[float, float], float]

End = Literal["done", "duplicate", "committed", "failed", "died", "released", "unstarted", "lost", "unknown"]


class Outcome(NamedTuple):
    """How an attempt ended.

    Args:
        end: ``done``; ``duplicate``: its effect was there already; ``committed``: the effect and its completion are;
            ``failed``: see verdict; ``died``: its child process did; ``released``: it has stopped without an end of its
            own; ``unstarted``: no child could be started for it; ``lost``: the lease is; ``unknown``: the connection died
            around the effect's commit.
        result: JSON text of what the handler returned.
        verdict: which failure it was.
        failure: what goes into the history.
        own: it came to an end by itself; else the worker stopped it, which clears no suspicion.
    """

    end: End
    result: str | None = None
    verdict: Verdict | None = None
    failure: dict[str, Any] | None = None
    own: bool = True

    def __repr__(self) -> str:
        return quiet(self)


DONE = Outcome("done")
"""Done, without a result."""

Ends = Outcome | list[Outcome]
"""How an attempt of several jobs ended: in one way for all, or each in its own."""


def failed(error: BaseException, verdict: Verdict) -> Outcome:
    """The outcome of an attempt that raised; bounded and fit to be stored, whatever the error's ``__str__`` does."""
    return Outcome("failed", verdict=verdict, failure=_told(error, verdict.kind))


def died(how: str) -> Outcome:
    """The outcome of an attempt whose child process died."""
    return Outcome("died", failure={"class": "transient", "type": "ChildDied", "message": how})


def timed_out(seconds: float) -> Outcome:
    """The outcome of an attempt that took too long."""
    message = f"the attempt took longer than its timeout of {seconds:g} s"
    failure = {"class": "transient", "type": "TimeoutError", "message": message}
    return Outcome("failed", verdict=Verdict("transient"), failure=failure, own=False)


def _told(error: BaseException, kind: str) -> dict[str, Any]:
    try:
        message = str(error)
    except BaseException:  # SystemExit, too
        message = "(its message cannot be shown)"
    try:
        trace = "".join(traceback.format_exception(error))
    except BaseException:
        trace = "(its traceback cannot be shown)"
    return {
        "class": kind,
        "type": jsontext.clean(type(error).__qualname__, 200),
        "message": jsontext.clean(message, MESSAGE_BYTES),
        "traceback": jsontext.clean(trace, TRACEBACK_BYTES),
    }


Asked = tuple[type[ask.Op[Any]], Any]
"""A settlement: the operation and its item."""


def settlement(job: Job, token: UUID, outcome: Outcome, policy: Policy, uniform: Uniform, worker: str) -> Asked | None:
    """What the store is asked to do; None when there is nothing to ask, because it is committed or lost.

    Args:
        policy: of the job's kind.
        uniform: ``random.uniform``.
        worker: name that goes into the history.
    """
    match outcome.end:
        case "done" | "duplicate":
            return ask.Complete, ask.Completion(job.id, token, outcome.result)
        case "released" | "unstarted":
            return ask.Release, ask.Unrun(job.id, token)
        case "failed" | "died":
            failure = json.dumps({**(outcome.failure or {}), "worker": worker}, ensure_ascii=False)
            if outcome.end == "died":
                return _after_death(job, token, failure, policy, uniform)
            return _after_failure(job, token, outcome, failure, policy, uniform)
        case _:
            return None


def _after_failure(job: Job, token: UUID, outcome: Outcome, failure: str, policy: Policy, uniform: Uniform) -> Asked:
    verdict = outcome.verdict or Verdict("transient")

    def bury(reason: DeadReason) -> Asked:
        return ask.Bury, ask.Given(job.id, token, reason, failure)

    if verdict.kind == "permanent":
        return bury("permanent")
    if verdict.kind == "transient":
        if job.attempt >= job.max_attempts:
            return bury("exhausted")
        wait = delay(job.attempt, policy.backoff, uniform) if verdict.after is None else verdict.after
        return ask.Retry, ask.Failed(job.id, token, wait, failure, keeps=not outcome.own)
    if job.deferrals >= policy.max_deferrals:
        return bury("deferred_too_often")
    if verdict.kind == "snoozed":
        return ask.Snooze, ask.Deferred(job.id, token, verdict.after or 0.0)
    wait = throttle_delay(verdict.after, job.deferrals, policy.backoff, uniform)
    return ask.Throttle, ask.Deferred(job.id, token, wait, failure)


def _after_death(job: Job, token: UUID, failure: str, policy: Policy, uniform: Uniform) -> Asked:
    if job.deaths + 1 >= DEATHS:
        return ask.Bury, ask.Given(job.id, token, "poison", failure)
    if job.attempt >= job.max_attempts:
        return ask.Bury, ask.Given(job.id, token, "exhausted", failure)
    wait = delay(job.attempt, policy.backoff, uniform)
    return ask.Retry, ask.Failed(job.id, token, wait, failure, death=True)
