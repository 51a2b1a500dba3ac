"""For each version a second server beside that of the test run: where a backup is restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tenure import embedded
from tests.conftest import PG15, Server


class Pair(NamedTuple):
    """Two servers of one version."""

    here: Server
    elsewhere: Server


def _beside(server: Server, home: Path, bin_dir: Path | None) -> Iterator[Pair]:
    with embedded.attach(home, bin_dir=bin_dir) as engine:
        yield Pair(server, Server(engine, "template0"))


@pytest.fixture(scope="session")
def pair18(pg18: Server, base: Path) -> Iterator[Pair]:
    yield from _beside(pg18, base / "elsewhere18", None)


@pytest.fixture(scope="session")
def pair15(pg15: Server, base: Path) -> Iterator[Pair]:
    yield from _beside(pg15, base / "elsewhere15", PG15)


@pytest.fixture(params=["pair18", "pair15"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Each supported version in turn."""
    found: Pair = request.getfixturevalue(request.param)
    return found
