"""Kinds as the database knows them: found by name, checked by schema, also where they were renamed."""

from __future__ import annotations

import pytest

from tenure.errors import InvalidArguments, UnknownKind
from tenure.offer import new_job
from tenure.registered import find
from tenure.store.protocol import KindRow


def row(
    name: str, version: int = 1, *, aliases: list[str] | None = None, schema: dict[str, object] | None = None
) -> KindRow:
    return KindRow(name, version, "q", aliases or [], False, {}, {}, schema or {"type": "object"})


def test_the_newest_version_or_the_one_that_is_named() -> None:
    rows = [row("a", 1), row("a", 3), row("a", 2), row("b", 9)]
    assert find(rows, "a").version == 3
    assert find(rows, "a", 1).version == 1
    with pytest.raises(UnknownKind):
        find(rows, "a", 9)


def test_an_older_name_is_the_kind_it_is_now_though_its_own_row_is_still_there() -> None:
    renamed = [row("a"), row("b", aliases=["a"])]
    assert find(renamed, "a").name == "b"
    assert find([row("b", aliases=["a"])], "a").name == "b"
    back_again = [row("a", aliases=["b"]), row("b", aliases=["a"])]
    assert find(back_again, "a").name == "a"
    assert find([row("a", 2, aliases=["b"]), *renamed], "a").name == "a"


def test_the_fingerprint_is_that_of_the_oldest_name() -> None:
    op = find([row("c", aliases=["a", "b"])], "c").accept([new_job("{}")], max_bytes=10)
    assert (op.kind, op.fingerprint_kind, op.queue) == ("c", "a", "q")


def test_what_a_row_does_not_say_is_the_default() -> None:
    op = find([row("a")], "a").accept([], max_bytes=10, queue="other")
    assert (op.max_attempts, op.key_ttl, op.queue) == (10, 7 * 86400, "other")


def test_only_the_first_mistakes_are_told() -> None:
    kind = find([row("a", schema={"type": "object", "properties": {n: {"type": "null"} for n in "abcdefgh"}})], "a")
    with pytest.raises(InvalidArguments, match="and 3 more") as caught:
        kind.check('{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1}')
    assert str(caught.value).count("type must be") == 5


@pytest.mark.parametrize(
    ("schema", "payload", "says"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, '{"a": "secret"}', "a: breaks the rule anyOf"),
        ({"enum": ["x", "y"]}, '{"a": "secret"}', 'a: enum must be ["x", "y"]'),
        ({"pattern": "^x"}, '{"a": "secret"}', "a: breaks the rule pattern"),
        ({"type": "array", "items": {"type": "integer"}}, '{"a": [1, "secret"]}', "a.1: type must be"),
        ({"not": {"type": "string"}}, '{"a": "secret"}', "a: breaks the rule not"),
    ],
)
def test_mistakes_are_told_without_the_values(schema: dict[str, object], payload: str, says: str) -> None:
    kind = find([row("k", schema={"type": "object", "properties": {"a": schema}})], "k")
    with pytest.raises(InvalidArguments) as caught:
        kind.check(payload)
    assert says in caught.value.what
    assert "secret" not in str(caught.value)
