"""Breakers: closed, open, half-open, closed; each transition happens once, and only to who has seen the state it is in."""

from __future__ import annotations

import pytest

from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import accept, figures, shift
from tests.store.test_holds import known

NAME = "psp"
WINDOW = 30.0


@pytest.fixture(autouse=True)
def declared(store: Store) -> None:
    store.run(ops.RegisterBreakers([ops.Declared(NAME, {"calls": 20}), ops.Declared("bank", {})]))


def count(store: Store, calls: int, failures: int, streak: int = 0) -> ops.Counted | None:
    return store.run(ops.CountCalls(NAME, calls, failures, streak, WINDOW))


def sums(store: Store, calls: int = 0, failures: int = 0, streak: int = 0) -> tuple[int, int, int]:
    counted = count(store, calls, failures, streak)
    assert counted is not None
    return counted[1:]


def look(store: Store, name: str = NAME) -> ops.BreakerRow:
    return next(row for row in store.run(ops.ListBreakers()) if row.name == name)


def opened(store: Store, seconds: float = 10.0) -> None:
    assert store.run(ops.OpenBreaker(NAME, look(store).epoch, seconds, "12 of 20 failed", "w"))


def probe(store: Store, seconds: float = 10.0) -> int | None:
    return store.run(ops.ProbeBreaker(NAME, seconds, "w"))


def probing(store: Store) -> int:
    """Open, and half-open; answers the epoch."""
    opened(store, 0.0)
    epoch = probe(store)
    assert epoch is not None
    return epoch


def close(store: Store, epoch: int) -> bool:
    return store.run(ops.CloseBreaker(NAME, epoch, "w"))


def reopen(store: Store, epoch: int, seconds: float = 10.0) -> bool:
    return store.run(ops.ReopenBreaker(NAME, epoch, seconds, None, "w"))


def holds(store: Store) -> list[tuple[str, str, str]]:
    return [(hold.what, hold.name, hold.cause) for hold in store.run(ops.ListHolds())]


# ----------------------------------------------------------------------------------------------------- the window


def test_calls_of_all_workers_add_up_in_the_window(store: Store) -> None:
    assert sums(store, 5, 2) == (5, 2, 0)
    assert sums(store, 7, 1) == (12, 3, 0)
    assert (look(store).calls, look(store).failures) == (12, 3)
    assert (look(store, "bank").calls, look(store, "bank").failures) == (0, 0)


def test_what_is_older_than_the_window_is_forgotten(store: Store) -> None:
    sums(store, 5, 2)
    shift(store, 20)
    assert sums(store, 1, 1) == (6, 3, 0)
    shift(store, 15)  # the first ones are 35 s old
    assert sums(store) == (1, 1, 0)
    shift(store, 1e6)
    assert sums(store) == (0, 0, 0)


def test_a_clock_that_was_set_back_does_not_stop_the_window(store: Store) -> None:
    sums(store, 5, 2)
    shift(store, -3600)
    assert sums(store, 1, 1) == (1, 1, 0)


def test_a_streak_goes_on_until_a_call_does_not_fail(store: Store) -> None:
    assert sums(store, 3, 3, 3) == (3, 3, 3)
    assert sums(store, 2, 2, 2) == (5, 5, 5)
    assert sums(store, 4, 3, 2) == (9, 8, 2)  # one of these did not fail, two did after it
    assert sums(store, 1, 0, 0)[2] == 0


def test_nothing_is_counted_while_a_breaker_is_not_closed(store: Store) -> None:
    opened(store)
    assert count(store, 5, 5) is None
    assert look(store).calls == 0


def test_of_a_downstream_that_was_not_declared_nothing_is_counted(store: Store) -> None:
    assert store.run(ops.CountCalls("nobody", 1, 1, 1, WINDOW)) is None
    assert probe(store) is None


# ------------------------------------------------------------------------------------------------- the transitions


def test_a_breaker_opens_and_holds_its_downstream(store: Store) -> None:
    assert holds(store) == []
    opened(store)
    [hold] = store.run(ops.ListHolds())
    assert (hold.what, hold.name, hold.cause, hold.reason, hold.who) == (
        "downstream",
        NAME,
        "open",
        "12 of 20 failed",
        "w",
    )
    assert hold.remaining is not None
    assert 5 < hold.remaining <= 10


def test_of_two_workers_that_judge_at_once_one_opens_it(store: Store) -> None:
    epoch = look(store).epoch
    op = ops.OpenBreaker(NAME, epoch, 10.0, "why", "w")
    assert [store.run(op), store.run(op)] == [True, False]


def test_a_judgement_from_before_it_closed_opens_nothing(store: Store) -> None:
    counted = count(store, 20, 20)
    assert counted is not None
    close(store, probing(store))
    assert not store.run(ops.OpenBreaker(NAME, counted.epoch, 10.0, "why", "w"))
    assert look(store).state == "closed"


def test_nobody_probes_before_the_time_has_come(store: Store) -> None:
    assert probe(store) is None
    opened(store, 10.0)
    assert probe(store) is None
    shift(store, 11)
    assert probe(store) == look(store).epoch
    assert holds(store) == [("downstream", NAME, "half_open")]


def test_of_two_workers_that_would_probe_one_gets_the_right(store: Store) -> None:
    opened(store, 0.0)
    assert [probe(store) is None, probe(store) is None] == [False, True]


def test_the_right_of_a_worker_that_is_gone_is_taken_over_and_what_it_says_later_is_ignored(store: Store) -> None:
    first = probing(store)
    shift(store, 11)
    second = probe(store)
    assert second is not None
    assert not store.run(ops.KeepProbe(NAME, first, 10.0))
    assert not close(store, first)
    assert not reopen(store, first)
    assert look(store).state == "half_open"
    assert close(store, second)


def test_a_right_that_is_kept_is_not_taken_over(store: Store) -> None:
    epoch = probing(store)
    shift(store, 9)
    assert store.run(ops.KeepProbe(NAME, epoch, 10.0))
    shift(store, 9)
    assert probe(store) is None
    assert close(store, epoch)


def test_a_breaker_that_closes_begins_anew(store: Store) -> None:
    sums(store, 20, 20, 20)
    assert close(store, probing(store))
    assert holds(store) == []
    row = look(store)
    assert (row.state, row.until, row.reason, row.calls, row.failures, row.streak) == ("closed", None, None, 0, 0, 0)
    assert sums(store, 1, 1, 1) == (1, 1, 1)


def test_a_probe_that_fails_opens_it_again_for_a_while(store: Store) -> None:
    epoch = probing(store)
    since = look(store).since
    assert reopen(store, epoch)
    assert (look(store).state, look(store).since, look(store).reason) == ("open", since, "12 of 20 failed")
    assert probe(store) is None
    shift(store, 11)
    assert probe(store) is not None


# ------------------------------------------------------------------------------------------------------------ people


def test_what_people_open_stays_open_until_people_close_it(store: Store) -> None:
    assert store.run(ops.SetBreakers([NAME], opened=True, reason="maintenance", who="op")) == {NAME: True}
    shift(store, 1e6)
    assert probe(store) is None
    [hold] = store.run(ops.ListHolds())
    assert (hold.cause, hold.until, hold.remaining, hold.reason, hold.who) == ("open", None, None, "maintenance", "op")
    assert store.run(ops.SetBreakers([NAME], opened=False)) == {NAME: True}
    assert holds(store) == []


def test_people_can_take_the_right_to_probe_away(store: Store) -> None:
    epoch = probing(store)
    assert store.run(ops.SetBreakers([NAME], opened=False)) == {NAME: True}
    assert not reopen(store, epoch)
    assert look(store).state == "closed"


def test_the_answer_tells_what_has_changed(store: Store) -> None:
    def set_(*names: str, opened: bool) -> dict[str, bool]:
        return store.run(ops.SetBreakers(names, opened))

    assert set_(NAME, "bank", "nobody", opened=False) == {NAME: False, "bank": False}
    opened(store)
    assert set_(NAME, opened=True) == {NAME: True}  # until somebody closes it, from now on
    assert set_(NAME, "bank", opened=True) == {NAME: False, "bank": True}
    assert set_(NAME, "bank", opened=False) == {NAME: True, "bank": True}
    assert set_(opened=False) == {}


def test_a_new_declaration_leaves_the_state_alone(store: Store) -> None:
    opened(store)
    store.run(ops.RegisterBreakers([ops.Declared(NAME, {"calls": 5})]))
    assert (look(store).state, look(store).policy) == ("open", {"calls": 5})


def test_status_and_the_list_know_the_kinds_that_call_it(store: Store) -> None:
    known(store, policy={"downstream": NAME})
    known(store, "other")
    accept(store)
    accept(store, kind="other")
    assert look(store).kinds == ["work"]
    assert figures(store).held == 0
    opened(store)
    assert (figures(store).pending, figures(store).held) == (2, 1)
