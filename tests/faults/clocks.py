"""Wrong clocks for single processes: a library that is loaded before all others (``clock.c``), made by gcc. On Linux."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import missing

HOUR = 3600

_SOURCE = Path(__file__).with_name("clock.c")


def made(directory: Path) -> Path:
    """The library; skips the test, or fails it with ``CI=true``, where it cannot be made."""
    if sys.platform != "linux":
        pytest.skip("a library is loaded into a process before all others on Linux")
    if shutil.which("gcc") is None:
        missing("no gcc (Debian packages: gcc, libc6-dev)")
    library = directory / "clock.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(_SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    library.chmod(0o755)
    return library


class Clock:
    """A clock that processes started with its ``environment`` go by.

    Args:
        library: as ``made``.
        path: the file through which they are told.
    """

    def __init__(self, library: Path, path: Path) -> None:
        self._path = path
        self.environment = {"LD_PRELOAD": str(library), "TENURE_TEST_CLOCK": str(path)}
        path.write_bytes(bytes(16))
        path.chmod(0o644)
        self.shift(0)

    def shift(self, seconds: int) -> None:
        """From now on it is so much ahead, or behind."""
        with self._path.open("r+b") as file:
            file.write(b"%+015d\0" % seconds)
