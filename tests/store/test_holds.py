"""Holds of kinds: what workers are told to leave alone, until when and why."""

from __future__ import annotations

import pytest

from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import KIND, accept, figures, look, shift, take


def known(store: Store, name: str = KIND, **fields: object) -> None:
    """Make a kind known."""
    row = ops.KindRow(name, 1, "q", [], False, {}, {}, {})
    store.run(ops.RegisterKinds([row._replace(**fields)]))  # type: ignore[arg-type]


def pause(store: Store, *kinds: str) -> dict[str, bool]:
    return store.run(ops.PauseKinds(kinds or [KIND], reason="a try", who="op"))


def resume(store: Store, *kinds: str) -> dict[str, bool]:
    return store.run(ops.PauseKinds(kinds or [KIND], paused=False))


def throttle(store: Store, seconds: float, kind: str = KIND) -> None:
    store.run(ops.ThrottleKinds([ops.Slowed(kind, seconds)], reason="429", who="w"))


def holds(store: Store) -> list[tuple[str, str]]:
    return [(hold.name, hold.cause) for hold in store.run(ops.ListHolds())]


def test_where_nothing_is_held_nothing_is_listed(store: Store) -> None:
    known(store)
    assert store.run(ops.ListHolds()) == []


def test_a_kind_that_is_paused_is_held_until_somebody_resumes_it(store: Store) -> None:
    known(store)
    assert pause(store) == {KIND: True}
    shift(store, 1e6)
    [hold] = store.run(ops.ListHolds())
    assert (hold.what, hold.name, hold.cause, hold.reason, hold.who) == ("kind", KIND, "paused", "a try", "op")
    assert (hold.until, hold.remaining) == (None, None)
    assert resume(store) == {KIND: True}
    assert holds(store) == []


def test_a_pause_touches_no_job(store: Store) -> None:
    known(store)
    ids = [*accept(store, 2), *accept(store, delay=60.0), take(store).id]
    before = [look(store, id) for id in ids]
    pause(store)
    resume(store)
    assert [look(store, id) for id in ids] == before


def test_the_answer_tells_what_has_changed(store: Store) -> None:
    known(store)
    known(store, "other")
    assert pause(store, KIND) == {KIND: True}
    assert pause(store, KIND, "other", "nobody") == {KIND: False, "other": True}
    assert resume(store, KIND) == {KIND: True}
    assert resume(store, KIND, "other", "nobody") == {KIND: False, "other": True}


def test_a_kind_that_is_not_known_cannot_be_paused(store: Store) -> None:
    assert pause(store, "nobody") == {}
    assert holds(store) == []


def test_of_a_kind_that_was_renamed_the_pause_can_be_ended(store: Store) -> None:
    known(store)
    pause(store)
    known(store, "newer", aliases=[KIND])
    assert resume(store, "newer") == {"newer": True}
    assert holds(store) == []


def test_a_throttle_holds_a_kind_for_its_time(store: Store) -> None:
    throttle(store, 30)
    [hold] = store.run(ops.ListHolds())
    assert (hold.name, hold.cause, hold.reason, hold.who) == (KIND, "throttled", "429", "w")
    assert hold.remaining is not None
    assert 20 < hold.remaining <= 30
    shift(store, 31)
    assert holds(store) == []


def test_of_two_throttles_the_longer_counts(store: Store) -> None:
    throttle(store, 30)
    throttle(store, 600)
    throttle(store, 5)
    [hold] = store.run(ops.ListHolds())
    assert hold.remaining is not None
    assert 500 < hold.remaining <= 600


def test_of_one_kind_twice_in_a_call_the_longer_counts(store: Store) -> None:
    store.run(ops.ThrottleKinds([ops.Slowed(KIND, 600), ops.Slowed(KIND, 5), ops.Slowed("other", 5)]))
    found = {hold.name: hold.remaining or 0 for hold in store.run(ops.ListHolds())}
    assert found[KIND] > 500
    assert found["other"] <= 5


def test_a_throttle_that_is_made_longer_is_the_same_hold_and_one_after_its_end_is_another(store: Store) -> None:
    throttle(store, 30)
    [first] = store.run(ops.ListHolds())
    throttle(store, 60)
    [longer] = store.run(ops.ListHolds())
    assert longer.since == first.since
    shift(store, 100)
    throttle(store, 30)
    [another] = store.run(ops.ListHolds())
    assert another.since > longer.since


def test_to_resume_a_kind_ends_a_throttle_too(store: Store) -> None:
    known(store)
    throttle(store, 600)
    pause(store)
    assert holds(store) == [(KIND, "paused"), (KIND, "throttled")]
    assert resume(store) == {KIND: True}
    assert holds(store) == []
    throttle(store, 600)
    shift(store, 601)
    assert resume(store) == {KIND: False}


def test_status_counts_what_could_run_but_for_a_hold(store: Store) -> None:
    known(store)
    known(store, "other")
    accept(store, 2)
    accept(store, delay=60.0)
    accept(store, kind="other")
    assert (figures(store).pending, figures(store).held) == (3, 0)
    pause(store)
    assert (figures(store).pending, figures(store).scheduled, figures(store).held) == (3, 1, 2)
    resume(store)
    throttle(store, 30, "other")
    assert figures(store).held == 1
    shift(store, 31)
    assert figures(store).held == 0


def test_status_counts_jobs_by_an_older_name_of_a_kind_that_is_held(store: Store) -> None:
    known(store, "newer", aliases=[KIND])
    accept(store)
    pause(store, "newer")
    assert figures(store).held == 1


@pytest.mark.parametrize("name", ["'; drop schema tenure cascade; --", "", "\U0001f40d", "a" * 5000])
def test_a_hostile_name_is_a_name_of_no_kind(store: Store, name: str) -> None:
    assert pause(store, name) == {}
