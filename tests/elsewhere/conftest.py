"""Databases for effects, writers with each library, and an eye on what has committed there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.elsewhere import ddl
from tests.conftest import Server
from tests.drivers.callers import Caller
from tests.elsewhere.places import Eye, Place, a_place
from tests.elsewhere.writers import WRITERS, writing


@pytest.fixture(params=WRITERS)
def library(request: pytest.FixtureRequest) -> str:
    """What a handler has its connection from: each in turn, or as a test says (``each_database``)."""
    name: str = request.param
    return name


@pytest.fixture
def place(library: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A database for the library, without a queue."""
    server: Server = request.getfixturevalue("pg15" if library.endswith("15") else "pg18")
    with a_place(WRITERS[library][0], server, tmp_path) as place:
        yield place


@pytest.fixture
def eye(place: Place) -> Iterator[Eye]:
    """A look from outside, and a table ``notes`` for effects."""
    eye = Eye(place)
    yield eye
    eye.close()


@pytest.fixture
def writer(library: str, place: Place, eye: Eye) -> Iterator[Caller]:
    """A writer, with the tables there already."""
    for text in filter(str.strip, ddl(place.dialect).split(";")):
        eye.all(text)
    with writing(library, place) as writer:
        yield writer
