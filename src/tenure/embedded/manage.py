"""Managing the server without using it: what ``tenure db`` does.

`start` leaves a file ``keep`` beside the data. While it exists the watcher lets the server run without users, and
whoever attaches after a reboot starts it for good again. `stop` removes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenure.embedded import cluster, conf, watch
from tenure.embedded.binaries import Binaries, find, version
from tenure.embedded.engine import attach
from tenure.embedded.home import Home
from tenure.errors import EngineError


@dataclass(frozen=True)
class Status:
    """What can be said of the server of a base directory without using it.

    Attributes:
        base: the base directory.
        running: True when it accepts connections.
        kept: True between `start` and `stop`: it runs on without users.
        pid: of the server; None when it does not run, or runs in another pid namespace.
        version: of the programs that run it or would; None when there are none.
        major: of the data; None when there is none yet.
        data: the data directory.
        dsn: its address; None when it does not run.
        users: how many processes use it; None when it is in use and the kernel does not tell by how many.
        binaries: directory of the programs; None when there are none that fit.
        size: bytes of the data directory.
    """

    base: Path
    running: bool
    kept: bool
    pid: int | None
    version: str | None
    major: int | None
    data: Path
    dsn: str | None
    users: int | None
    binaries: Path | None
    size: int


def status(base: Path | None = None) -> Status:
    """Look at the server of a base directory; creates and starts nothing.

    Args:
        base: the base directory; None takes `default_base`.

    Raises:
        EngineError: the directory is not ours to read.
    """
    home = Home.at(base)
    with cluster.explained(home):
        major = cluster.major_of(home.data)
        running = cluster.alive(home) and cluster.answers(home)
        binaries = cluster.running(home) or _would_run(major)
        return Status(
            base=home.base,
            running=running,
            kept=home.keep.exists(),
            pid=watch.postmaster(home.data),
            version=_version(binaries),
            major=major,
            data=home.data,
            dsn=cluster.dsn(home) if running else None,
            users=home.count_users(),
            binaries=binaries.bin if binaries else None,
            size=_size(home.data),
        )


def start(
    base: Path | None = None, *, bin_dir: Path | None = None, settings: Mapping[str, str] | None = None
) -> Status:
    """Start the server and keep it running without users until `stop`.

    Args:
        base: the base directory; None takes `default_base`.
        bin_dir: as in `attach`.
        settings: as in `attach`.

    Raises:
        EngineError, ConfigError: as `attach`.
    """
    with attach(base, bin_dir=bin_dir, settings=settings):
        Home.at(base).keep.touch()
    return status(base)


def stop(base: Path | None = None, *, force: bool = False, wait: float = watch.ORDERLY) -> bool:
    """Stop the server, and end what `start` began.

    Args:
        base: the base directory; None takes `default_base`.
        force: stop it under its users; it starts again when the next one attaches.
        wait: seconds an orderly stop may take before an immediate one, which loses nothing committed.

    Returns:
        False where none ran.

    Raises:
        EngineError: it is in use and `force` is not given, or it does not stop.
    """
    home = Home.at(base)
    if not home.base.exists():
        return False
    with cluster.explained(home), home.door(), home.alone() as alone:
        conf.require_ours(home)
        _refuse_in_use(home, alone or force, "stopped")
        home.keep.unlink(missing_ok=True)
        return watch.stop_server(home.base, wait=wait)


def wipe(base: Path | None = None, *, force: bool = False) -> None:
    """Stop the server and delete its data, log and socket; nothing brings them back.

    Args:
        base: the base directory; None takes `default_base`.
        force: also while it is in use.

    Raises:
        EngineError: it is in use and `force` is not given, or it does not stop; the data is kept.
    """
    home = Home.at(base)
    if not home.base.exists():
        return
    kept = f"What is not deleted yet is in {home.base}."
    with cluster.explained(home, kept=kept), home.door(), home.alone() as alone:
        conf.require_ours(home)
        _refuse_in_use(home, alone or force, "wiped")
        home.keep.unlink(missing_ok=True)
        watch.stop_server(home.base)
        if home.data.exists():  # renamed first: half-deleted data is never seen
            doomed = Path(tempfile.mkdtemp(prefix=cluster.SCRATCH, dir=home.base))
            home.data.rename(doomed / "data")
            shutil.rmtree(doomed)
        for log in (home.log, watch.older(home.log)):
            log.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            home.socket_dir.rmdir()


def _refuse_in_use(home: Home, allowed: bool, what: str) -> None:
    if not allowed:
        users = home.count_users()
        raise EngineError(
            f"The PostgreSQL in {home.base} is in use{f' by {users} process(es)' if users else ''} and was not {what}.",
            kept="Everything is as it was.",
            hint="End those who use it (workers, consoles, tests) first, or force it.",
        )


def _would_run(major: int | None) -> Binaries | None:
    with contextlib.suppress(EngineError):
        return find(major)
    return None


def _version(binaries: Binaries | None) -> str | None:
    with contextlib.suppress(EngineError):
        return version(binaries.bin) if binaries else None
    return None


def _size(data: Path) -> int:
    total = 0
    for folder, _, files in os.walk(data):
        for name in files:
            with contextlib.suppress(FileNotFoundError):  # a server deletes files all the time
                total += Path(folder, name).lstat().st_size
    return total
