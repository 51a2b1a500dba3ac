"""What is known of a run: what processes have told their ledgers, and what the database holds in the end. Values alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Run(NamedTuple):
    """One run of a job, as its handler told it; there may be several of one claim, though there should not be.

    Args:
        id, ref: of the job.
        claim: which it was.
        pids: of the process, and of its parent: a worker's child runs in its worker's name.
        at: when it began, on the steady clock.
        ended: when it came to its end, or failed; None if it never did.
        failed: it raised, as it was to.
        attempt: which it was.
        stopped: when its worker stopped it.
    """

    id: str
    ref: str
    claim: int
    pids: tuple[int, int]
    at: float
    ended: float | None = None
    failed: bool = False
    attempt: int = 1
    stopped: float | None = None


class Asked(NamedTuple):
    """What a worker asked the queue to do with a job that it held.

    Args:
        claim, token: which lease it was under.
        what: ``complete``, ``retry``, ``bury``, ``throttle``, ``snooze`` or ``release``.
    """

    id: str
    claim: int
    token: str
    what: str


class Past(NamedTuple):
    """How a claim ended, as the job's history has it.

    Args:
        claim: which.
        kind: of failure; ``expired`` is the sweep's.
        said: the claim that the error's own message names, if it names one.
        at: when, on the steady clock.
    """

    claim: int
    kind: str
    said: int | None
    at: float


class Offer(NamedTuple):
    """A job with an ordering key, as its producer tells it.

    Args:
        key: the ordering key.
        called: when the call was made, or made first; on the steady clock.
        answered: when the producer was promised the job; None if it never was.
    """

    key: str
    called: float
    answered: float | None = None


class Row(NamedTuple):
    """A job as the database has it in the end.

    Args:
        given_back: attempts that were returned: releases and deferrals.
        redrives: how often it was put back after it was dead, with all attempts before it.
        result: the claim that its result names.
        token: of the settlement that ended it.
        order: its natural key: jobs with the same one have one effect and one result; None if it has none.
        history: its last failures.
    """

    id: str
    ref: str
    kind: str
    state: str
    claims: int
    attempts: int
    max_attempts: int
    given_back: int
    redrives: int = 0
    result: int | None = None
    token: str | None = None
    order: str | None = None
    history: tuple[Past, ...] = ()


class Effect(NamedTuple):
    """A row that an effect has written; ``ref`` is the job's, or its natural key."""

    id: str
    ref: str
    claim: int


class Struck(NamedTuple):
    """A fault that happened.

    Args:
        pid: of the process it was done to; 0 where it was done to all, or to some and nobody knows to which.
        at: when, on the steady clock.
        seconds: how long it lasted.
    """

    kind: str
    pid: int
    at: float
    seconds: float = 0.0


@dataclass
class Facts:
    """All that is known.

    Args:
        attempted: names of the jobs that producers have tried to enqueue.
        accepted: for each name that they were promised, the ids.
        calls: the names of jobs that were to be accepted together or not at all, by the first of them.
        ordered: jobs with an ordering key, by name.
        refused: names of jobs for which a queue had no room, so that they may not be there.
        runs, asked, rows, effects, faults: what happened.
    """

    attempted: set[str] = field(default_factory=set)
    accepted: dict[str, set[str]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    faults: list[Struck] = field(default_factory=list)
    asked: set[Asked] = field(default_factory=set)
    calls: dict[str, set[str]] = field(default_factory=dict)
    ordered: dict[str, Offer] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
