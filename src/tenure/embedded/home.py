"""The base directory: what lies where in it, and the locks through which processes agree.

    data/        the cluster; a single file of ours in it, ``tenure.conf``
    run/         the socket (a hashed directory below /tmp where this path would be too long for one)
    server.log   what the server says, bounded; ``server.log.1`` the part before
    door         exclusive flock: one process at a time starts, stops or wipes
    users        shared flock: one per user; see `tenure.embedded.watch`
    watcher      exclusive flock of the watcher
    server       exclusive flock inherited by all processes of the server
    keep         exists between `start` and `stop`: the watcher leaves the server alone

Lock files are never deleted: two processes that hold different files of one name would both believe to be alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tenure.embedded.watch import open_lock, try_lock
from tenure.errors import ConfigError, EngineError

PATIENCE = 60.0  # seconds to wait for other processes that start or stop the same server
_SOCKET = ".s.PGSQL.5432"
_SOCKET_PATH_LIMIT = 100  # bytes; the kernel takes 107 (Linux) or 103 (macOS)

# A child forked while another thread holds one of these must not keep it: the lock would outlive its purpose.
_short_lived: set[int] = set()
_opening = threading.Lock()


def _forget_locks_of_the_parent() -> None:
    _opening.release()
    for fd in _short_lived:
        os.close(fd)
    _short_lived.clear()


os.register_at_fork(
    before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_forget_locks_of_the_parent
)


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[int]:
    """Open a lock file for a while; a process forked meanwhile does not share it."""
    with _opening:
        fd = open_lock(path)
        _short_lived.add(fd)
    try:
        yield fd
    finally:
        with _opening:
            if fd in _short_lived:  # else we are the forked child, where it is closed already
                _short_lived.discard(fd)
                os.close(fd)


def default_base() -> Path:
    """Where the embedded server lives: $TENURE_HOME, else one directory per user.

    Returns:
        for root ``/var/lib/tenure``, which an unprivileged server can enter; for others ``$XDG_STATE_HOME/tenure`` or
        ``~/.local/state/tenure``.

    Raises:
        EngineError: this user has no home directory.
    """
    if home := os.environ.get("TENURE_HOME"):
        return Path(home)
    if os.geteuid() == 0:
        return Path("/var/lib/tenure")
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        return (state if state.is_absolute() else Path.home() / ".local" / "state") / "tenure"
    except RuntimeError:
        raise EngineError("This user has no home directory to keep a database in.", hint="Set TENURE_HOME.") from None


@dataclass(frozen=True)
class Home:
    """The paths and locks of one base directory."""

    base: Path

    @classmethod
    def at(cls, base: Path | None) -> Home:
        """The home at `base`, or at the default one; the same path for every spelling of it."""
        path = Path(os.path.realpath((base or default_base()).expanduser()))
        if any(char in str(path) for char in '"$`\\\n\r'):
            raise ConfigError(
                f"{str(path)!r} cannot hold the embedded PostgreSQL: pg_ctl would not survive its quotes, dollar"
                " signs, backslashes or line breaks.",
                hint="Set TENURE_HOME to a plainer path.",
            )
        return cls(path)

    @property
    def data(self) -> Path:
        return self.base / "data"

    @property
    def log(self) -> Path:
        return self.base / "server.log"

    @property
    def keep(self) -> Path:
        return self.base / "keep"

    @property
    def server(self) -> Path:
        return self.base / "server"

    @property
    def users(self) -> Path:
        return self.base / "users"

    @property
    def socket_dir(self) -> Path:
        """Directory of the socket: the same for every process, whatever its TMPDIR."""
        near = self.base / "run"
        plain = str(near).isprintable() and "," not in str(near)  # a comma begins the next one, for server and client
        if plain and len(os.fsencode(near / _SOCKET)) < _SOCKET_PATH_LIMIT:
            return near
        digest = hashlib.sha256(os.fsencode(self.base)).hexdigest()[:16]
        return Path(os.path.realpath("/tmp")) / f"tenure-{digest}"  # noqa: S108 - ownership is checked at each start

    def create(self) -> None:
        """Make the base directory: private to the user; root's can be entered by the server's user."""
        if os.geteuid() != 0:
            self.base.mkdir(mode=0o700, parents=True, exist_ok=True)
            return
        for path in [*reversed(self.base.parents), self.base]:
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                path.chmod(0o755)  # whatever the umask; only what we made ourselves

    @contextlib.contextmanager
    def door(self, patience: float = PATIENCE) -> Iterator[None]:
        """Hold the right to start, stop and wipe; EngineError after `patience` seconds in the queue."""
        with lock_file(self.base / "door") as fd:
            self._wait(fd, fcntl.LOCK_EX, patience, "Another process is still starting or stopping")
            yield

    def join(self, patience: float = PATIENCE) -> int:
        """Become a user: a descriptor with a shared flock; waits out a watcher that is just stopping the server."""
        fd = open_lock(self.users)
        try:
            self._wait(fd, fcntl.LOCK_SH, patience, "The watcher is still stopping")
        except BaseException:
            os.close(fd)
            raise
        return fd

    @contextlib.contextmanager
    def alone(self, patience: float = PATIENCE) -> Iterator[bool]:
        """Lock out users for a while; yields False, without the lock, where there are some."""
        with lock_file(self.users) as fd:
            yield self._got_alone(fd, patience)

    def _got_alone(self, fd: int, patience: float) -> bool:
        deadline = time.monotonic() + patience
        while not try_lock(fd, fcntl.LOCK_EX):
            if try_lock(fd, fcntl.LOCK_SH):  # so the others share it: users
                fcntl.flock(fd, fcntl.LOCK_UN)
                return False
            if time.monotonic() > deadline:  # the watcher holds it alone, for longer than stopping can take
                return False
            time.sleep(0.01)
        return True

    def _wait(self, fd: int, kind: int, patience: float, reason: str) -> None:
        deadline = time.monotonic() + patience
        while not try_lock(fd, kind):
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{reason} the PostgreSQL in {self.base} after {patience:g} s.",
                    kept="Its data was not touched.",
                    hint=f"Try again; {self.log} says what the server is doing.",
                )
            time.sleep(0.01)

    def count_users(self) -> int | None:
        """How many processes use the server; None when some do and the kernel does not tell how many."""
        if not self.users.exists():
            return 0
        if count := self._counted_by_kernel():
            return count
        with lock_file(self.users) as fd:
            return 0 if try_lock(fd, fcntl.LOCK_EX) else None

    def _counted_by_kernel(self) -> int:
        """Linux lists all locks, by device and inode; some file systems show other numbers there."""
        try:
            lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        except OSError:
            return 0
        place = self.users.stat()
        inode = f"{os.major(place.st_dev):02x}:{os.minor(place.st_dev):02x}:{place.st_ino}"
        return len({line[4] for line in lines if line[1:4] == ["FLOCK", "ADVISORY", "READ"] and line[5] == inode})
