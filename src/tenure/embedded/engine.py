"""Using the server: `attach` and what it returns."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tenure.embedded import cluster, conf, watch
from tenure.embedded.account import account, bare_environment
from tenure.embedded.binaries import Binaries, find
from tenure.embedded.enterable import enterable
from tenure.embedded.home import Home, lock_file
from tenure.errors import EngineError

GRACE = 0.5  # seconds the server outlives its last user: commands in a row find it running


class Engine:
    """A share in a running server; made by `attach`, a context manager.

    Attributes:
        data: the data directory.
        bin: directory of the server's programs; psql is among them.
        major: major version of the server.
    """

    def __init__(self, home: Home, binaries: Binaries, share: int, grace: float) -> None:
        self.data = home.data
        self.bin = binaries.bin
        self.major = binaries.major
        self._home = home
        self._binaries = binaries
        self._share: int | None = share
        self._grace = grace

    @property
    def dsn(self) -> str:
        """Libpq conninfo of the database "tenure" over the Unix socket, as superuser "tenure"."""
        return cluster.dsn(self._home)

    def __repr__(self) -> str:
        return f"<Engine {self.dsn}{' (closed)' if self._share is None else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the share back; the server goes the grace time after the last one. Twice is once."""
        share, self._share = self._share, None
        if share is None:
            return
        with contextlib.suppress(OSError, subprocess.SubprocessError, EngineError):  # the base may be gone
            ensure_watcher(self._home, self._grace)
        os.close(share)  # and no LOCK_UN, which would take the share from forked children too

    def ensure(self) -> None:
        """Start the server again if it died under its users; cheap if it did not.

        Raises:
            EngineError: it cannot be started.
        """
        with cluster.explained(self._home), self._home.door():
            ensure_watcher(self._home, self._grace)
            _bring_up(self._home, self._binaries, None)

    def restart(self, mode: Literal["immediate", "fast"] = "immediate") -> None:
        """Stop the server under its users and start it with the settings it had; for tests and chaos.

        Args:
            mode: ``immediate`` as in a crash, with recovery at the start; ``fast`` orderly.

        Raises:
            EngineError: it does not stop, or does not start.
        """
        with cluster.explained(self._home), self._home.door():
            watch.stop_server(self._home.base, first=signal.SIGQUIT if mode == "immediate" else signal.SIGINT)
            _bring_up(self._home, self._binaries, None)

    def crash(self) -> None:
        """SIGKILL every process of the server and leave it dead; for tests and chaos.

        Raises:
            EngineError: it is out of reach.
        """
        with cluster.explained(self._home):
            watch.stop_server(self._home.base, first=signal.SIGKILL)


def attach(
    base: Path | None = None,
    *,
    bin_dir: Path | None = None,
    settings: Mapping[str, str] | None = None,
    grace: float = GRACE,
) -> Engine:
    """Use the server of a base directory: make, start or find it, whichever is needed.

    Args:
        base: the base directory; None takes `default_base`.
        bin_dir: directory of the PostgreSQL programs to start it with; None looks for them.
        settings: PostgreSQL settings for the case that this call starts the server; a running one keeps its own.
        grace: seconds the server outlives its last user; those of the call that started the watcher count.

    Raises:
        EngineError: there are no fitting programs, or the server cannot be made, started or reached.
        ConfigError: a setting or path that cannot work.
    """
    home = Home.at(base)
    conf.merged(home, settings or {})  # refuses what cannot work before anything is made
    with cluster.explained(home):
        home.create()
        with home.door():
            conf.require_ours(home)
            share = home.join()
            try:
                # The watcher comes first: whenever we are killed from here on, it clears up.
                ensure_watcher(home, grace)
                binaries = cluster.running(home) or _choose(home, bin_dir)
                _bring_up(home, binaries, settings or {})
            except BaseException:
                os.close(share)
                raise
    return Engine(home, binaries, share, grace)


def _choose(home: Home, bin_dir: Path | None) -> Binaries:
    user = account(home.data)
    user.require(home.base)
    return enterable(find(cluster.major_of(home.data), only=bin_dir), user)


def _bring_up(home: Home, binaries: Binaries, settings: Mapping[str, str] | None) -> None:
    user = account(home.data)
    if not home.data.exists():
        cluster.create(home, binaries, user)
    for _ in range(3):  # somebody may kill it meanwhile
        cluster.bring_up(home, binaries, user, settings)
        if cluster.create_database(home):
            return


def ensure_watcher(home: Home, grace: float) -> None:
    """Start the watcher unless there is one; returns when it is at its post.

    The lock that makes it the only one is taken here and handed down, so there is no moment without.
    """
    with lock_file(home.base / "watcher") as ticket:
        if not watch.try_lock(ticket, fcntl.LOCK_EX):
            return
        # Not this program where Python is embedded in another (uWSGI, mod_wsgi): any Python will do.
        python = sys.executable if "python" in Path(sys.executable).name else shutil.which("python3")
        if not python:
            raise EngineError(
                "There is no python3 to run the watcher, which stops the server after its last user.",
                kept="Nothing was started.",
                hint="Put python3 on the PATH.",
            )
        command = [python, "-I", "-S", watch.__file__, str(home.base), str(grace), str(ticket)]
        with home.log.open("ab") as log:
            subprocess.run(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(ticket,),
                cwd="/",
                env=bare_environment(),
                start_new_session=True,
                check=True,
                timeout=60,
            )
