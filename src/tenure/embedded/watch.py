"""The watcher: a small detached process that stops the server once its last user is gone.

It is started by path (``python -I -S watch.py``), so this file needs nothing but the standard library, and the
functions with which it finds, stops and kills a server live here too and are shared with the rest of the room.

A user is a process with a shared flock on the file ``users``; the kernel drops it however the process dies. The watcher
blocks until it gets that lock alone, waits a grace time, takes it again and stops the server while holding it: whoever
attaches meanwhile waits for the lock, finds the server gone and starts it. There is one watcher per base directory: it
holds an exclusive flock on ``watcher``, handed down by its starter.

A server is known by a third lock, on ``server``, inherited by ``pg_ctl`` and every process below it: while it is held,
something of a server lives, or is about to. Zombies, reused process ids and other pid namespaces cannot deceive it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

TICK = 2.0  # seconds between two looks at the size of the log
LOG_LIMIT = 4 << 20  # bytes of server.log before it is cut; one older file of at most this size is kept
ORDERLY = 60.0  # seconds an orderly stop may take before an immediate one, which costs nothing but a recovery
INSISTENT = 10.0  # seconds an immediate stop may take before SIGKILL, and SIGKILL before we give up
HEADLESS = 5.0  # seconds for a server that is coming up to write its pid file, and for orphans to notice
_PROGRAMS = ("postgres", "pg_ctl")


def open_lock(path: Path) -> int:
    """Open the lock file `path`, creating it; the descriptor is not inherited by other programs.

    It belongs to the owner of the directory: root, who helps out, must not lock him out of it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.fchown(fd, owner.st_uid, owner.st_gid)
    return fd


def try_lock(fd: int, kind: int) -> bool:
    """Take the flock `kind` (LOCK_SH or LOCK_EX) on `fd` if that needs no waiting."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def held(path: Path) -> bool:
    """True while another open file holds an exclusive flock on `path`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def postmaster(data: Path) -> int | None:
    """Process id of the live server of `data`; None for a stale file, a zombie or a reused id."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None
    return pid if pid > 1 and works_in(pid, data) else None


def stopping(data: Path) -> bool:
    """True when the live server of `data` says that it is shutting down."""
    with contextlib.suppress(OSError, IndexError):
        return (data / "postmaster.pid").read_text().splitlines()[7].strip() == "stopping"
    return False


def works_in(pid: int, data: Path) -> bool:
    """True when `pid` is a server process with `data` as its working directory; a zombie has none."""
    if not sys.platform.startswith("linux"):
        return pid in server_processes(data)
    process = Path("/proc", str(pid))
    try:
        return (process / "cwd").samefile(data) and (process / "comm").read_text().strip() in _PROGRAMS
    except OSError:
        return False


def server_processes(data: Path) -> list[int]:
    """Ids of all processes of a server of `data`, also of those that outlived their postmaster."""
    if not sys.platform.startswith("linux"):
        return _by_lsof(data)
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    return [pid for pid in pids if works_in(pid, data)]


def _by_lsof(data: Path) -> list[int]:
    import subprocess  # here, because the watcher can do without it on Linux and is to stay small

    command = ["/usr/sbin/lsof", "-w", "-a", "-c", "/^(postgres|pg_ctl)$/", "-d", "cwd", "-F", "pn"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
    found, pid = [], 0
    for line in listing.splitlines():
        if line.startswith("p"):
            pid = int(line[1:])
        elif line.startswith("n") and os.path.realpath(line[1:]) == os.path.realpath(data):
            found.append(pid)
    return found


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each of `pids`; those gone already are no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def stop_server(base: Path, *, first: signal.Signals = signal.SIGINT, wait: float = ORDERLY) -> bool:
    """Stop whatever server works on `base`, escalating until the kernel says that all of it is gone.

    Args:
        base: the base directory.
        first: SIGINT for an orderly stop, SIGQUIT for an immediate one, SIGKILL for a crash.
        wait: seconds `first` may take before the next step.

    Returns:
        False where there was none.

    Raises:
        TimeoutError: it cannot be stopped, or runs out of reach (another pid namespace).
    """
    found = False
    ladder = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)
    for number in ladder[ladder.index(first) :]:
        began, told = time.monotonic(), set[int]()
        patience = wait if number is first else INSISTENT
        while True:
            pid = postmaster(base / "data")
            if pid is None and not held(base / "server"):
                return found
            found = True
            # Without a postmaster it is either about to come up, soon, or its orphans ignore that it died.
            if time.monotonic() - began > (patience if pid else min(patience, HEADLESS)):
                break
            everyone = number is not signal.SIGINT  # an orderly stop is the postmaster's own work
            fresh = set(server_processes(base / "data") if everyone else [pid] if pid else []) - told
            signal_all(fresh, number)
            told |= fresh
            time.sleep(0.01)
    raise TimeoutError(f"the server in {base} does not stop, or runs in another container")


def trim_log(log: Path, limit: int = LOG_LIMIT) -> None:
    """Keep `log` bounded: past `limit` bytes its end moves to ``<log>.1``.

    The server appends to the open file, so it is cut in place; lines written between copy and cut are lost.
    """
    with contextlib.suppress(OSError):
        fd = os.open(log, os.O_RDWR | os.O_NOFOLLOW)
        try:
            size = os.fstat(fd).st_size
            if size > limit:
                older(log).unlink(missing_ok=True)
                with older(log).open("xb") as kept:
                    kept.write(os.pread(fd, limit, size - limit))
                os.truncate(fd, 0)
        finally:
            os.close(fd)


def older(log: Path) -> Path:
    """Where the end of `log` goes when it is cut."""
    return log.with_name(f"{log.name}.1")


def watch(base: Path, grace: float, ticket: int) -> None:
    """Wait until nobody uses the server of `base` and nobody asked to keep it, then stop it and return.

    Args:
        base: the base directory.
        grace: seconds the server stays after its last user.
        ticket: descriptor with the exclusive flock on ``watcher``.
    """
    log = base / "server.log"
    signal.signal(signal.SIGALRM, lambda *_: trim_log(log))
    signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    users = open_lock(base / "users")
    # Whoever gets hold of `users` after us must find the post vacant, also when we are killed: the kernel closes
    # descriptors in ascending order, so a copy above the ticket is the last to go.
    os.dup2(users, ticket + 1, inheritable=False)
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)  # blocks as long as there are users
        fcntl.flock(users, fcntl.LOCK_UN)
        linger(base / "server", grace)
        if (base / "keep").exists():
            time.sleep(1.0)
        elif try_lock(users, fcntl.LOCK_EX):
            break
    stop_server(base)
    os.close(ticket)


def linger(server: Path, grace: float) -> None:
    """Let `grace` seconds pass, or less when the server is stopped meanwhile."""
    end = time.monotonic() + grace
    while (left := end - time.monotonic()) > 0 and held(server):
        time.sleep(min(left, 0.1))


def main(base: str, grace: str, ticket: str) -> None:
    """Detach from the starter, whose wait for us ends here, and watch."""
    if os.fork():
        os._exit(0)
    os.setsid()
    watch(Path(base), float(grace), int(ticket))


if __name__ == "__main__":
    main(*sys.argv[1:])
