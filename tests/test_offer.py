"""What is offered at the door: options that cannot be are refused with words, before anything is stored."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from tenure.errors import ConfigError, PayloadTooLarge, Refused
from tenure.offer import EARLIEST, HEADERS_BYTES, LONGEST_WAIT, headers_text, new_job

SOON = datetime.now(UTC) + timedelta(hours=1)
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))


@pytest.mark.parametrize("name", ["at", "expires"])
@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1, tzinfo=EAST),
        datetime(1, 1, 1, tzinfo=UTC),
        EARLIEST - timedelta(microseconds=1),
        datetime(2000, 1, 1, 13, 59, tzinfo=EAST),
        timedelta(seconds=LONGEST_WAIT, minutes=5),  # from when the test runs, not from when it is collected
        datetime.max.replace(tzinfo=WEST),
    ],
    ids=["before year 1", "year 1", "just too early", "too early elsewhere", "too late", "after year 9999"],
)
def test_a_moment_out_of_range_is_refused(name: str, moment: datetime | timedelta) -> None:
    options: dict[str, Any] = {name: datetime.now(UTC) + moment if isinstance(moment, timedelta) else moment}
    with pytest.raises(Refused, match=f"^{name} .* is out of range") as caught:
        new_job("{}", **options)
    assert caught.value.hint == "Use a moment from 2000-01-01 UTC to 3650 days from now."


@pytest.mark.parametrize(
    "moment", [EARLIEST, EARLIEST.astimezone(WEST), SOON, datetime.now(EAST) + timedelta(seconds=LONGEST_WAIT)]
)
def test_a_moment_in_range_is_taken(moment: datetime) -> None:
    job = new_job("{}", at=moment, expires=moment)
    assert (job.at, job.expires_at, job.expires_in) == (moment, moment, None)


@pytest.mark.parametrize("name", ["at", "expires"])
def test_a_moment_without_a_zone_is_refused(name: str) -> None:
    options: dict[str, Any] = {name: SOON.replace(tzinfo=None)}
    with pytest.raises(Refused, match="no time zone"):
        new_job("{}", **options)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"key": 5}, Refused, "key is of type int"),
        ({"key": b"k"}, Refused, "key is of type bytes"),
        ({"priority": "5"}, Refused, "priority is of type str"),
        ({"priority": True}, Refused, "priority is of type bool"),
        ({"priority": 1.5}, Refused, "priority is of type float"),
        ({"priority": None}, Refused, "priority is None"),
        ({"priority": 10}, Refused, "Priority 10 is not one"),
        ({"priority": 10**5000}, Refused, "Priority … is not one"),
        ({"delay": True}, ConfigError, "delay: True is not a duration"),
        ({"delay": None}, ConfigError, "delay: None is not a duration"),
        ({"delay": SOON}, ConfigError, "delay: .* is not a duration"),
        ({"delay": "soon"}, ConfigError, "delay: 'soon' is not a duration"),
        ({"delay": [1]}, ConfigError, "delay: .* is not a duration"),
        ({"at": "tomorrow"}, Refused, "at is of type str"),
        ({"at": 60}, Refused, "at is of type int"),
        ({"at": date(2030, 1, 1)}, Refused, "at is of type date"),
        ({"at": timedelta(hours=1)}, Refused, "at is of type timedelta"),
        ({"expires": True}, ConfigError, "expires: True is not a duration"),
        ({"expires": "tomorrow"}, ConfigError, "expires: 'tomorrow' is not a duration"),
        ({"expires": date(2030, 1, 1)}, ConfigError, "expires: .* is not a duration"),
        ({"expires": -1}, ConfigError, "expires: -1 is not a duration"),
        ({"expires": LONGEST_WAIT + 1}, ConfigError, "expires is longer than 3650 days"),
        ({"at": SOON, "delay": 1}, Refused, "both a delay and a moment"),
    ],
)
def test_an_option_of_a_wrong_kind_is_told(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        new_job("{}", **options)


@pytest.mark.parametrize("headers", ["{}", [("a", 1)], 5, True, object()])
def test_headers_are_a_mapping(headers: Any) -> None:
    with pytest.raises(Refused, match="not a mapping"):
        headers_text(headers)


def test_headers_have_a_limit_in_bytes() -> None:
    frame = len('{"a": ""}')
    fits = headers_text({"a": "é" * ((HEADERS_BYTES - frame) // 2) + "x"})
    assert len(fits.encode()) == HEADERS_BYTES
    assert new_job("{}", headers=fits).headers == fits
    for longer in (fits.replace("x", "xx"), " " * HEADERS_BYTES + "{}", "\ud800" * HEADERS_BYTES):
        with pytest.raises(PayloadTooLarge, match="more than the 16384 allowed") as caught:
            new_job("{}", headers=longer)
        assert caught.value.kept == "Nothing was stored."
