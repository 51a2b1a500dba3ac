"""A small volume for a server's files, and what becomes of the server when somebody fills it. On Linux, as root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import embedded
from tenure.store.postgres import PostgresStore

MEGABYTES = 256

_FRUGAL = {"max_wal_size": "32MB", "min_wal_size": "32MB", "shared_buffers": "16MB"}


class Volume:
    """A file system of its own, and a file that fills it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave nothing."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))

    def heal(self) -> None:
        """There is space again."""
        self._ballast.unlink()


@contextlib.contextmanager
def mounted(path: Path) -> Iterator[Volume]:
    """A volume for the length of the block; skips the test where none can be mounted."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a volume is mounted by root, on Linux")
    path.mkdir(mode=0o711)
    options = f"size={MEGABYTES}m,mode=0711"
    mounting = ["mount", "-t", "tmpfs", "-o", options, "tenure-test", str(path)]
    done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        path.rmdir()
        pytest.skip(f"no volume can be mounted here: {done.stderr.strip()}")
    try:
        yield Volume(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)  # a watcher may still look at it for a moment
        path.rmdir()


@contextlib.contextmanager
def all_of_it(volume: Volume, home: Path) -> Iterator[embedded.Engine]:
    """A server all of whose files are there."""
    with _migrated(volume.path / home.name) as engine:
        yield engine


@contextlib.contextmanager
def its_log(volume: Volume, home: Path) -> Iterator[embedded.Engine]:
    """A server whose write-ahead log alone is there, and is kept: somebody has a replication slot, and does not read."""
    with _migrated(home) as engine:
        embedded.stop(home, force=True)
        wal, moved = engine.data / "pg_wal", volume.path / "wal"
        shutil.copytree(wal, moved)
        owner = engine.data.stat()
        for path in [moved, *moved.rglob("*")]:
            os.chown(path, owner.st_uid, owner.st_gid)
        shutil.rmtree(wal)
        wal.symlink_to(moved)
        engine.ensure()
        store = PostgresStore(engine.dsn)
        with store.connection() as conn:
            conn.execute("select pg_create_physical_replication_slot('unread', true)")
        store.close()
        yield engine


@contextlib.contextmanager
def _migrated(home: Path) -> Iterator[embedded.Engine]:
    try:
        with embedded.attach(home, settings=_FRUGAL) as engine:
            PostgresStore(engine.dsn).migrate()
            yield engine
    finally:
        embedded.stop(home, force=True)
