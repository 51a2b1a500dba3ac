"""Workers that are killed anywhere inside an effect: after the redelivery there is exactly one."""

from __future__ import annotations

import pytest

from tenure import State
from tests.apps import effect_forms, effects
from tests.worker.processes import Bench

APP = "tests.apps.effects:app"
POINTS = [
    "effect.before_dedup",
    "effect.after_dedup",
    "effect.before_complete",
    "effect.before_commit",
    "effect.after_commit",
]


def test_exactly_one_effect_wherever_the_worker_is_killed(bench: Bench) -> None:
    bench.use(effects.app)
    bench.ask(effects.TABLE)
    names = [f"job {n}" for n in range(len(POINTS))]
    tickets, queues = bench.killed_at(
        APP, POINTS, lambda n, queue: effects.write.enqueue_sync(names[n], key=names[n], queue=queue)
    )
    survivor = bench.start(APP, queues=queues, burst=True, children=1)
    assert survivor.ended() == 0

    written = dict(bench.ask("select what, claim from written"))
    assert bench.ask("select count(*) from written") == [(len(names),)]
    assert sorted(written) == names
    assert sorted(written.values()) == [1, 2, 2, 2, 2], "the killed one that had committed is not repeated"
    assert bench.count("dedup") == len(POINTS)
    for name, ticket in zip(names, tickets, strict=True):
        done = bench.record(ticket.id)
        assert done is not None
        assert (done.state, done.result) == (State.DONE, str(written[name]))


def test_exactly_one_effect_each_wherever_the_worker_of_a_group_is_killed(bench: Bench) -> None:
    bench.use(effects.app)
    bench.ask(effects.TABLE)
    points = [*POINTS[:2], "effect.between", *POINTS[2:]]
    queues = [f"q{n}" for n in range(len(points))]
    tickets = {
        f"{queue} {n}": effects.write_in_group.enqueue_sync(f"{queue} {n}", queue=queue)
        for queue in queues
        for n in range(3)
    }
    victims = {
        point: bench.start(
            APP, queues=queue, faults=f"{point}=kill@2" if point == "effect.between" else f"{point}=kill"
        )
        for queue, point in zip(queues, points, strict=True)
    }
    for point, victim in victims.items():
        assert victim.ended() < 0, point
    assert bench.start(APP, queues=",".join(queues), burst=True, children=1).ended() == 0

    written = bench.ask("select what, claim from written")
    assert sorted(what for what, _ in written) == sorted(tickets)
    assert {claim for what, claim in written if not what.startswith(queues[-1])} == {2}
    assert {claim for what, claim in written if what.startswith(queues[-1])} == {1}, "committed before the kill"
    for name, ticket in tickets.items():
        done = bench.record(ticket.id)
        assert done is not None
        assert (done.state, done.result) == (State.DONE, str(dict(written)[name]))


@pytest.mark.parametrize("form", ["thread", "session", "async_session"])
def test_exactly_one_effect_wherever_the_worker_is_killed_in_a_thread_and_under_sqlalchemy(
    bench: Bench, form: str
) -> None:
    bench.use(effect_forms.app)
    bench.ask(effect_forms.TABLE)
    app = "tests.apps.effect_forms:app"
    names = [f"job {n}" for n in range(len(POINTS))]
    kind = effect_forms.HERE[form]
    tickets, queues = bench.killed_at(
        app, POINTS, lambda n, queue: kind.enqueue_sync(names[n], key=names[n], queue=queue)
    )
    assert bench.start(app, queues=queues, burst=True, children=1).ended() == 0

    written = bench.ask("select what, claim from written order by what")
    assert [what for what, _ in written] == names
    assert sorted(claim for _, claim in written) == [1, 2, 2, 2, 2]
    assert bench.count("dedup") == len(POINTS)
    assert {done.state for ticket in tickets if (done := bench.record(ticket.id))} == {State.DONE}
