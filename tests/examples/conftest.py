"""The catalogue's school and its receiver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from examples.catalog_export import stage

from tests.examples.school import Receiver, School


@pytest.fixture(scope="session")
def receiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """The receiver of this process's tests; each delivery has a key of its own, so they do not meet."""
    directory = tmp_path_factory.mktemp("receiver")
    with stage.server(directory / "log", "receiver", RECEIVER_DB=str(directory / "receiver.sqlite")) as base:
        yield Receiver(base)


@pytest.fixture
def receiver(receiving: Receiver) -> Receiver:
    """The receiver, in a good mood."""
    receiving.will()
    return receiving


@pytest.fixture
def school(dsn: str, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[School]:
    school = School(dsn, tmp_path, receiver, monkeypatch)
    yield school
    school.close()
