"""The text PostgreSQL prints for a jsonb value, made without PostgreSQL.

Only the in-memory twin needs it, for stored text, sizes and fingerprints: names sorted by length in bytes, then by
bytes; the last of equal names wins; numbers keep their digits (1 and 1.0 differ, 1e2 is 100).
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


def jsonb_text(text: str) -> str:
    """What ``text::jsonb::text`` gives; ValueError for what PostgreSQL refuses: bad JSON, NaN, NUL, lone surrogates."""
    return _print(json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=_refuse))


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _print(value: Any) -> str:
    match value:
        case Decimal():
            return format(value if value else abs(value), "f")
        case list():
            return f"[{', '.join(map(_print, value))}]"
        case dict():
            return f"{{{', '.join(f'{_print(name)}: {_print(value[name])}' for name in sorted(value, key=_rank))}}}"
        case str():
            return _quote(value)
        case _:
            return json.dumps(value)


def _quote(text: str) -> str:
    text.encode()  # a lone surrogate is a UnicodeEncodeError, and that a ValueError
    if "\x00" in text:
        raise ValueError("NUL cannot be kept")
    return json.dumps(text, ensure_ascii=False)


def _rank(name: str) -> tuple[int, bytes]:
    data = name.encode()
    return len(data), data
