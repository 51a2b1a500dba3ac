"""What an HTTP error says about trying again: permanent, transient or throttled.

The errors of httpx, requests and aiohttp are recognised by where their classes come from and read by attribute, so
that none of these libraries is imported. The rules, in order:

1. status 429, or any error status with a Retry-After: *throttled*. The wait is the header's; a header that is
   unreadable or lies in the past counts as absent, the answer stays throttled;
2. 408 and 425: *transient*; the other 3xx and 4xx: *permanent*;
3. 5xx, no answer at all (refused, timed out, name not resolved), and anything unexpected: *transient*.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, NamedTuple

LIBRARIES: Final = frozenset({"httpx", "requests", "aiohttp"})
"""Top-level packages whose errors are read."""

_TRANSIENT_4XX = frozenset({408, 425})
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")


class HttpVerdict(NamedTuple):
    """The class of an HTTP error and, if throttled, the seconds the other side asked for."""

    kind: Literal["permanent", "transient", "throttled"]
    after: float | None = None


def _utc_now() -> datetime:
    return datetime.now(UTC)


def classify_http(exc: BaseException, now: Callable[[], datetime] = _utc_now) -> HttpVerdict | None:
    """The verdict on an error of an HTTP library; None if it is none.

    A Retry-After that is a date is measured from the answer's own Date header, so that the clocks of the two sides
    need not agree; ``now`` is asked only where there is none.
    """
    if not _is_from_http_library(exc):
        return None
    status, headers = _answer(exc)
    if status is None:
        return HttpVerdict("transient")
    asked = headers.get("retry-after")
    if status == 429 or (asked is not None and status >= 300):
        return HttpVerdict("throttled", retry_after(asked, headers.get("date"), now))
    if 300 <= status < 500 and status not in _TRANSIENT_4XX:
        return HttpVerdict("permanent")
    return HttpVerdict("transient")


def retry_after(value: str | None, date: str | None = None, now: Callable[[], datetime] = _utc_now) -> float | None:
    """Seconds of a Retry-After header (a number or an HTTP date); None if absent, unreadable, zero or in the past."""
    if value is None:
        return None
    if _SECONDS.fullmatch(value.strip()):
        return float(value) or None
    until = _http_date(value)
    if until is None:
        return None
    wait = (until - (_http_date(date) or now())).total_seconds()
    return wait if wait > 0 else None


def _is_from_http_library(exc: BaseException) -> bool:
    return any(str(cls.__module__).partition(".")[0] in LIBRARIES for cls in type(exc).__mro__)


def _answer(exc: Any) -> tuple[int | None, dict[str, str]]:
    """Status and lower-case headers; httpx and requests hang them on a response, aiohttp on the error."""
    response = getattr(exc, "response", None)
    source = exc if response is None else response  # a requests.Response of 404 is falsy, hence no "or"
    status = getattr(source, "status_code", getattr(source, "status", None))
    headers = getattr(source, "headers", None) or {}
    return (
        status if isinstance(status, int) else None,
        {str(name).lower(): str(value) for name, value in headers.items()},
    )


def _http_date(value: str | None) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(value or "")
    except Exception:  # the header is the other side's, and the parser has more than one way to fail
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
