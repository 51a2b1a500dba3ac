"""The lines of a jobs file: one JSON object each, read with bounded memory, the text of the arguments left as it is.

    {"kind": "mail.send", "args": {"order_id": 42}, "key": "order-42", "delay": "5m", "priority": 3}

``args`` and ``headers`` are cut out of the line and stored unchanged: a number that went through Python's floats would come
out as another number, and with it another fingerprint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, BinaryIO, NamedTuple

from tenure.errors import ConfigError, InvalidPayload, Refused
from tenure.job import NewJob
from tenure.names import checked_name
from tenure.offer import new_job
from tenure.policy import duration

LONGEST = 4 * 1024 * 1024
"""Bytes of the longest line that is looked at."""

_MEMBERS = ("kind", "args", "key", "replace", "delay", "at", "expires", "priority", "queue", "headers", "order")
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class Line(NamedTuple):
    """A line that is not empty.

    Args:
        number: counted from 1.
        text: None when it is too long.
        read: bytes of the file up to its end.
    """

    number: int
    text: bytes | None
    read: int


class Offer(NamedTuple):
    """A job as a line offers it; ``kind`` and ``queue`` are None where it names none."""

    kind: str | None
    queue: str | None
    job: NewJob


def lines(file: BinaryIO, longest: int = LONGEST) -> Iterator[Line]:
    """The lines of a file, without the empty ones."""
    number = read = 0
    while chunk := file.readline(longest + 1):
        number += 1
        read += len(chunk)
        too_long = len(chunk) > longest
        while len(chunk) > longest and not chunk.endswith(b"\n"):
            chunk = file.readline(longest + 1)
            read += len(chunk)
        if too_long or chunk.strip():
            yield Line(number, None if too_long else chunk, read)


def parsed(line: Line) -> Offer:
    """The job that a line offers.

    Raises:
        Refused, ConfigError: it is not one; the arguments are not looked at.
    """
    if line.text is None:
        raise Refused(f"The line is longer than {LONGEST} bytes.")
    try:
        text = line.text.decode("utf-8-sig" if line.number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise InvalidPayload("The line is not UTF-8.") from None
    members = _members(text)
    if unknown := members.keys() - set(_MEMBERS):
        raise Refused(f"The line has a member {min(unknown)[:100]!r}.", hint=f"Known are {', '.join(_MEMBERS)}.")
    values = {name: member.value for name, member in members.items() if member.value is not None}
    return Offer(
        kind=_text(values, "kind"),
        queue=_queue(values),
        job=new_job(
            members["args"].text if "args" in values else "{}",
            key=_text(values, "key"),
            replace=_truth(values, "replace"),
            delay=_duration(values, "delay") or 0,
            at=moment("at", _text(values, "at")),
            expires=_expiry(values),
            priority=_whole(values, "priority", 5),
            headers=members["headers"].text if "headers" in values else None,
            order=_text(values, "order"),
        ),
    )


def moment(name: str, text: str | None) -> datetime | None:
    """A moment, ISO 8601; that it has a zone is checked where the job is made.

    Raises:
        ConfigError: it is none.
    """
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{name} {text[:100]!r} is not a moment.", hint="Write 2030-01-31T12:00:00Z.") from None


def expiry(text: str | None) -> str | datetime | None:
    """A duration or a moment, whichever the text is."""
    return moment("expires", text) if text and re.match(r"\d{4}-", text) else text


class _Member(NamedTuple):
    value: Any
    text: str


def _members(text: str) -> dict[str, _Member]:
    """The members of a JSON object, each with the text of its value."""
    try:
        return dict(_pairs(text))
    except RecursionError:
        raise InvalidPayload("The line is nested too deep.") from None
    except json.JSONDecodeError as error:
        raise InvalidPayload(f"The line is not a JSON object: {error.msg} (char {error.pos}).") from None
    except ValueError:  # more digits than Python reads
        raise InvalidPayload("The line has a number out of range.") from None


def _pairs(text: str) -> Iterator[tuple[str, _Member]]:
    at = _after(text, "{", _skip(text, 0))
    seen: set[str] = set()
    while not text.startswith("}", at):
        name, at = _value(text, at)
        if not isinstance(name, str):
            raise json.JSONDecodeError("Expecting a name in double quotes", text, at)
        if name in seen:
            raise InvalidPayload(f"The line has the duplicate name {name[:100]!r}.")
        seen.add(name)
        start = _after(text, ":", at)
        value, end = _value(text, start)
        yield name, _Member(value, text[start:end])
        at = _skip(text, end)
        if not text.startswith("}", at):
            at = _after(text, ",", at)
            if text.startswith("}", at):
                raise json.JSONDecodeError("Expecting a name in double quotes", text, at)
    if (end := _skip(text, at + 1)) != len(text):
        raise json.JSONDecodeError("Extra data", text, end)


def _value(text: str, at: int) -> tuple[Any, int]:
    value, end = _DECODER.raw_decode(text, at)
    return value, end


def _after(text: str, mark: str, at: int) -> int:
    at = _skip(text, at)
    if not text.startswith(mark, at):
        raise json.JSONDecodeError(f"Expecting {mark!r}", text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _text(values: dict[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise Refused(f"{name} is not text.")
    return value


def _queue(values: dict[str, Any]) -> str | None:
    name = _text(values, "queue")
    return None if name is None else checked_name("queue", name)


def _whole(values: dict[str, Any], name: str, default: int) -> int:
    value = values.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(f"{name} is not a whole number.")
    return value


def _truth(values: dict[str, Any], name: str) -> bool:
    value = values.get(name, False)
    if not isinstance(value, bool):
        raise Refused(f"{name} is neither true nor false.")
    return value


def _duration(values: dict[str, Any], name: str) -> float | None:
    value = values.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float | str)):
        raise Refused(f"{name} is not a duration.", hint='Write seconds or "30s", "5m", "1h", "7d".')
    return None if value is None else duration(value)


def _expiry(values: dict[str, Any]) -> float | datetime | None:
    value = values.get("expires")
    later = expiry(value) if isinstance(value, str) else value
    return later if isinstance(later, datetime) else _duration({"expires": later}, "expires")
