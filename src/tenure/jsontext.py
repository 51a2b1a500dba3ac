"""JSON text that PostgreSQL keeps unchanged, or a typed error before anything is stored.

``jsonb`` is stricter than Python: it knows no NaN, no NUL, no half of a surrogate pair; it keeps one of two equal
names; and it writes numbers out in full. What would be refused or changed behind the caller's back is therefore
refused here, at the door, where somebody can still act on it. Three faces:

* :func:`dumps` for values of this process (arguments);
* :func:`check` for text that others wrote (command line, HTTP): it is parsed strictly and stored as it came;
* :func:`clean` and :func:`dumps_or_note` for what a finished attempt leaves behind (error messages, tracebacks,
  results): they mend or replace instead of refusing, because nothing may block a settlement.

The limits lie inside those of PostgreSQL *and* of the Python that will read the payload again: 200 levels
(pydantic serialises 255, PostgreSQL's stack allows some 6,000), 4,300 digits for an integer (Python's own limit;
numeric has 131,072), numbers with a fraction or exponent within the range of a double, exponents up to 400 (five
characters must not become 16 kB of zeros), 16,383 decimal places.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator
from decimal import Decimal
from typing import Any, Final, NoReturn

from pydantic_core import to_json, to_jsonable_python

from tenure.errors import InvalidPayload

MAX_DEPTH: Final = 200
"""Levels of arrays and objects, the outermost included."""

MAX_DIGITS: Final = 4300
"""Digits of an integer."""

MAX_EXPONENT: Final = 400
"""Largest exponent a number may be written with, either way."""

MAX_DECIMALS: Final = 16383
"""Digits after the decimal point once the number is written out."""

MOST_GROWTH: Final = 70
"""How many times as long as a text that was checked PostgreSQL's own can be: ``1e-400`` has 402 characters there."""

NOTE: Final = "result not stored"
"""What stands under ``tenure`` in the object that replaces a result, see :func:`dumps_or_note`."""

_WRITER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, check_circular=False)  # pydantic has seen to circles
_WITHOUT_MEMBERS = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = frozenset({dict, list, tuple, set, frozenset, deque})
_CUT = "\n… cut …\n"
_WHY_LIMIT = 500
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_FLOAT_WITH_EXPONENT = re.compile(r"\de[+-]\d")
_STRING_OR_FLOAT = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?e[+-]\d+', re.DOTALL)
_ESCAPE = re.compile(
    r"""  \\u[dD][89abAB][0-9a-fA-F]{2} \\u[dD][c-fC-F][0-9a-fA-F]{2}   # a whole surrogate pair
        | (?P<nul>  \\u0000 )
        | (?P<lone> \\u[dD][89a-fA-F][0-9a-fA-F]{2} )
        | \\.                                                           # any other escape, stepped over
    """,
    re.VERBOSE,
)


def dumps(value: object) -> str:
    """The JSON text of a value, as long as PostgreSQL's own text of it and equal to it when read back.

    Takes what pydantic serialises: JSON types, dataclasses, models, dates, UUIDs, enums, sets, UTF-8 bytes; names
    that are not strings become strings. A float keeps its point (``1e16`` is written ``10000000000000000.0``), so
    that it comes back as a float. Iterators are not taken: reading one would use it up, and it may have no end.

    Raises:
        InvalidPayload: the value has no JSON form, is or holds an iterator, holds NaN, an infinity, NUL or a lone
            surrogate, is nested deeper than ``MAX_DEPTH``, or two names of one object become the same text.
    """
    try:
        _refuse_iterators(value)
        plain = to_jsonable_python(value)
        text = _WRITER.encode(plain)
    except InvalidPayload:
        raise
    except Exception as error:
        raise InvalidPayload(
            f"The value cannot be written as JSON: {_said(error)}.",
            hint=f"Use finite numbers, text, lists, mappings or types pydantic knows, at most {MAX_DEPTH} levels deep.",
        ) from error
    _refuse_depth(text, plain)
    _refuse_unstorable(text)
    if len(to_json(value)) != len(to_json(plain)):  # names that collapsed made it shorter
        json.loads(to_json(value), object_pairs_hook=_object)
    return _written_out(text)


def check(text: str) -> dict[str, Any]:
    """The object that a JSON text from outside holds; the caller stores the text itself, so nothing is changed.

    Raises:
        InvalidPayload: not JSON; not an object; a name twice; NaN or an infinity; a number out of range; NUL or a
            lone surrogate; nested deeper than ``MAX_DEPTH``.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float
        )
    except RecursionError as error:
        raise _too_deep() from error
    except json.JSONDecodeError as error:
        raise InvalidPayload(f"The payload is not JSON: {error}.") from error
    _refuse_depth(text, value)
    _refuse_unstorable(text)
    if not isinstance(value, dict):
        raise InvalidPayload(
            f"The payload is a JSON {_json_type(value)}, but arguments are an object.",
            hint='Write {"name": value, ...}, with the names of the handler\'s parameters.',
        )
    return value


def clean(text: str, limit: int) -> str:
    """Text that PostgreSQL stores, in at most ``limit`` bytes of UTF-8; for messages and tracebacks, never raises.

    NUL and lone surrogates become U+FFFD. What is too long loses its middle: a message says most at its beginning, a
    traceback at its end.
    """
    if len(text) > 2 * limit:  # bound the work, too: both halves still hold more than is kept
        text = text[: limit + 1] + text[-limit - 1 :]
    data = _UNSTORABLE.sub("\ufffd", text).encode()
    if len(data) <= limit:
        return data.decode()
    cut = _CUT.encode() if limit > 4 * len(_CUT) else b""
    room = max(limit - len(cut), 0)
    head, tail = data[: room - room // 2], data[len(data) - room // 2 :]
    return (head.decode(errors="ignore").encode() + cut + tail.decode(errors="ignore").encode()).decode()


def dumps_or_note(value: object, limit: int) -> str | None:
    """The JSON text of a handler's result, or a note in its place; never raises, so that it cannot block a settlement.

    Args:
        value: what the handler returned; None is no result and gives None.
        limit: the largest result in bytes of UTF-8.

    Returns:
        The text of the value; or, if it has none or is larger, that of
        ``{"tenure": "result not stored", "why": "<the reason, at most 500 bytes>"}``.
    """
    if value is None:
        return None
    try:
        if iterator := _iterator(value):
            return _note(f"{iterator} is not a result")
        text = dumps(value)
    except InvalidPayload as error:
        return _note(error.what)
    except BaseException as error:  # what writes itself may raise anything, SystemExit too
        return _note(_said(error))
    size = len(text.encode())
    return text if size <= limit else _note(f"The result has {size} bytes, more than the {limit} allowed.")


def why_not_stored(value: object) -> str | None:
    """The reason in a note that stands in a result's place; None of a real result."""
    if isinstance(value, dict) and value.keys() == {"tenure", "why"} and value["tenure"] == NOTE:
        return str(value["why"])
    return None


def _note(why: str) -> str:
    return json.dumps({"tenure": NOTE, "why": clean(why, _WHY_LIMIT)}, ensure_ascii=False)


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:
        return type(error).__name__


# -- what json.loads calls back ---------------------------------------------------------------------------------------


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise InvalidPayload(
        f"The payload has the duplicate name {clean(twice, 100)!r}.",
        hint="PostgreSQL would keep the last one only; names that are not strings are compared as text.",
    )


def _constant(name: str) -> NoReturn:
    raise InvalidPayload(f"The payload is not JSON: {name} is no JSON number.", hint="Send null or text instead.")


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise _out_of_range(digits)
    try:
        return int(digits)
    except ValueError as error:  # this process allows fewer digits than Python does by default
        raise _out_of_range(digits) from error


def _float(digits: str) -> float:
    mantissa, _, power = digits.lower().partition("e")
    if len(power) > 8 or abs(exponent := int(power or "0")) > MAX_EXPONENT:
        raise _out_of_range(digits)
    decimals = len(mantissa.partition(".")[2]) - exponent
    value = float(digits)
    if decimals > MAX_DECIMALS or not math.isfinite(value):
        raise _out_of_range(digits)
    return value


# -- the refusals -----------------------------------------------------------------------------------------------------


def _refuse_iterators(value: object) -> None:
    """Look into containers and dataclasses, each once; models say themselves how they are written."""
    seen: set[int] = set()
    found: list[object] = [value]
    while found:
        member = found.pop()
        if type(member) in _WITHOUT_MEMBERS or id(member) in seen:
            continue
        if type(member) not in _CONTAINERS and (iterator := _iterator(member)):
            raise InvalidPayload(
                f"The value is or holds {iterator}, which writing would use up.", hint="Make a list of it: list(...)."
            )
        if members := _members(member):
            seen.add(id(member))
            found.extend(members)


def _iterator(value: object) -> str | None:
    """What a value is called that can be read only once; None if it is not such a one."""
    if isinstance(value, Generator | AsyncGenerator):
        return "a generator"
    return "an iterator" if isinstance(value, Iterator | AsyncIterator) else None


def _members(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return ()


def _refuse_depth(text: str, value: object) -> None:
    if len(text) <= 2 * MAX_DEPTH or text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _nested(outer)]
    if level:
        raise _too_deep()


def _nested(outer: object) -> list[object]:
    members = outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ()
    return [member for member in members if isinstance(member, dict | list)]


def _refuse_unstorable(text: str) -> None:
    if not text.isascii() and _has_lone_surrogate(text):
        raise _lone_surrogate()
    if "\\u" not in text:
        return
    for escape in _ESCAPE.finditer(text):
        if escape["nul"]:
            raise InvalidPayload(
                "The payload contains NUL (\\u0000), which PostgreSQL cannot keep in text.",
                hint="Remove it, or send binary data as base64.",
            )
        if escape["lone"]:
            raise _lone_surrogate()


def _has_lone_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _lone_surrogate() -> InvalidPayload:
    return InvalidPayload(
        "The payload contains a lone surrogate (half of a character), which is not Unicode text.",
        hint="Decode the text with its real encoding, or send it as base64.",
    )


def _too_deep() -> InvalidPayload:
    return InvalidPayload(
        f"The payload is nested too deep: more than {MAX_DEPTH} levels.",
        hint="Flatten it, or send the nested part as a string.",
    )


def _out_of_range(digits: str) -> InvalidPayload:
    shown = digits if len(digits) <= 40 else f"{digits[:20]}… ({len(digits)} characters)"
    return InvalidPayload(
        f"The payload has a number out of range: {shown}.",
        hint=f"At most {MAX_DIGITS} digits, or a 64-bit float; send anything else as text.",
    )


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    return {list: "array", str: "string", bool: "boolean"}.get(type(value), "number")


# -- numbers as PostgreSQL writes them --------------------------------------------------------------------------------


def _written_out(text: str) -> str:
    if ("e+" not in text and "e-" not in text) or not _FLOAT_WITH_EXPONENT.search(text):
        return text
    return _STRING_OR_FLOAT.sub(lambda match: match[0] if match[0].startswith('"') else _positional(match[0]), text)


def _positional(number: str) -> str:
    digits = f"{Decimal(number):f}"
    return digits if "." in digits else f"{digits}.0"
