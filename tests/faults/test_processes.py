"""Processes that die, stop, run out of memory or are taken for each other."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tenure import Record, State
from tenure.store.protocol import Upkeep
from tenure.worker import Exit
from tests.apps import basic, hungry, killers
from tests.worker.ledger import until
from tests.worker.processes import Bench

BASIC = "tests.apps.basic:app"
NAMESAKES = "tests.apps.namesake:app"


def failures(job: Record) -> list[tuple[str, str | None]]:
    """The types of a job's failures, and in which worker."""
    return [(failure["type"], failure.get("worker")) for failure in json.loads(job.history or "[]")]


def test_one_that_aborts_among_five_hundred_takes_nobody_along_and_is_buried_as_poison(bench: Bench) -> None:
    """Its worker takes jobs along that it had claimed ahead, and is started again by the supervisor."""
    bench.use(killers.app)
    crowd = killers.innocent.enqueue_many_sync([{}] * 250)
    killer = killers.kill.enqueue_sync("abort")
    crowd += killers.innocent.enqueue_many_sync([{}] * 249)
    supervisor = bench.start("tests.apps.killers:app", processes=2, concurrency=2, prefetch=500, children=2)

    dead = bench.await_state(killer.id, State.DEAD)
    assert (dead.reason, [type for type, _ in failures(dead)]) == ("poison", ["LeaseExpired", "ChildDied", "ChildDied"])
    until(lambda: bench.count("archive", "state = 'done'") == 499, "499 jobs done")
    assert bench.count("archive", "claims > 1") > 0, "nobody was claimed ahead beside the killer"
    assert {line.id for line in bench.ledger.lines("ended")} == {str(ticket.id) for ticket in crowd}
    assert (bench.count("jobs"), bench.count("dead")) == (0, 1)

    assert supervisor.log.count("a worker process ended with -6; another one starts in 0.5 s") == 1
    supervisor.terminate()
    assert supervisor.ended() == Exit.OK


def test_workers_that_keep_dying_are_started_again_after_longer_and_longer_pauses(bench: Bench) -> None:
    supervisor = bench.start("tests.apps.dies_young:app", processes=2)

    def pauses() -> list[float]:
        return [float(seconds) for seconds in re.findall(r"another one starts in ([\d.]+) s", supervisor.log)]

    until(lambda: pauses().count(2.0) == 2, "the third death of both")
    assert sorted(pause for pause in pauses() if pause <= 2.0) == [0.5, 0.5, 1.0, 1.0, 2.0, 2.0]
    supervisor.terminate()
    assert supervisor.ended() in (Exit.OK, 9)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is kept on Linux")
def test_what_meets_the_memory_limit_fails_alone(bench: Bench) -> None:
    bench.use(hungry.app)
    hungry_ones = [kind.enqueue_sync() for kind in (hungry.eat, hungry.eat_in_thread, hungry.eat_in_child)]
    modest = hungry.modest.enqueue_many_sync([{}] * 100)
    worker = bench.start("tests.apps.hungry:app", children=1)

    for ticket in hungry_ones:
        dead = bench.await_state(ticket.id, State.DEAD)
        assert (dead.reason, [type for type, _ in failures(dead)]) == ("exhausted", ["MemoryError"] * 2)
    until(lambda: bench.count("archive", "state = 'done' and claims = 1") == len(modest), "all others done")
    assert not bench.ledger.lines("fed")
    assert {line.pid for line in bench.ledger.lines("ended")} == {worker.pid}
    assert worker.alive


def test_a_sweeper_that_has_stopped_is_not_missed_and_finds_nothing_when_it_goes_on(bench: Bench) -> None:
    bench.use(basic.app)
    ticket = basic.hold.enqueue_sync()
    victim = bench.start(BASIC)
    bench.ledger.wait("started", ticket.id)
    stopped = bench.start(BASIC, faults="sweep.before=stop")
    stopped.await_stop()
    other = bench.start(BASIC, children=1)
    victim.kill()
    done = bench.await_state(ticket.id)
    assert (done.claims, failures(done)) == (2, [("LeaseExpired", victim.name)])
    other.terminate()
    assert other.ended() == Exit.OK
    assert other.counts["swept"] == 1

    stopped.go_on()
    bench.await_state(basic.nap.enqueue_sync(0.0).id)
    stopped.terminate()
    assert stopped.ended() == Exit.OK
    assert stopped.counts["swept"] == 0
    assert bench.record(ticket.id) == done


def test_a_job_whose_workers_row_was_pruned_comes_back_by_its_own_lease(bench: Bench) -> None:
    bench.use(basic.app)
    ticket = basic.hold.enqueue_sync()
    victim = bench.start(BASIC)
    bench.ledger.wait("started", ticket.id)
    victim.stop()  # it does not say that it is there
    bench.ask("update tenure.workers set seen_at = seen_at - interval '8 days'")
    bench.store.run(Upkeep())
    assert bench.count("workers") == 0
    victim.kill()

    bench.start(BASIC, children=1)
    done = bench.await_state(ticket.id)
    assert (done.claims, failures(done)) == (2, [("LeaseExpired", None)])


def test_workers_of_one_name_are_told_apart(bench: Bench) -> None:
    """The one that goes takes nothing of the other one's along; the one that comes inherits nothing of the dead one's."""
    bench.use(basic.app)
    kept = basic.nap.enqueue_sync(3.0)
    first = bench.start(NAMESAKES)
    bench.ledger.wait("started", kept.id)
    second = bench.start(NAMESAKES)
    until(lambda: bench.ask("select count(*), count(distinct name) from tenure.workers") == [(2, 1)], "two of one name")
    second.terminate()
    assert second.ended() == Exit.OK
    assert bench.await_state(kept.id).claims == 1

    lost = basic.hold.enqueue_sync()
    bench.ledger.wait("started", lost.id)
    first.kill()
    held = bench.await_state(lost.id, State.RUNNING)
    bench.start(NAMESAKES, children=1)
    done = bench.await_state(lost.id)
    assert done.claims == 2
    assert done.claimed_at is not None
    assert held.lease_until is not None
    assert done.claimed_at >= held.lease_until
