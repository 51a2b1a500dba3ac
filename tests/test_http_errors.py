"""Errors of the three real HTTP libraries, classed by status and Retry-After."""

from __future__ import annotations

import csv
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import httpx
import pytest
import requests
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from tenure.errors import Permanent
from tenure.http_errors import classify_http, retry_after
from tenure.policy import MAX_WAIT, Policy, Verdict, classify

with (Path(__file__).parent / "cases" / "http-classes.csv").open(newline="") as file:
    CASES = list(csv.DictReader(file))

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def httpx_error(status: int, headers: Mapping[str, str]) -> BaseException:
    request = httpx.Request("GET", "http://example.test")
    response = httpx.Response(status, headers=headers, request=request)
    return httpx.HTTPStatusError(str(status), request=request, response=response)


def requests_error(status: int, headers: Mapping[str, str]) -> BaseException:
    response = requests.Response()
    response.status_code = status
    response.headers.update(headers)
    return requests.HTTPError(str(status), response=response)


def aiohttp_error(status: int, headers: Mapping[str, str]) -> BaseException:
    url = URL("http://example.test")
    sent = CIMultiDictProxy(CIMultiDict[str]())
    request = aiohttp.RequestInfo(url, "GET", sent, url)
    return aiohttp.ClientResponseError(request, (), status=status, headers=CIMultiDict(headers))


STATUS_ERRORS: list[Callable[[int, Mapping[str, str]], BaseException]] = [httpx_error, requests_error, aiohttp_error]

NO_ANSWER: dict[str, list[BaseException]] = {
    "timeout": [
        httpx.ConnectTimeout("slow"),
        httpx.ReadTimeout("slow"),
        httpx.PoolTimeout("slow"),
        requests.Timeout("slow"),
        requests.ConnectTimeout("slow"),
        aiohttp.ServerTimeoutError("slow"),
        aiohttp.ConnectionTimeoutError("slow"),
        TimeoutError("slow"),
    ],
    "connection refused": [
        httpx.ConnectError("refused"),
        requests.ConnectionError("refused"),
        aiohttp.ClientConnectionError("refused"),
        aiohttp.ServerDisconnectedError(),
        ConnectionRefusedError("refused"),
    ],
    "name not resolved": [
        httpx.ConnectError("[Errno -2] Name or service not known"),
        requests.ConnectionError("name not resolved"),
        aiohttp.ClientConnectionError("name not resolved"),
        socket.gaierror(-2, "Name or service not known"),
    ],
}


@pytest.mark.parametrize("make", STATUS_ERRORS)
@pytest.mark.parametrize(
    "case", [case for case in CASES if case["status"].isdigit()], ids=lambda case: "-".join(case.values())
)
def test_each_status_has_its_class_in_each_library(
    case: dict[str, str], make: Callable[[int, Mapping[str, str]], BaseException]
) -> None:
    asked = case["retry_after"]
    exc = make(int(case["status"]), {"Retry-After": asked} if asked else {})
    assert classify(exc, Policy()) == Verdict(case["class"], float(asked) if asked else None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("exc", "expected"),
    [(exc, case["class"]) for case in CASES if not case["status"].isdigit() for exc in NO_ANSWER[case["status"]]],
    ids=repr,
)
def test_no_answer_at_all_is_transient(exc: BaseException, expected: str) -> None:
    assert classify(exc, Policy()).kind == expected


@pytest.mark.parametrize("make", STATUS_ERRORS)
@pytest.mark.parametrize("header", ["soon", "-5", "0", "", "Wed, 21 Oct 2015 07:28:00 GMT", "1_0", "\x00"])
def test_an_unreadable_retry_after_still_throttles(
    header: str, make: Callable[[int, Mapping[str, str]], BaseException]
) -> None:
    assert classify(make(503, {"RETRY-AFTER": header}), Policy()) == Verdict("throttled")


@pytest.mark.parametrize("make", STATUS_ERRORS)
def test_a_retry_after_date_is_measured_from_the_answers_own_date(
    make: Callable[[int, Mapping[str, str]], BaseException],
) -> None:
    headers = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT", "Date": "Wed, 21 Oct 2015 07:27:00 GMT"}
    assert classify(make(429, headers), Policy()) == Verdict("throttled", 60.0)


def test_an_absurd_retry_after_waits_a_year() -> None:
    assert classify(httpx_error(429, {"Retry-After": "9" * 400}), Policy()) == Verdict("throttled", MAX_WAIT)


@pytest.mark.parametrize(
    ("value", "date", "expected"),
    [
        ("120", None, 120.0),
        (" 1.5 ", None, 1.5),
        ("0", None, None),
        ("٣", None, None),
        (None, None, None),
        ("Thu, 01 Jan 2026 12:00:30 GMT", None, 30.0),
        ("Thu, 01 Jan 2026 12:00:30 -0000", None, 30.0),
        ("Thu, 01 Jan 2026 13:00:30 +0100", None, 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", None, None),
        ("Thu, 01 Jan 2026 12:00:30 GMT", "nonsense", 30.0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", "Thu, 01 Jan 2026 12:00:20 GMT", 10.0),
        ("Thu, 99 Jan 99999 12:00:30 GMT", None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, date: str | None, expected: float | None) -> None:
    assert retry_after(value, date, lambda: NOW) == expected


@pytest.mark.parametrize("make", STATUS_ERRORS)
@pytest.mark.parametrize("status", [200, 600, 0])
def test_an_unexpected_status_is_transient(
    status: int, make: Callable[[int, Mapping[str, str]], BaseException]
) -> None:
    assert classify(make(status, {}), Policy()) == Verdict("transient")


def test_an_error_without_a_response_is_transient() -> None:
    assert classify(requests.HTTPError("no response"), Policy()) == Verdict("transient")
    assert classify(aiohttp_error(503, {}), Policy()) == Verdict("transient")


def test_a_subclass_in_the_application_is_recognised() -> None:
    class BankError(requests.HTTPError):
        """Of an application's own client."""

    response = requests.Response()
    response.status_code = 404
    assert classify(BankError(response=response), Policy()) == Verdict("permanent")


def test_a_kinds_own_rules_come_before_the_status() -> None:
    own = Policy(transient=httpx.HTTPStatusError, permanent=requests.HTTPError)
    assert classify(httpx_error(404, {}), own) == Verdict("transient")
    assert classify(requests_error(503, {"Retry-After": "5"}), own) == Verdict("permanent")


def test_other_errors_are_none_of_its_business() -> None:
    class Lookalike(Exception):
        """Has a status, but of what?"""

        status = 404

    assert classify_http(Lookalike()) is None
    assert classify_http(Permanent()) is None
