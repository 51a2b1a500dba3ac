"""The independent walk: what the catalogue should say, found another way and without the queue."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import tokenize
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One catalogue row."""

    module: str
    lines: int
    functions: int
    classes: int
    sha256: str


def modules() -> dict[str, Path]:
    """The source file of every module of the standard library, its tests left out, by dotted name."""
    root = Path(sysconfig.get_path("stdlib"))
    found: dict[str, Path] = {}
    for name in sorted(sys.stdlib_module_names):
        for path in _sources(root, name):
            dotted = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            found[dotted] = path
    return found


def walked(found: dict[str, Path]) -> set[Row]:
    """What the catalogue should hold, counted from tokens."""
    return {_row(module, path.read_bytes()) for module, path in found.items()}


def _sources(root: Path, name: str) -> Iterator[Path]:
    if (root / f"{name}.py").is_file():
        yield root / f"{name}.py"
    elif (root / name / "__init__.py").is_file():
        yield from (path for path in sorted((root / name).rglob("*.py")) if not {"test", "tests"} & set(path.parts))


def _row(module: str, source: bytes) -> Row:
    words = [token.string for token in tokenize.tokenize(BytesIO(source).readline) if token.type == tokenize.NAME]
    return Row(
        module, len(source.splitlines()), words.count("def"), words.count("class"), hashlib.sha256(source).hexdigest()
    )
