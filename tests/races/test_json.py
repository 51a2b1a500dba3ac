"""What our side of the door accepts, PostgreSQL keeps: every payload, result and message, unchanged."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from psycopg import Connection

from tenure import jsontext
from tenure.errors import InvalidPayload
from tenure.job import NewJob
from tenure.store import protocol as ops
from tenure.store.connections import connect
from tenure.store.postgres import PostgresStore
from tests.support.properties import given, st
from tests.test_jsontext import json_values

CASES = (Path(__file__).parents[1] / "cases" / "fingerprints.jsonl").read_text("utf-8").splitlines()

some = settings(max_examples=50)
"""On each server; what these properties are about is tried more often without a database elsewhere."""

numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
NEGATIVE_ZERO = re.compile(r"-0\.0\b")
"""The one number that loses a character: its sign."""

objects = st.dictionaries(st.text(), json_values, max_size=5)


@pytest.fixture(scope="session", params=["pg18", "pg15"])
def conn(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A connection to each supported server."""
    with connect(request.getfixturevalue(f"{request.param}_races")) as conn:
        yield conn


def stored(conn: Connection, text: str) -> str:
    """The text of what PostgreSQL keeps of a JSON text."""
    row = conn.execute("select %s::text::jsonb::text", [text]).fetchone()
    assert row is not None
    return str(row[0])


def exactly(value: Any) -> str:
    """A text that says 1, 1.0 and true apart; the order of names is no difference, nor is the sign of zero."""
    return json.dumps(_unsigned(value), sort_keys=True)


def _unsigned(value: Any) -> Any:
    match value:
        case float():
            return value + 0.0
        case list():
            return [_unsigned(inner) for inner in value]
        case dict():
            return {name: _unsigned(inner) for name, inner in value.items()}
    return value


@some
@given(value=json_values)
def test_everything_that_dumps_accepts_is_kept_unchanged(conn: Connection, value: Any) -> None:
    try:
        text = jsontext.dumps(value)
    except InvalidPayload:
        return
    kept = stored(conn, text)
    assert exactly(json.loads(kept)) == exactly(json.loads(text)) == exactly(value)
    assert len(kept) + len(NEGATIVE_ZERO.findall(text)) >= len(text) >= len(kept)
    assert stored(conn, kept) == kept


def exact_numbers(text: str) -> Any:
    """The value of a JSON text, its numbers to the last digit: PostgreSQL writes 1e2 as 100, which is the same number."""
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


@some
@given(number=numbers)
def test_a_number_that_check_accepts_is_kept(conn: Connection, number: str) -> None:
    text = f'{{"n": {number}}}'
    try:
        jsontext.check(text)
    except InvalidPayload:
        return
    assert exact_numbers(stored(conn, text)) == exact_numbers(text)


@some
@given(value=objects, ascii_only=st.booleans(), indent=st.none() | st.integers(0, 3))
def test_a_text_that_check_accepts_is_kept(conn: Connection, value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    try:
        jsontext.check(text)
    except InvalidPayload:
        return
    assert exact_numbers(stored(conn, text)) == exact_numbers(text)


@some
@given(message=st.text(st.characters(), max_size=200), limit=st.integers(0, 200))
def test_a_cleaned_message_can_always_be_kept(conn: Connection, message: str, limit: int) -> None:
    kept = jsontext.clean(message, limit)
    assert json.loads(stored(conn, json.dumps({"message": kept}))) == {"message": kept}


@some
@given(value=json_values | st.floats() | st.text(st.characters()) | st.binary())
def test_a_result_or_its_note_can_always_be_kept(conn: Connection, value: Any) -> None:
    text = jsontext.dumps_or_note(value, 100)
    assert text is None or json.loads(stored(conn, text)) == json.loads(text)


def test_the_deepest_payload_is_kept(conn: Connection) -> None:
    text = '{"a":' * jsontext.MAX_DEPTH + "1" + "}" * jsontext.MAX_DEPTH
    assert json.loads(stored(conn, text)) == jsontext.check(text)


def test_the_largest_numbers_are_kept(conn: Connection) -> None:
    text = json.dumps({"n": [10**jsontext.MAX_DIGITS - 1, 1e308, 5e-324]})
    jsontext.check(text)
    assert exact_numbers(stored(conn, text)) == exact_numbers(text)


# ---------------------------------------------------------------------------------------------------- fingerprints


def fingerprints(conn: Connection, *payloads: str) -> list[str | None]:
    """What an accept answers for each, under a key of its own."""
    store = PostgresStore(conn.info.dsn)
    jobs = [NewJob(uuid4(), payload, key=str(uuid4())) for payload in payloads]
    with conn.transaction(force_rollback=True):
        answers = store.run(ops.Accept("q", "work", 1, "work", 3, 60.0, 100_000, jobs), conn)
    return [answer.given for answer in answers]


@pytest.mark.parametrize("case", [json.loads(line) for line in CASES], ids=lambda case: f"{case['a']} {case['b']}")
def test_payloads_are_the_same_request_or_not(conn: Connection, case: dict[str, Any]) -> None:
    one, two = fingerprints(conn, case["a"], case["b"])
    assert (one == two) == case["same"]


@some
@given(one=objects, two=objects)
def test_a_fingerprint_is_that_of_the_stored_text(conn: Connection, one: dict[str, Any], two: dict[str, Any]) -> None:
    try:
        texts = [jsontext.dumps(value) for value in (one, dict(reversed(one.items())), two)]
    except InvalidPayload:
        return
    told = fingerprints(conn, *texts)
    assert told == [hashlib.sha256(f"work\n{stored(conn, text)}".encode()).hexdigest() for text in texts]
    assert told[0] == told[1]
    assert (told[0] == told[2]) == (stored(conn, texts[0]) == stored(conn, texts[2]))
