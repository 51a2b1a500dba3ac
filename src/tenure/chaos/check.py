"""The checker: from what processes have said and what the database holds in the end, whether the promise was kept.

Pure: ``judged`` takes facts and answers a verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tenure.chaos.apps import ALWAYS, EFFECTS
from tenure.chaos.repeats import Figures, by_job, interruptions, late, recovery, repeats, swept, waited
from tenure.chaos.stale import stale
from tenure.chaos.told import Effect, Facts, Row
from tenure.chaos.turns import out_of_order, turns

SHOWN = 20
"""Ids that are named of each kind of wrong."""

WRONG = (
    "lost",
    "unexpected",
    "unexplained_runs",
    "duplicate_effects",
    "stale_accepted",
    "stuck",
    "over_attempted",
    "dead_letters",
    "out_of_order",
    "late",
)
"""What there must be none of."""


@dataclass(frozen=True)
class Verdict:
    """What came out.

    Args:
        accepted: jobs that producers were promised.
        executed: jobs that were run, or have left an effect.
        lost: promised, or run, and neither done, with evidence outside the queue's own records, nor given up for a reason;
            or not there though others of the same call are.
        unexpected: run without anybody having asked for them, or two jobs for one request; or stored although their queue
            had no room for them.
        refused: jobs for which a bounded queue had no room; nobody was promised them.
        ordered: jobs with an ordering key of which it is known when they had their turn.
        recovered: run although their producer never heard that they were accepted.
        duplicate_runs: runs beyond the first; failures are not counted, unless it ran again under the same claim.
        unexplained_runs: those of them that no fault to an earlier run's process, or to all, explains: of two under one
            claim always one.
        duplicate_effects: effects beyond the first of a request, or of a natural key.
        stale_accepted: jobs of which an end was taken that the worker of that claim had not asked for.
        stuck: jobs that are neither done nor ended when all was healed and drained.
        over_attempted: jobs that ran more often than their attempts say, or than they may.
        dead_letters: jobs given up that always succeed.
        out_of_order: jobs that had their turn while another one of their ordering key had its own, or before one that had
            been promised when they were asked for.
        late: jobs that a fault interrupted and that were not pending again within a lease, a sweep and the slack.
        faults: how many of each kind.
        recovery_ms: from a fault to the next run of a job that it interrupted: median and longest.
        swept_ms: the part of it until the job was pending again.
        waited_ms: the part of it from then on.
        evidence: for each kind of wrong that there is, ids of jobs, ``SHOWN`` at the most.
    """

    accepted: int
    executed: int
    lost: int
    unexpected: int
    refused: int
    ordered: int
    recovered: int
    duplicate_runs: int
    unexplained_runs: int
    duplicate_effects: int
    stale_accepted: int
    stuck: int
    over_attempted: int
    dead_letters: int
    out_of_order: int
    late: int
    faults: dict[str, int]
    recovery_ms: Figures
    swept_ms: Figures
    waited_ms: Figures
    evidence: dict[str, list[str]]

    @property
    def valid(self) -> bool:
        """The promise was kept, and something was promised."""
        return self.accepted > 0 and not any(getattr(self, name) for name in WRONG)


def judged(facts: Facts) -> Verdict:
    """Hold what happened against what was promised."""
    executed = {run.ref for run in facts.runs} | {effect.ref for effect in facts.effects}
    again = list(repeats(facts))
    interrupted = list(interruptions(facts))
    turns_taken = list(turns(facts))
    found = {
        "lost": _lost(facts),
        "unexpected": _unexpected(facts),
        "unexplained_runs": [one.id for one in again for _ in range(one.unexplained)],
        "duplicate_effects": list(_repeated(facts.effects)),
        "stale_accepted": stale(facts),
        "stuck": [row.id for row in facts.rows if row.state in ("pending", "running")],
        "over_attempted": _over_attempted(facts),
        "dead_letters": [row.id for row in facts.rows if row.state == "dead" and row.kind in ALWAYS],
        "out_of_order": out_of_order(turns_taken),
        "late": late(facts, interrupted),
    }
    return Verdict(
        accepted=len(facts.accepted),
        executed=len(executed),
        lost=len(found["lost"]),
        unexpected=len(found["unexpected"]),
        refused=len(facts.refused - facts.accepted.keys()),
        ordered=len(turns_taken),
        recovered=len(executed - facts.accepted.keys()),
        duplicate_runs=sum(one.times for one in again),
        unexplained_runs=len(found["unexplained_runs"]),
        duplicate_effects=len(found["duplicate_effects"]),
        stale_accepted=len(found["stale_accepted"]),
        stuck=len(found["stuck"]),
        over_attempted=len(found["over_attempted"]),
        dead_letters=len(found["dead_letters"]),
        out_of_order=len(found["out_of_order"]),
        late=len(found["late"]),
        faults=dict(sorted(Counter(fault.kind for fault in facts.faults).items())),
        recovery_ms=recovery(interrupted),
        swept_ms=swept(interrupted),
        waited_ms=waited(interrupted),
        evidence={name: sorted(set(ids))[:SHOWN] for name, ids in found.items() if ids},
    )


def _lost(facts: Facts) -> list[str]:
    """Jobs that were promised and are not where they should be; and others that ran and are nowhere."""
    ended = {(run.id, run.claim) for run in facts.runs if run.ended is not None and not run.failed}
    left = {(named, effect.claim) for effect in facts.effects for named in (effect.id, effect.ref)}
    rows = {row.id: row for row in facts.rows}
    missing = [min(ids) for ids in facts.accepted.values() if not any(_kept(rows.get(id), ended, left) for id in ids)]
    promised = set().union(*facts.accepted.values())
    there = {run.id for run in facts.runs} | {effect.id for effect in facts.effects}
    return missing + sorted(there - rows.keys() - promised) + _torn(facts)


def _torn(facts: Facts) -> list[str]:
    """Of calls that were committed in part, what is missing and nobody was promised; by name, for it has no id."""
    there = {row.ref for row in facts.rows}
    torn = [refs - there for refs in facts.calls.values() if refs & there]
    return sorted(set().union(*torn) - facts.accepted.keys())


def _kept(row: Row | None, ended: set[tuple[str, int]], left: set[tuple[str, int]]) -> bool:
    """Whether a promised job is where it should be: done with evidence of the claim its result names, or not ended yet.

    Dead letters are counted by themselves; nobody cancels here.
    """
    match None if row is None else row.state:
        case None | "cancelled":
            return False
        case "done":
            return row is not None and (
                (row.order or row.id, row.result) in left if row.kind in EFFECTS else (row.id, row.result) in ended
            )
        case _:
            return True


def _unexpected(facts: Facts) -> list[str]:
    """Jobs that nobody asked for, one for each name; that were refused; and those beyond the first for one request."""
    unasked = {told.ref: told.id for told in sorted(_told(facts)) if told.ref not in facts.attempted}
    ids: dict[str, set[str]] = defaultdict(set)
    for row in facts.rows:
        ids[row.ref].add(row.id)
    for ref, promised in facts.accepted.items():
        ids[ref] |= promised
    uninvited = [row.id for row in facts.rows if row.ref in facts.refused and row.ref not in facts.accepted]
    return [*unasked.values(), *uninvited, *(id for there in ids.values() for id in sorted(there)[1:])]


def _told(facts: Facts) -> Iterator[Effect]:
    """What each run and each effect says whose it was."""
    yield from facts.effects
    for run in facts.runs:
        yield Effect(run.id, run.ref, run.claim)


def _repeated(effects: Iterable[Effect]) -> Iterator[str]:
    """For each effect beyond the first of a request, its job."""
    there: set[str] = set()
    for effect in sorted(effects):
        if effect.ref in there:
            yield effect.id
        there.add(effect.ref)


def _over_attempted(facts: Facts) -> list[str]:
    claims = {runs[0].id: len({run.claim for run in runs}) for runs in by_job(facts)}
    latest = {runs[0].id: max(run.attempt for run in runs) for runs in by_job(facts)}
    return [
        row.id
        for row in facts.rows
        if max(row.attempts, latest.get(row.id, 0)) > row.max_attempts
        or (not row.redrives and claims.get(row.id, 0) - row.given_back > row.attempts)
    ]
