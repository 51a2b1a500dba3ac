"""A lease is kept as long as its worker lives, and is given up in time by a worker that cannot keep it."""

from __future__ import annotations

import time
from datetime import timedelta

from tenure import State
from tenure.chaos.proxy import Connection, Proxy
from tenure.store.protocol import RegisterKinds, SetKind
from tests.apps import basic
from tests.worker.ledger import until
from tests.worker.processes import Bench

APP = "tests.apps.basic:app"


def heartbeat_of(proxy: Proxy) -> Connection:
    """The connection on which leases are extended."""
    found = until(lambda: [one for one in proxy.connections() if one.carries(b"-- extend")], "a heartbeat")
    assert len(found) == 1
    return found[0]


def test_a_job_of_three_times_its_lease_is_never_redelivered(bench: Bench) -> None:
    """Although a heartbeat fails, for a reason nobody thought of."""
    bench.use(basic.app)
    ticket = basic.nap.enqueue_sync(6.0)
    for _ in range(2):
        bench.start(APP, faults="heartbeat.before=raise@2")
    done = bench.await_state(ticket.id)
    assert (done.claims, done.history) == (1, None)
    assert [line.event for line in bench.ledger.lines(id=ticket.id)] == ["started", "ended"]


def test_a_stopped_worker_loses_its_job_once_after_one_lease(bench: Bench) -> None:
    bench.use(basic.app)
    ticket = basic.hold.enqueue_sync()
    victim = bench.start(APP)
    bench.ledger.wait("started", ticket.id)
    bench.start(APP)
    victim.stop()
    stopped = bench.ask("select clock_timestamp()")[0][0]

    done = bench.await_state(ticket.id)
    assert done.claims == 2
    assert done.claimed_at is not None
    lease = timedelta(seconds=2)
    assert stopped < done.claimed_at <= stopped + lease + timedelta(seconds=5)


def test_a_worker_whose_heartbeats_do_not_get_through_gives_up_before_its_lease_ends(bench: Bench) -> None:
    bench.use(basic.app)
    ticket = basic.nap.enqueue_sync(60.0, later=0.0)
    with Proxy(bench.dsn) as proxy:
        victim = bench.start(APP, dsn=proxy.dsn())
        bench.ledger.wait("started", ticket.id)
        heartbeat_of(proxy).black_hole()
        for n in range(1, 100):
            proxy.cut_before(lambda statement: b"-- extend" in statement, nth=n)
        given_up = bench.ledger.wait("lost", ticket.id)
        victim.terminate()

        record = bench.await_state(ticket.id, State.RUNNING)
        assert record.claims == 1, "it was redelivered before we could look"
        database, here = bench.ask("select clock_timestamp()")[0][0], time.monotonic()
        assert record.lease_until is not None
        assert database - timedelta(seconds=here - given_up.t) < record.lease_until
        assert victim.ended() == 0

    bench.start(APP)
    done = bench.await_state(ticket.id)
    assert done.claims == 2
    assert len(bench.ledger.lines("ended", ticket.id)) == 1


def test_heartbeats_come_back_on_a_new_connection(bench: Bench) -> None:
    bench.use(basic.app)
    with Proxy(bench.dsn) as proxy:
        bench.start(APP, dsn=proxy.dsn())
        first = basic.nap.enqueue_sync(60.0)
        bench.ledger.wait("started", first.id)
        heartbeat_of(proxy).black_hole()
        second = basic.nap.enqueue_sync(4.0)
        done = bench.await_state(second.id)
    assert done.claims == 1


def test_the_operators_lease_applies(bench: Bench) -> None:
    bench.use(basic.app)
    bench.store.run(RegisterKinds(basic.app.rows()))
    assert bench.store.run(SetKind("nap", {"lease": 600}))
    ticket = basic.nap.enqueue_sync(3600.0)
    bench.start(APP)
    bench.ledger.wait("started", ticket.id)

    record = bench.await_state(ticket.id, State.RUNNING)
    assert record.claimed_at is not None
    assert record.lease_until is not None
    assert abs(record.lease_until - record.claimed_at - timedelta(seconds=600)) < timedelta(seconds=60)
