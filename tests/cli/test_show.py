"""What is printed can do nothing to a terminal, and JSON is JSON."""

from __future__ import annotations

import json
import unicodedata
from datetime import datetime, timedelta, timezone

import pytest

from tenure.cli import show
from tests.support.properties import given, st

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(value=values)
def test_json_is_ascii_on_one_line_and_reads_back(value: object) -> None:
    text = show.json_text(value)
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == value


@given(value=values)
def test_raw_json_stands_as_it_is(value: object) -> None:
    for ascii in (True, False):
        raw = json.dumps(value, ensure_ascii=ascii)
        assert json.loads(show.json_text({"a": [show.Raw(raw)]})) == {"a": [value]}


@given(value=values)
def test_pretty_json_reads_back(value: object) -> None:
    pretty = show.pretty(json.dumps(value, ensure_ascii=False))
    assert json.loads(pretty) == value
    assert show.safe(pretty, lines=True) == pretty


def test_numbers_keep_their_digits() -> None:
    assert show.pretty('{"a":1.10,"b":[1e400,12345678901234567890.0]}') == (
        '{\n  "a": 1.10,\n  "b": [\n    1e400,\n    12345678901234567890.0\n  ]\n}'
    )
    assert show.json_text({"a": show.Raw("1.10")}) == '{"a": 1.10}'


def test_what_is_nested_too_deep_is_shown_as_it_is() -> None:
    deep = "[" * 5000 + "]" * 5000
    assert show.pretty(deep) == deep


@given(text=st.text())
def test_safe_text_has_no_control_characters(text: str) -> None:
    for lines in (True, False):
        shown = show.safe(text, lines=lines)
        controls = {char for char in shown if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")}
        assert controls <= ({"\n", "\t"} if lines else set())
        assert not any(unicodedata.bidirectional(char) in ("RLO", "LRO", "RLE", "LRE", "RLI", "LRI") for char in shown)


def test_safe_text_shows_what_was_there() -> None:
    assert show.safe("a\x1b[2J\n\u202eé😀") == "a\\x1b[2J\\n\\u202eé😀"


def test_tables_take_nothing_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(["id", "number"], [["[red]a[/red]", 1], [":smile:", 200], [None, True]])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "id            number",
        "[red]a[/red]       1",
        ":smile:          200",
        "                 yes",
    ]


def test_details_leave_out_what_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    show.details({"a": "[red]x\n  y", "none": None, "empty": "", "zero": 0})
    assert capsys.readouterr().out == "a      [red]x\n         y\nzero   0\n"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, ""),
        (0, "0s"),
        (0.25, "0.2s"),
        (30, "30s"),
        (90, "1m 30s"),
        (7500, "2h 05m"),
        (604800, "7d"),
        (90000, "1d 01h"),
    ],
)
def test_lengths_of_time(seconds: float | None, shown: str) -> None:
    assert show.span(seconds) == shown


def test_moments_are_local_for_people_and_utc_for_programs() -> None:
    at = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert datetime.fromisoformat(show.moment(at)) == at
    assert show.moment(None) == ""
    assert show.json_text(at) == '"2030-01-01T07:00:00+00:00"'
