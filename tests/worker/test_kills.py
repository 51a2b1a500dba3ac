"""A worker that is killed: its jobs run again elsewhere, soon after their leases end and never before."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from tenure import State, Ticket
from tests.apps import basic, mixed
from tests.worker.ledger import until
from tests.worker.processes import Bench

APP = "tests.apps.basic:app"
MIXED = "tests.apps.mixed:app"
KILLS = 20


def rescuer(bench: Bench, children: int = 2) -> None:
    """A worker whose only slot is taken: it takes no fresh job, but rescues what others lose, in warm children."""
    bench.use(basic.app)
    basic.plug.enqueue_sync("never")
    warm = [basic.warm.enqueue_sync() for _ in range(children)]
    bench.start(APP, concurrency=1, children=children, prefetch=0)
    bench.ledger.wait("started")
    for ticket in warm:
        bench.await_state(ticket.id)


def test_twenty_kills(bench: Bench, record_property: Callable[[str, object], None]) -> None:
    rescuer(bench)
    victims = [bench.start(APP, concurrency=1, prefetch=0) for _ in range(KILLS)]
    until(lambda: bench.count("workers") == KILLS + 1, "all victims at work")
    tickets = basic.hold.enqueue_many_sync([{}] * KILLS)
    started = {bench.ledger.wait("started", ticket.id).pid: ticket.id for ticket in tickets}
    assert set(started) == {victim.pid for victim in victims}

    ended = {}
    for victim in victims:
        victim.kill()
        id = started[victim.pid]
        record = bench.record(id)
        assert record is not None
        ended[id] = record.lease_until
    waits = []
    for id, lease_until in ended.items():
        done = bench.await_state(id)
        assert (done.claims, done.attempts) == (2, 2)
        assert done.claimed_at is not None
        assert lease_until is not None
        waits.append((done.claimed_at - lease_until).total_seconds())

    median, longest = statistics.median(waits), max(waits)
    record_property("redelivery_median_seconds", median)
    record_property("redelivery_longest_seconds", longest)
    print(f"redelivered {KILLS} jobs: median {1000 * median:.0f} ms, longest {1000 * longest:.0f} ms after the lease")
    assert min(waits) >= 0, "redelivered before its lease had ended"
    assert median <= 0.25
    assert longest <= 2.0


def test_killed_between_claim_and_handler(bench: Bench) -> None:
    bench.use(basic.app)
    victim = bench.start(APP, faults="claim.after_commit=kill")
    innocent, only_once = basic.hold.enqueue_sync(), basic.once.enqueue_sync()
    assert victim.ended() < 0
    bench.start(APP, burst=True)

    dead = bench.await_state(only_once.id, State.DEAD)
    assert (dead.reason, dead.attempts, dead.claims) == ("exhausted", 1, 1)
    done = bench.await_state(innocent.id)
    assert (done.attempts, done.claims) == (2, 2)
    assert not bench.ledger.lines("ended", only_once.id)


def test_killed_at_every_other_point(bench: Bench) -> None:
    """One victim after the other, each with fresh work; what they leave behind ends as it should."""
    bench.use(mixed.app)
    faults = [f"{point}=kill" for point in ("heartbeat.before", "settle.before", "settle.after")]
    faults += ["retry.before=kill", "bury.before=kill", "sweep.before=kill@3"]
    good: list[Ticket] = []
    flaky: list[Ticket] = []
    bad: list[Ticket] = []
    for fault in faults:
        good += mixed.good.enqueue_many_sync([{}] * 10)
        flaky += mixed.flaky.enqueue_many_sync([{}] * 10)
        bad += mixed.bad.enqueue_many_sync([{}] * 10)
        assert bench.start(MIXED, faults=fault, concurrency=30).ended() < 0, fault

    bench.start(MIXED, children=2)
    until(lambda: bench.count("jobs") == 0, "the end of all jobs")
    ended = {ticket.id: bench.record(ticket.id) for ticket in [*good, *flaky, *bad]}
    assert all(ended.values())
    assert {record.state for ticket in [*good, *flaky] if (record := ended[ticket.id])} == {State.DONE}
    assert {record.reason for ticket in bad if (record := ended[ticket.id])} == {"permanent"}
    assert all(record.attempts <= record.max_attempts for record in ended.values() if record)
