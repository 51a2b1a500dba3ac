"""Text that PostgreSQL keeps unchanged, and what is said about text that it would not."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import json
import math
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, model_serializer

from tenure import jsontext
from tenure.errors import InvalidPayload
from tenure.store.jsonb import jsonb_text
from tests.support.properties import given, st

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases" / "payloads.jsonl").read_text().splitlines()]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


def levels(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def says(error: pytest.ExceptionInfo[InvalidPayload], words: str) -> bool:
    return words.lower() in str(error.value).lower()


# -- check ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=[case["text"][:30] or "nothing" for case in CASES])
def test_check_answers_each_case_as_the_contract_says(case: dict[str, str]) -> None:
    refused = case["answer"].startswith("error") and "inert" not in case["answer"]
    if not refused:
        assert jsontext.check(case["text"]) == json.loads(case["text"])
        return
    with pytest.raises(InvalidPayload) as caught:
        jsontext.check(case["text"])
    assert says(caught, case["answer"].removeprefix("error: "))
    assert says(caught, "nothing was stored")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"n": -Infinity}', "not JSON"),
        ('{"a": 1} x', "not JSON"),
        ("{'a': 1}", "not JSON"),
        ('{"a": "line\nbreak"}', "not JSON"),
        ("\ufeff{}", "not JSON"),
        ('{"n": 1e400}', "out of range"),
        ('{"n": 1e-401}', "out of range"),
        ('{"n": 0e400000}', "out of range"),
        ('{"n": 1e99999999999999999999}', "out of range"),
        ('{"n": 0.' + "1" * 16384 + "}", "out of range"),
        ('{"n": ' + "9" * 4301 + "}", "out of range"),
        ('{"a": {"b": 1, "\\u0062": 2}}', "duplicate name 'b'"),
        ('{"s": "\\udc00"}', "lone surrogate"),
        ('{"s": "\\ud83d\\u0041"}', "lone surrogate"),
        ('{"s": "\ud800"}', "lone surrogate"),
        ('{"s": "\\\\\\u0000"}', "NUL"),
        ('{"\\u0000": 1}', "NUL"),
        ("null", "null, but arguments are an object"),
        ('"text"', "string, but arguments are an object"),
        ("1", "number, but arguments are an object"),
        ("1.5", "number, but arguments are an object"),
        ("true", "boolean, but arguments are an object"),
        ('{"a":' * 201 + "1" + "}" * 201, "too deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "too deep"),
        ("[" * 100_000, "too deep"),
    ],
)
def test_check_refuses_what_postgresql_refuses_or_changes(text: str, words: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        jsontext.check(text)
    assert says(caught, words)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        ' {"a": 1}\n',
        '{"n": 1e308}',
        '{"n": 5e-324}',
        '{"n": ' + "9" * 4300 + "}",
        '{"n": -' + "9" * 4300 + "}",
        '{"s": "\\\\u0000 and \\\\ud800 are text"}',
        '{"s": "\\ud83d\\ude00\\u0001\\/"}',
        '{"s": "' + "[{" * 1000 + '"}',
        '{"a":' * 200 + "1" + "}" * 200,
        '{"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]}',
    ],
)
def test_check_accepts_what_only_looks_dangerous(text: str) -> None:
    assert jsontext.check(text) == json.loads(text)


def test_check_shortens_what_it_quotes() -> None:
    with pytest.raises(InvalidPayload) as caught:
        jsontext.check('{"n": ' + "9" * 100_000 + "}")
    assert len(str(caught.value)) < 300


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_check_reads_what_dumps_wrote(value: dict[str, Any]) -> None:
    try:
        text = jsontext.dumps(value)
    except InvalidPayload:
        return
    assert jsontext.check(text) == value


@given(st.text())
def test_check_answers_any_text_with_an_object_or_a_typed_error(text: str) -> None:
    with contextlib.suppress(InvalidPayload):
        assert isinstance(jsontext.check(text), dict)


# -- dumps ------------------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


class Order(BaseModel):
    number: int = 1
    weight: float = 1.5


@dataclasses.dataclass
class Point:
    x: int = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "b": [True, None, "x"]}, '{"a": 1, "b": [true, null, "x"]}'),
        ({"e": "é😀"}, '{"e": "é😀"}'),
        ({1: 2, 1.5: 3, False: 4}, '{"1": 2, "1.5": 3, "false": 4}'),
        ((1, 2), "[1, 2]"),
        (b"bytes", '"bytes"'),
        (Colour.RED, '"red"'),
        (Order(), '{"number": 1, "weight": 1.5}'),
        (Point(), '{"x": 1}'),
        (Decimal("1.50"), '"1.50"'),
        (uuid.UUID(int=0), '"00000000-0000-0000-0000-000000000000"'),
        (datetime(2026, 1, 1, tzinfo=UTC), '"2026-01-01T00:00:00Z"'),
        (10**4299, "1" + "0" * 4299),
        ("\\u0000", '"\\\\u0000"'),
    ],
)
def test_dumps_writes_what_pydantic_can_write(value: object, text: str) -> None:
    assert jsontext.dumps(value) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e16, "10000000000000000.0"),
        (-1.5e300, "-15" + "0" * 299 + ".0"),
        (1e-7, "0.0000001"),
        (0.1, "0.1"),
        (1.0, "1.0"),
        (100, "100"),
    ],
)
def test_dumps_writes_numbers_out_as_postgresql_does(number: float, text: str) -> None:
    assert jsontext.dumps({"n": number, "1e+16": "1e+16"}) == f'{{"n": {text}, "1e+16": "1e+16"}}'


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_comes_back_as_the_same_float(number: float) -> None:
    text = jsontext.dumps({"n": number, 'quote "1e+20" \\': "1e-7"})
    back = json.loads(text)["n"]
    assert type(back) is float
    assert back == number
    assert "e+" not in text.partition("quote")[0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "JSON compliant"),
        ([math.inf], "JSON compliant"),
        (Order(weight=math.nan), "JSON compliant"),
        ("a\0b", "NUL"),
        ({"a\0b": 1}, "NUL"),
        ({"s": "\ud800"}, "surrogate"),
        ({"\udc00": 1}, "surrogate"),
        (b"\xff", "utf-8"),
        (object(), "object"),
        (10**4300, "4300 digits"),
        ({1: "a", "1": "b"}, "duplicate name '1'"),
        ({"deep": [{None: 1, "None": 2}]}, "duplicate name 'None'"),
        (levels(201), "too deep"),
        (levels(100_000), "levels deep"),
    ],
    ids=range(14),
)
def test_dumps_refuses_what_cannot_be_kept(value: object, words: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        jsontext.dumps(value)
    assert says(caught, words)


def test_dumps_takes_the_documented_depth() -> None:
    assert jsontext.dumps(levels(200)) == "[" * 200 + "]" * 200


def test_dumps_refuses_a_value_that_contains_itself() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidPayload):
        jsontext.dumps(value)


@dataclasses.dataclass
class Holder:
    """Holds anything."""

    held: object


async def asynchronous() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda numbers: (n for n in numbers), "a generator"),
        (lambda numbers: numbers, "an iterator"),
        (lambda numbers: map(str, numbers), "an iterator"),
        (lambda _: asynchronous(), "a generator"),
        (lambda numbers: {"n": numbers}, "an iterator"),
        (lambda numbers: [1, numbers], "an iterator"),
        (lambda numbers: {"deep": [{"n": (numbers,)}]}, "an iterator"),
        (lambda numbers: [deque([numbers])], "an iterator"),
        (lambda numbers: [Holder({"n": numbers})], "an iterator"),
    ],
    ids=range(9),
)
def test_dumps_refuses_an_iterator_and_reads_none_of_it(made: Callable[[Iterator[int]], object], words: str) -> None:
    numbers = itertools.count()
    with pytest.raises(InvalidPayload) as caught:
        jsontext.dumps(made(numbers))
    assert says(caught, f"{words}, which")
    assert next(numbers) == 0


def test_dumps_takes_a_value_that_is_held_twice() -> None:
    twice = [1]
    assert jsontext.dumps([twice, {"again": twice}, Holder(twice)]) == '[[1], {"again": [1]}, {"held": [1]}]'


# -- what a finished attempt leaves behind ----------------------------------------------------------------------------


@given(st.text(st.characters(), max_size=300), st.integers(0, 200))
def test_clean_text_is_storable_and_bounded(text: str, limit: int) -> None:
    kept = jsontext.clean(text, limit)
    assert len(kept.encode()) <= limit
    assert "\0" not in kept
    if len(text.encode(errors="surrogatepass")) <= limit and text.isascii() and "\0" not in text:
        assert kept == text


def test_clean_replaces_nul_and_lone_surrogates() -> None:
    assert jsontext.clean("a\0b\ud800c😀", 100) == "a\ufffdb\ufffdc😀"


def test_clean_keeps_the_beginning_and_the_end() -> None:
    kept = jsontext.clean("Traceback: " + "é" * 100_000 + " ValueError: why", 200)
    assert kept.startswith("Traceback: é")
    assert kept.endswith("é ValueError: why")
    assert "… cut …" in kept
    assert 190 <= len(kept.encode()) <= 200


class RudeError(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Rude(BaseModel):
    """Refuses to be written."""

    @model_serializer
    def refuse(self) -> str:
        raise RudeError


class UnspeakableExit(SystemExit):
    """Cannot be shown either."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class Leaving(BaseModel):
    """Ends the process that writes it."""

    @model_serializer
    def leave(self) -> str:
        raise UnspeakableExit


@pytest.mark.parametrize(
    "result",
    [object(), math.nan, "a\0", "\ud800", levels(100_000), {1: 1, "1": 2}, b"\xff", "x" * 1001, Rude(), Leaving()],
    ids=["object", "nan", "nul", "surrogate", "deep", "names", "bytes", "large", "rude", "leaving"],
)
def test_a_result_that_cannot_be_stored_leaves_a_note(result: object) -> None:
    text = jsontext.dumps_or_note(result, 1000)
    assert text is not None
    note = jsontext.check(text)
    assert note["tenure"] == jsontext.NOTE
    assert note["why"]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ((n for n in itertools.count()), "a generator is not a result"),
        (asynchronous(), "a generator is not a result"),
        (itertools.count(), "an iterator is not a result"),
        ({"numbers": itertools.count()}, "The value is or holds an iterator, which writing would use up."),
    ],
    ids=["generator", "async generator", "iterator", "nested"],
)
def test_an_endless_result_is_not_read(result: object, why: str) -> None:
    assert jsontext.dumps_or_note(result, 1000) == json.dumps({"tenure": jsontext.NOTE, "why": why})


def test_a_result_within_the_limit_is_stored_as_it_is() -> None:
    assert jsontext.dumps_or_note({"sum": 1}, 10) == '{"sum": 1}'
    assert jsontext.dumps_or_note("é" * 4, 9) == json.dumps(
        {"tenure": jsontext.NOTE, "why": "The result has 10 bytes, more than the 9 allowed."}
    )


def test_no_result_stays_no_result() -> None:
    assert jsontext.dumps_or_note(None, 0) is None


# -- how long it becomes ----------------------------------------------------------------------------------------------

numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
names = st.text(max_size=3)


@given(st.lists(numbers, min_size=1, max_size=5), names, st.sampled_from(["", " "]))
def test_what_was_checked_grows_no_further_than_was_said(numbers: list[str], name: str, space: str) -> None:
    text = json.dumps({name: 0}).replace(": 0", f":{space}[{','.join(numbers)}]")
    with contextlib.suppress(InvalidPayload):
        jsontext.check(text)
        assert len(jsonb_text(text).encode()) <= jsontext.MOST_GROWTH * len(text)


def test_the_shortest_number_becomes_the_longest_text() -> None:
    text = '{"":1e-400}'
    assert jsontext.check(text) == {"": 0.0}
    assert len(jsonb_text(text)) == 10 + 398
