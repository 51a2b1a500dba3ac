"""Jobs that kill what runs them: given up after two children, without taking their neighbours along."""

from __future__ import annotations

import json

from tenure import State
from tests.apps import killers
from tests.worker.ledger import until
from tests.worker.processes import Bench

APP = "tests.apps.killers:app"


def types(history: str | None) -> list[str]:
    return [failure["type"] for failure in json.loads(history or "[]")]


def test_once_the_worker_twice_its_child_then_poison(bench: Bench) -> None:
    bench.use(killers.app)
    killer = killers.kill.enqueue_sync("abort")
    assert bench.start(APP, children=1).ended() < 0
    behind = killers.innocent.enqueue_sync()
    survivor = bench.start(APP, children=1)

    dead = bench.await_state(killer.id, State.DEAD)
    assert (dead.reason, dead.claims) == ("poison", 3)
    assert types(dead.history) == ["LeaseExpired", "ChildDied", "ChildDied"]
    assert len({line.pid for line in bench.ledger.lines("killing", killer.id)}) == 3
    assert bench.await_state(behind.id).attempts == 1
    assert survivor.alive
    bench.ledger.wait(f"dead {killer.id} poison")


def test_one_killer_among_five_hundred_prefetched_jobs(bench: Bench) -> None:
    bench.use(killers.app)
    plugs = killers.wait_for_gate.enqueue_many_sync([{"name": "open"}] * 2)
    crowd = killers.innocent.enqueue_many_sync([{}] * 249)
    killer = killers.kill.enqueue_sync()
    crowd += killers.innocent.enqueue_many_sync([{}] * 248)
    victim = bench.start(APP, concurrency=2, prefetch=500)
    bench.ledger.wait("waiting", count=2)
    until(lambda: bench.count("jobs", "state = 'running'") == 500, "500 jobs claimed")
    bench.gate("open").open()
    assert victim.ended() < 0

    bench.start(APP, children=2, prefetch=500)
    dead = bench.await_state(killer.id, State.DEAD)
    assert dead.reason == "poison"
    until(lambda: bench.count("archive", "state = 'done'") == 499, "499 jobs done")
    assert bench.count("jobs") == 0
    assert bench.count("dead") == 1
    ended = {line.id for line in bench.ledger.lines("ended")}
    assert ended == {str(ticket.id) for ticket in [*plugs, *crowd]}


def test_an_innocent_job_whose_worker_is_killed_three_times_ends_done(bench: Bench) -> None:
    bench.use(killers.app)
    ticket = killers.unlucky.enqueue_sync()
    for claim in (1, 2, 3):
        worker = bench.start(APP, children=1)
        bench.ledger.wait("started", ticket.id, count=claim)
        worker.kill()
    bench.start(APP, children=1)

    done = bench.await_state(ticket.id)
    assert (done.claims, done.attempts) == (4, 4)
    assert types(done.history) == ["LeaseExpired"] * 3
