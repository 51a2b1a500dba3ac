"""What drivers are told: the same statement in the ways in which they write values."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from asyncpg.pgproto import pgproto

from tenure import ConfigError
from tenure.drivers import as_uuid, sqlstate
from tenure.drivers.script import Statement, dialect, marked, named, numbered, plain
from tenure.drivers.sqlalchemy import _for_driver
from tenure.store.statements import statement

SAID = Statement("select %(b)s, %(a)s::int, %(b)s || ':c ? $1'", {"a": 1, "b": "x", "unused": 2})


def test_numbers_are_one_for_each_name() -> None:
    assert numbered(SAID) == ("select $1, $2::int, $1 || ':c ? $1'", ["x", 1])


def test_marks_are_one_for_each_place() -> None:
    assert marked(SAID, "?") == ("select ?, ?::int, ? || ':c ? $1'", ["x", 1, "x"])
    assert marked(SAID, "%s")[0] == "select %s, %s::int, %s || ':c ? $1'"


def test_names_stay_names() -> None:
    assert named(SAID)[0] == "select :b, :a::int, :b || ':c ? $1'"


@pytest.mark.parametrize("style", ["pyformat", "named", "numeric_dollar", "qmark", "format"])
def test_sqlalchemys_styles_are_known(style: str) -> None:
    text, values = _for_driver(SAID, style)
    assert text.startswith("select ")
    assert len(values) in (2, 3)


def test_a_style_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"in the style 'numeric'.*Nothing was stored"):
        _for_driver(SAID, "numeric")


def test_uuids_and_times_travel_as_text_wherever_the_statement_says_their_type() -> None:
    one, at = uuid4(), datetime(2030, 1, 31, 12, 30, 0, 5, tzinfo=UTC)
    said = plain(
        Statement(
            "select %(ids)s::uuid[], %(id)s::uuid, %(ats)s::timestamptz[], %(at)s::timestamptz, %(bare)s, %(n)s::int[]",
            {"ids": [one, None], "id": one, "ats": [None, at], "at": at, "bare": one, "n": [1]},
        )
    )
    assert said.text == (
        "select %(ids)s::text[]::uuid[], %(id)s::text::uuid, %(ats)s::text[]::timestamptz[],"
        " %(at)s::text::timestamptz, %(bare)s, %(n)s::int[]"
    )
    assert said.values == {
        "ids": [str(one), None],
        "id": str(one),
        "ats": [None, "2030-01-31T12:30:00.000005+00:00"],
        "at": "2030-01-31T12:30:00.000005+00:00",
        "bare": one,
        "n": [1],
    }


def test_a_statement_without_such_values_is_left_as_it_is() -> None:
    assert plain(SAID) is SAID


@pytest.mark.parametrize("name", ["accept", "replace"])
def test_what_is_said_to_enqueue_names_the_type_of_every_uuid_and_time(name: str) -> None:
    """A bare one would be left to the driver."""
    text = statement(name, "tenure")
    for value in ("id", "at", "expires_at"):
        assert text.count(f"%({value})s") == text.count(f"%({value})s::")


def test_whatever_a_driver_gives_for_a_uuid_is_a_plain_one() -> None:
    one = uuid4()
    for given in (
        one,
        str(one),
        one.hex,
        pgproto.UUID(str(one)),
        one.bytes,
        bytearray(one.bytes),
        memoryview(one.bytes),
    ):
        assert type(as_uuid(given)) is UUID
        assert as_uuid(given) == one


def test_a_dialect_goes_by_several_names() -> None:
    assert [dialect(name) for name in ("postgresql", "mysql", "mariadb", "sqlite")] == [
        "postgresql",
        "mysql",
        "mysql",
        "sqlite",
    ]
    with pytest.raises(ConfigError, match="a database called 'oracle'"):
        dialect("oracle")


def test_an_sqlstate_is_found_beneath_what_libraries_wrap_around_it() -> None:
    class Inner(Exception):
        sqlstate = "40001"

    class Psycopg2s(Exception):
        pgcode = "25P02"

    class Wrapper(Exception):
        orig: Exception | None = None

    sqlalchemys = Wrapper()
    sqlalchemys.orig = Psycopg2s()
    djangos = Wrapper()
    djangos.__cause__ = Inner()
    assert [sqlstate(error) for error in (Inner(), sqlalchemys, djangos, Wrapper(), None)] == [
        "40001",
        "25P02",
        "40001",
        None,
        None,
    ]
