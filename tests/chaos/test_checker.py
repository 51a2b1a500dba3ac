"""The checker, with facts made by hand: each promise that is broken is counted, and what is allowed is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tenure.chaos.apps import TOGETHER
from tenure.chaos.check import SHOWN, WRONG, judged
from tenure.chaos.plan import LEASE
from tenure.chaos.repeats import SLACK, SWEEP
from tenure.chaos.told import Asked, Effect, Facts, Offer, Past, Row, Run, Struck


def done(id: str, ref: str | None = None, **more: object) -> Row:
    row = Row(id, ref or f"r{id}", "quick", "done", claims=1, attempts=1, max_attempts=10, given_back=0, result=1)
    return row._replace(**more)  # type: ignore[arg-type]


def run(
    id: str, claim: int = 1, *, at: float = 10.0, ended: float | None = 11.0, pid: int = 7, failed: bool = False
) -> Run:
    return Run(id, f"r{id}", claim, (pid, 1), at, ended, failed, attempt=claim)


def token(claim: int) -> str:
    return f"token {claim}"


def asked(id: str, claim: int, what: str) -> Asked:
    return Asked(id, claim, token(claim), what)


def facts(*rows: Row, runs: list[Run] | None = None, effects: list[Effect] | None = None) -> Facts:
    """Jobs that producers were promised, each run once unless it is said otherwise, and settled as their workers asked."""
    refs = {row.ref: {row.id} for row in rows}
    plain = [run(row.id) for row in rows if row.state == "done" and row.kind != "post"]
    posted = [Effect(row.id, row.ref, row.claims) for row in rows if row.kind == "post"]
    settled = {asked(row.id, row.claims, "complete") for row in rows if row.kind not in TOGETHER}
    return Facts(
        set(refs),
        refs,
        plain if runs is None else runs,
        list(rows),
        posted if effects is None else effects,
        [],
        settled,
    )


def wrong(found: Facts) -> dict[str, int]:
    """What the verdict holds against it."""
    verdict = judged(found)
    counts = {name: getattr(verdict, name) for name in WRONG if getattr(verdict, name)}
    assert verdict.valid == (not counts)
    assert verdict.evidence.keys() == counts.keys()
    return counts


def test_everything_done_once_is_valid() -> None:
    hopeless = done("3", kind="hopeless", state="dead", result=None)
    found = facts(done("1"), done("2", kind="post"), hopeless)
    assert wrong(found) == {}
    assert (judged(found).accepted, judged(found).executed, judged(found).recovered) == (3, 2, 0)


def test_nothing_promised_proves_nothing() -> None:
    assert not judged(Facts()).valid


def test_a_promised_job_that_is_nowhere_is_lost() -> None:
    found = facts(done("1"), done("2"))
    found.rows.pop()
    found.runs.pop()
    assert wrong(found) == {"lost": 1}


def test_a_job_that_is_called_done_and_was_never_run_is_lost() -> None:
    assert wrong(facts(done("1"), done("2"), runs=[run("1")])) == {"lost": 1}


def test_a_job_that_is_called_done_and_never_came_to_its_end_is_lost() -> None:
    assert wrong(facts(done("1"), runs=[run("1", ended=None)])) == {"lost": 1}
    assert wrong(facts(done("1"), runs=[run("1", failed=True)])) == {"lost": 1}
    assert wrong(facts(done("1", result=None), runs=[run("1")])) == {"lost": 1}


def test_a_job_that_nobody_cancelled_is_lost_where_it_is_called_cancelled() -> None:
    assert wrong(facts(done("1"), done("2", state="cancelled", result=None), runs=[run("1")])) == {"lost": 1}


def test_a_job_that_ran_and_is_nowhere_is_lost_though_nobody_was_promised_it() -> None:
    found = facts(done("1"), done("2"))
    del found.accepted["r2"]
    found.rows.pop()
    assert wrong(found) == {"lost": 1}


def test_a_job_that_is_called_done_without_its_effect_is_lost() -> None:
    found = facts(done("1", kind="post"), runs=[run("1")], effects=[])
    assert wrong(found) == {"lost": 1}


def test_a_job_that_nobody_asked_for_is_unexpected() -> None:
    found = facts(done("1"))
    found.runs.append(run("9"))
    found.rows.append(done("9"))
    found.asked.add(asked("9", 1, "complete"))
    assert wrong(found) == {"unexpected": 1}


def test_two_jobs_for_one_request_are_unexpected() -> None:
    found = facts(done("1"))
    found.rows.append(done("2", "r1"))
    found.asked.add(asked("2", 1, "complete"))
    assert wrong(found) == {"unexpected": 1}


def test_a_producer_that_was_told_two_ids_is_unexpected() -> None:
    found = facts(done("1"))
    found.accepted["r1"].add("2")
    assert wrong(found) == {"unexpected": 1}


def test_a_job_whose_producer_never_heard_is_recovered_and_no_fault() -> None:
    found = facts(done("1"), done("2"))
    del found.accepted["r2"]
    assert wrong(found) == {}
    assert judged(found).recovered == 1


def order(id: str, claims: int = 1, result: int = 2) -> Row:
    return done(id, kind="natural", order="r1", claims=claims, attempts=claims, result=result)


def of_one_order(*effects: Effect) -> Facts:
    """Two jobs with one natural key, the first of which has the effect; the other is done with its result."""
    found = facts(order("1", claims=2), order("2"))
    found.runs = [run("1", failed=True), run("1", 2, at=12, ended=13)]
    found.effects = list(effects)
    found.asked = {asked("2", 1, "complete")}
    return found


def test_two_jobs_with_one_natural_key_have_one_effect_and_one_result() -> None:
    assert wrong(of_one_order(Effect("1", "r1", 2))) == {}
    assert wrong(of_one_order(Effect("1", "r1", 2), Effect("2", "r1", 1))) == {"duplicate_effects": 1}
    found = of_one_order(Effect("1", "r1", 2))
    found.rows[1] = order("2", result=1)
    assert wrong(found) == {"lost": 1}, "a result of its own, and no effect"
    assert wrong(of_one_order()) == {"lost": 2, "stale_accepted": 1}, "nobody has the effect"


def test_whoever_finds_the_effect_of_its_natural_key_asks_for_its_completion() -> None:
    found = of_one_order(Effect("1", "r1", 2))
    found.asked = set()
    assert wrong(found) == {"stale_accepted": 1}


def test_an_effect_of_a_natural_key_by_an_older_claim_is_stale() -> None:
    found = of_one_order(Effect("1", "r1", 1))
    found.rows = [row._replace(result=1) for row in found.rows]
    assert wrong(found) == {"stale_accepted": 1}


def test_of_a_call_all_jobs_are_there_or_none() -> None:
    found = facts(done("1"), done("2"))
    found.attempted |= {"r3", "r4", "r5"}
    found.calls = {"r1": {"r1", "r2"}, "r3": {"r3", "r4"}, "r5": {"r5"}}
    assert wrong(found) == {}, "what nobody was promised need not be there"
    found.calls = {"r1": {"r1", "r2", "r3", "r4"}}
    assert wrong(found) == {"lost": 2}
    assert judged(found).evidence == {"lost": ["r3", "r4"]}


def test_two_effects_of_one_request_are_counted() -> None:
    twice = [Effect("1", "r1", 1), Effect("1", "r1", 1)]
    assert wrong(facts(done("1", kind="post"), effects=twice)) == {"duplicate_effects": 1}


def test_two_jobs_with_an_effect_each_for_one_request_are_counted() -> None:
    found = facts(done("1", kind="post"))
    found.effects.append(Effect("2", "r1", 1))
    found.rows.append(done("2", "r1", kind="post"))
    assert wrong(found)["duplicate_effects"] == 1


def test_a_result_of_an_older_claim_is_stale() -> None:
    row = done("1", claims=2, attempts=2, result=1)
    found = facts(row, runs=[run("1"), run("1", 2, at=12, ended=13)])
    found.faults.append(Struck("stop", 7, 10.5))
    assert wrong(found) == {"stale_accepted": 1}


def test_an_effect_of_an_older_claim_is_stale() -> None:
    row = done("1", kind="post", claims=2, attempts=2, result=1)
    assert wrong(facts(row, effects=[Effect("1", "r1", 1)])) == {"stale_accepted": 1}


def test_what_was_done_elsewhere_stays_done_by_whom_it_was() -> None:
    row = done("1", kind="elsewhere", claims=2, attempts=2, result=1)
    assert wrong(facts(row, runs=[run("1", failed=True), run("1", 2, at=12)], effects=[Effect("1", "r1", 1)])) == {}


@pytest.mark.parametrize("state", ["pending", "running"])
def test_a_job_that_is_left_is_stuck(state: str) -> None:
    assert wrong(facts(done("1"), done("2", state=state, result=None))) == {"stuck": 1}


def test_more_runs_than_attempts_are_over_attempted() -> None:
    row = done("1", claims=2, attempts=1, result=2)
    found = facts(row, runs=[run("1", failed=True), run("1", 2, at=12)])
    assert wrong(found) == {"over_attempted": 1}
    found.rows = [row._replace(given_back=1)]
    found.asked.add(asked("1", 1, "release"))
    assert wrong(found) == {}


def test_more_attempts_than_there_may_be_are_over_attempted() -> None:
    assert wrong(facts(done("1", attempts=11))) == {"over_attempted": 1}


def test_a_dead_letter_among_jobs_that_always_succeed_counts() -> None:
    assert wrong(facts(done("1", state="dead", result=None))) == {"dead_letters": 1}


def test_a_second_run_needs_a_fault_that_explains_it() -> None:
    row = done("1", claims=2, attempts=2, result=2)
    found = facts(row, runs=[run("1", ended=None), run("1", 2, at=20, pid=9)])
    assert wrong(found) == {"unexplained_runs": 1}
    for elsewhere in (
        Struck("kill", 8, 12.0),
        Struck("kill", 9, 12.0),
        Struck("kill", 7, 21.0),
        Struck("proxy", 0, 1.0, 1.5),
    ):
        found.faults = [elsewhere]
        assert wrong(found) == {"unexplained_runs": 1}, "somebody else's, or at another time"
    for its_own in (Struck("kill", 7, 12.0), Struck("kill", 1, 12.0), Struck("proxy", 0, 9.0, 1.5)):
        found.faults = [its_own]
        assert wrong(found) == {}
    found.faults = [Struck("proxy", 0, 9.0, 1.5)]
    assert judged(found).duplicate_runs == 1
    assert judged(found).recovery_ms == {"p50": None, "max": None}


def test_a_second_run_under_one_claim_is_explained_by_nothing() -> None:
    for first in (run("1"), run("1", failed=True), run("1", ended=None)):
        found = facts(done("1"), runs=[first, run("1", at=12, ended=13)])
        found.faults = [Struck("kill", 7, 10.5), Struck("restart", 0, 10.5, 1.0)]
        assert wrong(found) == {"unexplained_runs": 1}
        assert judged(found).duplicate_runs == 1
    found = facts(done("1"), runs=[run("1"), run("1", at=12, ended=13), run("1", at=12, ended=13, pid=8)])
    assert wrong(found) == {"unexplained_runs": 2}, "whoever they are by"


def test_a_run_that_a_fault_explains_does_not_hide_one_that_none_does() -> None:
    row = done("1", claims=2, attempts=2, result=2)
    later = [run("1", 2, at=20, ended=21, pid=9), run("1", 2, at=22, ended=23, pid=9)]
    found = facts(row, runs=[run("1", ended=None), *later])
    found.faults = [Struck("kill", 7, 12.0)]
    assert wrong(found) == {"unexplained_runs": 1}
    assert judged(found).duplicate_runs == 2


def test_a_failure_is_no_second_run() -> None:
    row = done("1", kind="flaky", claims=2, attempts=2, result=2)
    found = facts(row, runs=[run("1", failed=True), run("1", 2, at=12)])
    assert wrong(found) == {}
    assert judged(found).duplicate_runs == 0


def test_recovery_is_from_the_fault_to_the_next_run() -> None:
    row = done("1", claims=2, attempts=2, result=2)
    found = facts(row, runs=[run("1", ended=None), run("1", 2, at=20, pid=8)])
    found.faults = [Struck("kill", 7, 12.0), Struck("kill", 8, 30.0)]
    assert judged(found).recovery_ms == {"p50": 8000.0, "max": 8000.0}
    assert judged(found).faults == {"kill": 2}


def test_what_had_ended_before_the_fault_was_not_interrupted() -> None:
    row = done("1", claims=2, attempts=2, result=2)
    found = facts(row, runs=[run("1", ended=11.0, failed=True), run("1", 2, at=20, pid=8)])
    found.faults = [Struck("kill", 7, 12.0)]
    assert judged(found).recovery_ms["p50"] is None


def test_the_verdict_does_not_depend_on_the_order_of_facts() -> None:
    found = facts(done("1"), done("2", kind="post"), done("3", state="pending", result=None))
    turned = replace(found, runs=found.runs[::-1], rows=found.rows[::-1], effects=found.effects[::-1])
    assert judged(found) == judged(turned)


def again(row: Row, *more: Asked) -> Facts:
    """A job that was claimed again, as its worker was stopped; its last claim came to its end."""
    later = [run("1", claim, at=10.0 + 2 * claim, ended=11.0 + 2 * claim, pid=9) for claim in range(2, row.claims + 1)]
    found = facts(row, runs=[run("1"), *later])
    found.faults.append(Struck("stop", 7, 10.5, 3.0))
    found.asked.update(more)
    return found


EXPIRED = Past(1, "expired", None, 12.5)


def test_what_was_asked_for_and_not_taken_is_no_fault() -> None:
    row = done("1", claims=2, attempts=2, result=2, history=(EXPIRED,))
    for what in ("complete", "retry", "bury", "throttle", "snooze", "release"):
        assert wrong(again(row, asked("1", 1, what))) == {}, "whoever lost it may ask"


def test_a_failure_that_was_taken_from_an_older_claim_is_stale() -> None:
    row = done("1", claims=3, attempts=3, result=3, history=(EXPIRED, Past(2, "transient", None, 13.0)))
    assert wrong(again(row, asked("1", 1, "retry"))) == {"stale_accepted": 1}
    assert wrong(again(row, asked("1", 1, "retry"), asked("1", 2, "retry"))) == {}


def test_a_failure_whose_message_names_an_older_claim_is_stale() -> None:
    row = done("1", claims=3, attempts=3, result=3, history=(EXPIRED, Past(2, "transient", 1, 13.0)))
    assert wrong(again(row, asked("1", 1, "retry"), asked("1", 2, "retry"))) == {"stale_accepted": 1}


def test_a_failure_that_was_taken_after_the_lease_had_ended_is_stale() -> None:
    row = done("1", claims=2, attempts=2, result=2, history=(EXPIRED, Past(1, "transient", 1, 13.0)))
    assert wrong(again(row, asked("1", 1, "retry"))) == {"stale_accepted": 1}


@pytest.mark.parametrize("what", ["release", "snooze", "throttle"])
def test_a_return_that_was_taken_from_an_older_claim_is_stale(what: str) -> None:
    row = done("1", claims=3, attempts=2, result=3, given_back=1, history=(EXPIRED,))
    assert wrong(again(row, asked("1", 1, what))) == {"stale_accepted": 1}
    assert wrong(again(row, asked("1", 1, what), asked("1", 2, what))) == {}
    assert wrong(again(row, asked("1", 3, what))) == {"stale_accepted": 1}, "its last claim was completed"


def test_a_throttle_is_in_the_history_and_gives_back_all_the_same() -> None:
    throttled = Past(1, "throttled", None, 12.0)
    row = done("1", claims=2, attempts=1, result=2, given_back=1, history=(throttled,))
    assert wrong(again(row, asked("1", 1, "throttle"))) == {}


def test_a_dead_letter_that_another_claim_has_given_up_is_stale() -> None:
    told = Past(2, "permanent", None, 15.0)
    row = done("1", kind="hopeless", state="dead", claims=2, attempts=2, result=None, token=token(2), history=(told,))
    burials = [asked("1", 1, "bury"), asked("1", 2, "bury")]
    assert wrong(again(row, *burials)) == {}
    assert wrong(again(row._replace(token=token(1)), *burials)) == {"stale_accepted": 1}
    swept = row._replace(token=None, history=(Past(2, "expired", None, 15.0),))
    assert wrong(again(swept)) == {}


def test_what_was_done_elsewhere_is_completed_by_the_last_claim() -> None:
    row = done("1", kind="elsewhere", claims=2, attempts=2, result=1)
    found = facts(row, runs=[run("1", failed=True), run("1", 2, at=12)], effects=[Effect("1", "r1", 1)])
    found.asked = {asked("1", 1, "complete")}
    assert wrong(found) == {"stale_accepted": 1}


def test_a_run_beyond_the_limit_is_over_attempted_whatever_the_counters_say() -> None:
    found = facts(done("1"))
    found.runs[0] = found.runs[0]._replace(attempt=11)
    assert wrong(found) == {"over_attempted": 1}


def of_one_key(*runs: Run, key: str = "k", calls: dict[str, tuple[float, float | None]] | None = None) -> Facts:
    """Jobs with an ordering key, each done by its last claim; when they were asked for and promised, else all at once."""
    last = {one.id: one.claim for one in sorted(runs, key=lambda one: one.claim)}
    rows = [done(id, claims=claim, attempts=claim, result=claim) for id, claim in last.items()]
    found = facts(*rows, runs=list(runs))
    found.ordered = {row.ref: Offer(key, *(calls or {}).get(row.id, (1.0, 9.0))) for row in rows}
    return found


def test_jobs_of_one_key_that_had_their_turns_one_after_the_other_are_in_order() -> None:
    found = of_one_key(run("1"), run("2", at=11.0, ended=12.0), run("3", at=12.5, ended=13.0))
    assert wrong(found) == {}, "they were asked for at the same time, so any may be the first"
    assert judged(found).ordered == 3


def test_two_jobs_of_one_key_at_once_are_out_of_order() -> None:
    beside = run("1"), run("2", at=10.9, ended=12.0)
    found = of_one_key(*beside)
    assert wrong(found) == {"out_of_order": 1}
    assert judged(found).evidence == {"out_of_order": ["2"]}
    found.faults = [Struck("stop", 7, 10.5, 3.0), Struck("restart", 0, 10.5, 1.0)]
    assert wrong(found) == {"out_of_order": 1}, "their leases were valid, for their ends were taken"
    found.ordered["r2"] = Offer("another", 1.0, 9.0)
    assert wrong(found) == {}
    assert wrong(facts(done("1"), done("2"), runs=list(beside))) == {}, "without a key"
    within = of_one_key(run("1", ended=20.0), run("2", at=11.0, ended=12.0), run("3", at=13.0, ended=14.0))
    assert wrong(within) == {"out_of_order": 2}


def test_a_job_that_had_its_turn_before_one_that_was_promised_when_it_was_asked_for_is_out_of_order() -> None:
    turned = run("2"), run("1", at=12.0, ended=13.0)
    assert wrong(of_one_key(*turned, calls={"1": (1.0, 2.0), "2": (2.1, 3.0)})) == {"out_of_order": 1}
    assert wrong(of_one_key(*turned, calls={"1": (1.0, 2.0), "2": (1.9, 3.0)})) == {}, "they were asked for together"
    assert wrong(of_one_key(*turned, calls={"1": (1.0, None), "2": (2.1, 3.0)})) == {}, "nobody was promised the first"
    assert wrong(of_one_key(*turned, calls={"1": (1.0, 2.0), "2": (2.1, None)})) == {"out_of_order": 1}


def test_a_job_that_waits_for_its_next_attempt_keeps_its_turn() -> None:
    failed = run("1", ended=11.0, failed=True)
    found = of_one_key(failed, run("2", at=12.0, ended=13.0), run("1", 2, at=14.0, ended=15.0, pid=9))
    assert wrong(found) == {"out_of_order": 1}
    later = of_one_key(failed, run("1", 2, at=14.0, ended=15.0, pid=9), run("2", at=15.0, ended=16.0))
    assert wrong(later) == {}


def test_a_job_whose_worker_was_killed_keeps_its_turn_until_it_has_run_again() -> None:
    killed, again = run("1", ended=None), run("1", 2, at=14.0, ended=15.0, pid=9)
    found = of_one_key(killed, run("2", at=12.0, ended=13.0, pid=9), again)
    found.faults = [Struck("kill", 7, 11.0)]
    assert wrong(found) == {"out_of_order": 1}
    later = of_one_key(killed, again, run("2", at=15.0, ended=16.0, pid=9))
    later.faults = found.faults
    assert wrong(later) == {}


def test_a_worker_that_works_on_when_it_has_lost_the_lease_has_no_turn() -> None:
    zombie, again = run("1", ended=20.0), run("1", 2, at=13.0, ended=14.0, pid=9)
    found = of_one_key(zombie, again, run("2", at=15.0, ended=16.0, pid=9))
    found.faults = [Struck("stop", 7, 10.5, 3.5)]
    assert wrong(found) == {}


def test_a_dead_letter_has_had_its_turn_unless_it_was_put_back() -> None:
    died = Past(1, "permanent", 1, 11.0)
    found = of_one_key(run("1", failed=True), run("2", at=10.5, ended=12.0))
    dead = found.rows[0]._replace(kind="hopeless", state="dead", result=None, token=token(1), history=(died,))
    found.rows[0] = dead
    found.asked |= {asked("1", 1, "bury")}
    assert wrong(found) == {"out_of_order": 1}
    found.rows[0] = dead._replace(redrives=1)
    assert wrong(found) == {}


def test_what_was_refused_is_no_loss_and_must_not_be_there() -> None:
    found = facts(done("1"))
    found.attempted.add("r2")
    found.refused = {"r2"}
    assert wrong(found) == {}
    assert judged(found).refused == 1
    found.rows.append(done("2"))
    found.runs.append(run("2"))
    found.asked.add(asked("2", 1, "complete"))
    assert wrong(found) == {"unexpected": 1}
    found.accepted["r2"] = {"2"}
    assert wrong(found) == {}, "it was asked for again, and there was room"


def test_a_lease_that_ends_long_after_its_fault_is_late() -> None:
    limit = LEASE + SWEEP + SLACK
    for after, counts in ((limit - 0.1, {}), (limit + 0.1, {"late": 1})):
        swept = Past(1, "expired", None, 12.0 + after)
        row = done("1", claims=2, attempts=2, result=2, history=(swept,))
        found = facts(row, runs=[run("1", ended=None), run("1", 2, at=swept.at + 50, ended=swept.at + 51, pid=9)])
        found.faults = [Struck("kill", 7, 12.0)]
        assert wrong(found) == counts
        assert judged(found).swept_ms == {"p50": round(1000 * after, 1), "max": round(1000 * after, 1)}
        assert judged(found).waited_ms == {"p50": 50_000.0, "max": 50_000.0}


def test_what_was_done_to_all_meanwhile_is_no_delay() -> None:
    swept = Past(1, "expired", None, 12.0 + LEASE + SWEEP + SLACK + 5)
    row = done("1", claims=2, attempts=2, result=2, history=(swept,))
    found = facts(row, runs=[run("1", ended=None), run("1", 2, at=swept.at + 1, ended=swept.at + 2, pid=9)])
    kill = Struck("kill", 7, 12.0)
    found.faults = [kill, Struck("restart", 0, 13.0, 6.0)]
    assert wrong(found) == {}
    found.faults = [kill, Struck("restart", 0, 1.0, 6.0), Struck("isolate", 8, 13.0, 6.0)]
    assert wrong(found) == {"late": 1}, "before it, or to somebody else"


def test_what_is_wrong_is_named_and_not_without_end() -> None:
    row = done("00", state="pending", result=None)
    assert judged(facts(row, done("01"))).evidence == {"stuck": ["00"]}
    many = [done(f"{n:02}", state="pending", result=None) for n in range(SHOWN + 5)]
    verdict = judged(facts(*many))
    assert (verdict.stuck, len(verdict.evidence["stuck"])) == (SHOWN + 5, SHOWN)
