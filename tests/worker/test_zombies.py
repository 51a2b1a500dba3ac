"""A worker that is stopped for longer than its lease and then goes on: its successor's outcome stands."""

from __future__ import annotations

from tenure.worker import Exit
from tests.apps import basic, effects
from tests.worker.processes import Bench

BASIC = "tests.apps.basic:app"
EFFECTS = "tests.apps.effects:app"


def test_the_zombies_handler_is_cancelled_and_its_outcome_dropped(bench: Bench) -> None:
    bench.use(basic.app)
    ticket = basic.nap.enqueue_sync(60.0, later=0.0)
    zombie = bench.start(BASIC)
    bench.ledger.wait("started", ticket.id)
    zombie.stop()
    bench.start(BASIC)
    done = bench.await_state(ticket.id)
    zombie.go_on()

    bench.ledger.wait("lost", ticket.id)
    zombie.terminate()
    assert zombie.ended() == Exit.OK
    assert (zombie.counts["stale"], zombie.counts["settled"]) == (1, 0)
    assert bench.record(ticket.id) == done
    assert done.claims == 2


def test_the_zombies_settlement_matches_nothing(bench: Bench) -> None:
    bench.use(basic.app)
    ticket = basic.nap.enqueue_sync(0.0)
    zombie = bench.start(BASIC, faults="settle.before=stop")
    zombie.await_stop()
    successor = bench.start(BASIC)
    done = bench.await_state(ticket.id)
    zombie.go_on()

    zombie.terminate()
    assert zombie.ended() == Exit.OK
    assert (zombie.counts["done"], zombie.counts["stale"], zombie.counts["settled"]) == (1, 1, 0)
    assert bench.record(ticket.id) == done
    assert done.worker == successor.name


def test_the_zombies_heartbeat_matches_nothing(bench: Bench) -> None:
    """Its successor holds the job when the late heartbeat arrives."""
    bench.use(basic.app)
    ticket = basic.nap.enqueue_sync(60.0, later=60.0)
    zombie = bench.start(BASIC, faults="heartbeat.before=stop")
    zombie.await_stop()
    successor = bench.start(BASIC, children=1)
    bench.ledger.wait("started", ticket.id, count=2)
    zombie.go_on()

    bench.ledger.wait("lost", ticket.id)
    zombie.terminate()
    assert zombie.ended() == Exit.OK
    assert bench.ask("select w.name from tenure.jobs j join tenure.workers w on w.id = j.worker") == [(successor.name,)]
    successor.kill()


def test_a_call_that_keeps_the_interpreter_to_itself_makes_a_zombie(bench: Bench) -> None:
    """Not even the heartbeats can beat; what it did afterwards is fenced off."""
    bench.use(basic.app)
    ticket = basic.seize.enqueue_sync(4.0)
    zombie = bench.start(BASIC)
    bench.ledger.wait("started", ticket.id)
    successor = bench.start(BASIC)
    done = bench.await_state(ticket.id)
    assert (done.claims, done.worker) == (2, successor.name)

    bench.ledger.wait("ended", ticket.id, count=2)
    zombie.terminate()
    assert zombie.ended() == Exit.OK
    assert (zombie.counts["stale"], zombie.counts["settled"]) == (1, 0)
    assert bench.record(ticket.id) == done


def test_the_zombies_effect_is_rolled_back(bench: Bench) -> None:
    """It stopped inside its transaction; the server ends that, and the successor waits no longer than two leases."""
    bench.use(effects.app)
    bench.ask(effects.TABLE)
    ticket = effects.write_and_hold.enqueue_sync("row")
    zombie = bench.start(EFFECTS)
    bench.ledger.wait("written", ticket.id)
    zombie.stop()
    [[stopped]] = bench.ask("select clock_timestamp()")
    bench.start(EFFECTS)
    done = bench.await_state(ticket.id)
    zombie.go_on()

    bench.ledger.wait("lost", ticket.id)
    zombie.terminate()
    assert zombie.ended() == Exit.OK
    assert bench.ask("select what, claim from written") == [("row", 2)]
    assert done.result == "2"
    assert done.ended_at is not None
    assert (
        done.ended_at - stopped
    ).total_seconds() < 2 * 1.0 + 30.0  # two leases, and a child's start on a busy machine
