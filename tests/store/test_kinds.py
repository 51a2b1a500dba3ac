"""Kinds: known by name and version, and what an operator says of them wins."""

from __future__ import annotations

from typing import Any

from tenure.store import protocol as ops
from tenure.store.protocol import KindRow, Store
from tests.store.steps import KIND, accept, claim, complete, figures, look, look_up_key, shift

POLICY = {"max_attempts": 5, "lease": 30.0, "key_ttl": 86400.0}


def kind(name: str = KIND, version: int = 1, **fields: Any) -> KindRow:
    row = KindRow(name, version, "q", [], False, POLICY, {}, {"type": "object"})
    return row._replace(**fields)


def register(store: Store, *kinds: KindRow) -> list[KindRow]:
    return store.run(ops.RegisterKinds(kinds))


def listed(store: Store, name: str | None = None) -> list[KindRow]:
    return store.run(ops.ListKinds(name))


def test_a_registered_kind_is_listed_as_declared(store: Store) -> None:
    row = kind(aliases=["older", "old"], effect=True)
    assert register(store, row) == [row]
    assert listed(store) == [row]


def test_nothing_is_known_at_first(store: Store) -> None:
    assert listed(store) == []
    assert register(store) == []


def test_a_kinds_queue_becomes_known(store: Store) -> None:
    register(store, kind(queue="mail"))
    assert figures(store, "mail").pending == 0


def test_registering_leaves_a_queues_settings(store: Store) -> None:
    store.run(ops.SetQueue("mail", {"owner": "team", "paused": True}))
    register(store, kind(queue="mail"))
    assert (figures(store, "mail").owner, figures(store, "mail").paused) == ("team", True)


def test_registering_again_changes_what_is_declared(store: Store) -> None:
    register(store, kind())
    changed = kind(policy={"max_attempts": 9}, arguments={"type": "object", "required": ["x"]})
    assert register(store, changed) == [changed]
    assert listed(store) == [changed]


def test_versions_stand_side_by_side(store: Store) -> None:
    register(store, kind(version=1))
    answered = register(store, kind(version=2))
    assert [row.version for row in answered] == [2]
    assert [row.version for row in listed(store, KIND)] == [1, 2]


def test_kinds_are_listed_by_name(store: Store) -> None:
    register(store, kind("b"), kind("a", version=2), kind("a"))
    assert [(row.name, row.version) for row in listed(store)] == [("a", 1), ("a", 2), ("b", 1)]
    assert [row.name for row in listed(store, "b")] == ["b"]
    assert listed(store, "c") == []


def test_a_kind_is_found_by_its_older_name(store: Store) -> None:
    register(store, kind("new", aliases=["older", "old"]), kind("other"))
    assert [row.name for row in listed(store, "old")] == ["new"]


def test_a_declaration_cannot_set_operator_values(store: Store) -> None:
    assert register(store, kind(operator={"max_attempts": 1}))[0].operator == {}


def test_operator_values_are_merged_and_none_removes_one(store: Store) -> None:
    register(store, kind(version=1), kind(version=2))
    assert store.run(ops.SetKind(KIND, {"max_attempts": 9, "key_ttl": 60.0}))
    assert store.run(ops.SetKind(KIND, {"max_attempts": 2}))
    assert [row.operator for row in listed(store)] == [{"max_attempts": 2, "key_ttl": 60.0}] * 2
    assert store.run(ops.SetKind(KIND, {"key_ttl": None}))
    assert [row.operator for row in listed(store)] == [{"max_attempts": 2}] * 2


def test_an_unknown_kind_cannot_be_set(store: Store) -> None:
    assert store.run(ops.SetKind("nobody", {"max_attempts": 2})) is False


def test_operator_values_survive_a_new_declaration(store: Store) -> None:
    register(store, kind())
    store.run(ops.SetKind(KIND, {"max_attempts": 9}))
    [row] = register(store, kind(policy={"max_attempts": 3}))
    assert (row.policy, row.operator) == ({"max_attempts": 3}, {"max_attempts": 9})


def test_operator_values_hold_for_a_version_that_comes_later(store: Store) -> None:
    register(store, kind())
    store.run(ops.SetKind(KIND, {"max_attempts": 9}))
    register(store, kind(version=2))
    assert {row.version: row.operator for row in listed(store)} == {1: {"max_attempts": 9}, 2: {"max_attempts": 9}}
    [id] = accept(store, version=2, max_attempts=3)
    assert look(store, id).max_attempts == 9


def test_the_operators_limit_of_attempts_wins_at_the_door(store: Store) -> None:
    register(store, kind())
    store.run(ops.SetKind(KIND, {"max_attempts": 9}))
    [id] = accept(store, max_attempts=3)
    assert look(store, id).max_attempts == 9
    store.run(ops.SetKind(KIND, {"max_attempts": None}))
    [id] = accept(store, max_attempts=3)
    assert look(store, id).max_attempts == 3


def test_the_operators_time_to_live_of_keys_wins_at_the_door(store: Store) -> None:
    register(store, kind())
    store.run(ops.SetKind(KIND, {"key_ttl": 60.0}))
    accept(store, key="a", key_ttl=86400.0)
    complete(store, claim(store)[0])
    shift(store, 61)
    assert look_up_key(store, "a") is None


def test_operator_values_of_one_kind_leave_others_alone(store: Store) -> None:
    register(store, kind(), kind("mail"))
    store.run(ops.SetKind("mail", {"max_attempts": 9}))
    [id] = accept(store, max_attempts=3)
    assert look(store, id).max_attempts == 3
