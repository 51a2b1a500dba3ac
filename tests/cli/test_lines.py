"""The lines of a jobs file: cut into members without touching their text, read with bounded memory."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tenure.cli.lines import Line, lines, parsed
from tenure.errors import TenureError
from tenure.job import NewJob
from tests.support.properties import given, st


def parse(text: str | bytes, number: int = 2) -> NewJob:
    data = text if isinstance(text, bytes) else text.encode()
    return parsed(Line(number, data, 0)).job


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(args=st.dictionaries(st.text(), values, max_size=4), indent=st.sampled_from([None, 0, 3]), ascii=st.booleans())
def test_arguments_keep_their_text(args: dict[str, object], indent: int | None, ascii: bool) -> None:
    text = json.dumps(args, indent=indent, ensure_ascii=ascii)
    if any("\ud800" <= char <= "\udfff" for char in text):
        return
    line = f'{{"priority": 3, "args" :\t{text} ,"key":"k"}}'
    assert parse(line).payload == text


def test_numbers_are_not_rewritten() -> None:
    assert parse('{"args": {"a": 1.10, "b": 1E2, "c": -0, "d": 1e400}}').payload == (
        '{"a": 1.10, "b": 1E2, "c": -0, "d": 1e400}'
    )


def test_every_member_is_understood() -> None:
    offer = parsed(
        Line(
            1,
            b'\xef\xbb\xbf{"kind": "k", "args": {}, "key": "x", "at": "2030-01-01T00:00:00+02:00", "expires": 90,'
            b' "priority": 0, "queue": "q", "headers": {"a": 1.0}, "order": "o"}',
            0,
        )
    )
    assert (offer.kind, offer.queue) == ("k", "q")
    assert offer.job[1:] == (
        "{}",
        0,
        0.0,
        datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=2))),
        90.0,
        None,
        "x",
        '{"a": 1.0}',
        False,
        False,
        "o",
        None,
        None,
    )


def test_null_is_as_good_as_absent() -> None:
    job = parse(
        '{"kind": null, "args": null, "key": null, "delay": null, "at": null, "expires": null, "headers": null}'
    )
    assert job[1:] == NewJob(job.id, "{}")[1:]


@pytest.mark.parametrize(
    ("delay", "seconds"), [("30", 30.0), ("1.5", 1.5), ('"5m"', 300.0), ('"250ms"', 0.25), ("0", 0.0)]
)
def test_a_delay_is_seconds_or_a_duration(delay: str, seconds: float) -> None:
    assert parse(f'{{"delay": {delay}}}').delay == seconds


def test_an_expiry_is_a_duration_or_a_moment() -> None:
    assert parse('{"expires": "1h"}').expires_in == 3600
    assert parse('{"expires": "2030-01-01T00:00:00Z"}').expires_at == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a JSON object"),
        ("[]", "not a JSON object"),
        ('{"args": {}', "not a JSON object"),
        ('{"args": {},}', "not a JSON object"),
        ('{"args": {}} x', "not a JSON object"),
        ('{"args" {}}', "not a JSON object"),
        ("{1: {}}", "not a JSON object"),
        ('{"args": }', "not a JSON object"),
        ('{"args": {}, "args": {}}', "duplicate"),
        ('{"prio": 1}', "'prio'"),
        ('{"key": 1}', "key"),
        ('{"kind": ["a"]}', "kind"),
        ('{"priority": 1.0}', "priority"),
        ('{"priority": true}', "priority"),
        ('{"priority": 10}', "10"),
        ('{"delay": true}', "delay"),
        ('{"delay": NaN}', "duration"),
        ('{"delay": -1}', "duration"),
        ('{"delay": 1e17}', "longer"),
        ('{"expires": [1]}', "expires"),
        ('{"at": "2030-01-01T00:00:00"}', "zone"),
        ('{"at": "soon"}', "soon"),
        ('{"at": 5}', "at"),
        ('{"queue": "a/b"}', "a/b"),
        ('{"key": "a\\u0000b"}', "NUL"),
        ('{"key": "\\ud800"}', "surrogate"),
        ('{"at": "1999-12-31T00:00:00Z"}', "at 1999"),
        ('{"expires": "0001-01-01T00:00:00+14:00"}', "expires 0001"),
        ('{"expires": "9999-12-31T23:59:59-14:00"}', "expires 9999"),
        ('{"headers": []}', "Headers"),
        ('{"headers": {"a": "' + "é" * 8192 + '"}}', "16384"),
        ('{"headers": {"a": 1e999}}', "Headers"),
        ('{"args": ' + "[" * 100_000, "deep"),
        ('{"priority": ' + "1" * 5000 + "}", "range"),
        (b'{"key": "\xff"}', "UTF-8"),
        (b"\xef\xbb\xbf{}", "not a JSON object"),
    ],
)
def test_a_bad_line_is_an_error_that_says_why(text: str | bytes, says: str) -> None:
    with pytest.raises(TenureError) as caught:
        parse(text)
    assert says in str(caught.value)


def test_a_line_is_read_up_to_a_limit_and_skipped_beyond_it() -> None:
    file = io.BytesIO(b"12345678\n\n  \nabc\n" + b"x" * 30 + b"\nlast")
    found = list(lines(file, longest=9))
    assert found == [Line(1, b"12345678\n", 9), Line(4, b"abc\n", 17), Line(5, None, 48), Line(6, b"last", 52)]
    with pytest.raises(TenureError, match="longer"):
        parsed(found[2])


def test_a_line_that_ends_exactly_at_the_limit_is_not_too_long() -> None:
    found = list(lines(io.BytesIO(b"123456789\n12\n"), longest=9))
    assert found == [Line(1, None, 10), Line(2, b"12\n", 13)]
