"""Named points where a test may kill, stop, raise or wait; free when none is armed.

The code says ``point("claim.after_commit")`` where a crash would hurt most. Nothing happens there unless the point is
armed: in this process with :func:`arm`, or from outside with the environment variable ``TENURE_FAULTS``, which is read
once, when this module is first imported::

    TENURE_FAULTS="effect.before_commit=kill@3,heartbeat.before=stop,settle.before=wait:/tmp/gate"

=========== =========================================================================================
action      what happens to the process that arrives
=========== =========================================================================================
kill        SIGKILL to itself
stop        SIGSTOP to itself; it goes on when somebody sends SIGCONT
raise       :class:`InjectedError`
wait:/path  it creates ``/path.arrived`` and blocks until ``/path`` exists, see :class:`Gate`
=========== =========================================================================================

``@n`` means at the n-th arrival of this process (default the first). Each arming happens once and is then spent.
A wait blocks the whole thread, an event loop included: that is the point, it stands for a thread that is stuck.

If ``TENURE_FAULT_LEDGER`` names a file, each fault first appends one JSON line to it, in one write, so that a checker
knows what was done to whom even if the process did not live to tell.

Faults come from the environment and the process's own code alone, never from a database, a payload or a request. A
name or action that is unknown is an error at once: a typing mistake must not let a test pass.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from tenure.errors import ConfigError

POINTS: Final[dict[str, str]] = {
    "claim.before": "A claim is about to be sent.",
    "claim.after_commit": "The claim is committed, no handler has started.",
    "handler.running": "The handler is about to be called, inside the attempt.",
    "effect.before_dedup": "The effect's transaction has begun, its dedup row is not written.",
    "effect.after_dedup": "The dedup row is written, the handler's effect is not.",
    "effect.between": "One of the effects that share a transaction has come to its end, the next has not begun.",
    "effect.before_complete": "The effect is written, the fenced completion is not.",
    "effect.before_commit": "Dedup row, effect and completion are written, not committed.",
    "effect.after_commit": "The effect is committed, the worker does not know yet.",
    "once.after_insert": "An effect's row is made in another database, the handler's effect is not.",
    "once.before_result": "An effect is written in another database, its result is not; nothing is committed.",
    "heartbeat.before": "Leases are about to be extended.",
    "settle.before": "Buffered settlements are about to be sent.",
    "settle.after": "Settlements are committed, the worker does not know yet.",
    "retry.before": "A failed attempt is about to return to pending.",
    "bury.before": "A job is about to become a dead letter.",
    "sweep.before": "Expired leases are about to be returned.",
    "promote.before": "Jobs with an ordering key are about to be admitted, if there are any.",
    "promote.after": "Some of them are admitted, no worker has been told.",
    "redrive.before": "A dead letter is about to become pending again.",
    "migrate.between": "One migration is applied and not recorded; nothing is committed.",
    "drain.begun": "The worker was asked to stop and claims no more.",
}
"""Every point there is, and where the process stands when it arrives."""

Action: TypeAlias = str | Callable[[], object]

_ACTION = re.compile(r"(?P<verb>kill|stop|raise|wait:(?P<path>/.+?))(?:@(?P<at>[1-9][0-9]{0,8}))?", re.DOTALL)
_POLL = 0.005


class InjectedError(Exception):
    """What an armed point raises; stands for any error nobody thought of."""


@dataclass(frozen=True)
class Gate:
    """Where a process waits for a test, told through two files.

    Args:
        path: the gate is open once this file exists; ``<path>.arrived`` exists once a process waits at it.
    """

    path: Path

    @property
    def action(self) -> str:
        """The action that makes a point wait at this gate."""
        return f"wait:{self.path}"

    @property
    def arrived(self) -> bool:
        """Whether a process has come to the gate."""
        return self._sign.exists()

    def await_arrival(self, timeout: float = 30.0) -> None:
        """Block until a process waits at the gate.

        Raises:
            TimeoutError: none came within ``timeout`` seconds.
        """
        if not _until(self._sign.exists, timeout):
            raise TimeoutError(f"nobody arrived at {self.path} within {timeout:g} s")

    def open(self) -> None:
        """Let the waiting process, and all that come later, pass."""
        self.path.touch()

    def wait(self) -> None:
        """Announce the arrival and block this thread until the gate is open."""
        self._sign.touch()
        _until(self.path.exists, None)

    @property
    def _sign(self) -> Path:
        return self.path.with_name(f"{self.path.name}.arrived")


@dataclass
class _Arming:
    label: str
    strike: Callable[[], object]
    at: int
    arrivals: int = 0


_armed: dict[str, _Arming] = {}
_lock = threading.Lock()


def point(name: str) -> None:
    """Arrive at a named point: nothing happens unless it is armed."""
    if _armed:
        _arrive(name)


def is_armed(name: str) -> bool:
    """Whether it is: what is said in one breath is said in two for a test that wants to stand between."""
    return name in _armed


def arm(name: str, action: Action, at: int = 1) -> None:
    """Arm a point of this process, in place of what it was armed with before.

    Args:
        name: one of ``POINTS``.
        action: ``"kill"``, ``"stop"``, ``"raise"``, ``"wait:/path"``, each with ``@n`` if need be, or a function that
            is called there; what it raises, the point raises.
        at: at which arrival from now on; only for a function.

    Raises:
        ConfigError: no such point or action.
    """
    if name not in POINTS:
        raise ConfigError(f"There is no fault point {name!r}.", hint=f"There are: {', '.join(sorted(POINTS))}.")
    arming = _parsed(name, action) if isinstance(action, str) else _Arming("call", action, at)
    with _lock:
        _armed[name] = arming


def disarm(*names: str) -> None:
    """Make points harmless again; all of them if none is named."""
    with _lock:
        for name in names or tuple(_armed):
            _armed.pop(name, None)


@contextlib.contextmanager
def armed(name: str, action: Action, at: int = 1) -> Iterator[None]:
    """Arm a point for the length of a ``with`` block, see :func:`arm`."""
    arm(name, action, at)
    try:
        yield
    finally:
        disarm(name)


def arm_from(text: str) -> None:
    """Arm what a ``TENURE_FAULTS`` text asks for: ``name=action`` pairs with commas between; empty arms nothing.

    Raises:
        ConfigError: malformed, or a name unknown or given twice; then nothing is armed.
    """
    pairs = [pair.strip().partition("=") for pair in text.split(",") if pair.strip()]
    names = [name for name, _, _ in pairs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"TENURE_FAULTS names {', '.join(sorted(twice))} more than once.")
    try:
        for name, _, action in pairs:
            arm(name, action)
    except ConfigError as error:
        disarm(*names)
        raise ConfigError(f"TENURE_FAULTS: {error.what}", hint=error.hint) from None


def _arrive(name: str) -> None:
    with _lock:
        arming = _armed.get(name)
        if arming is None:
            return
        arming.arrivals += 1
        if arming.arrivals < arming.at:
            return
        del _armed[name]
    _record(name, arming)
    arming.strike()


def _parsed(name: str, action: str) -> _Arming:
    match = _ACTION.fullmatch(action)
    if match is None:
        raise ConfigError(f"{action!r} is no fault.", hint="Write kill, stop, raise or wait:/path, then @n if need be.")
    strike = Gate(Path(match["path"])).wait if match["path"] else partial(_STRIKES[match["verb"]], name)
    return _Arming(match["verb"], strike, int(match["at"] or 1))


def _kill(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_: str) -> None:
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # to this thread: it stops here, not a little later


def _raise(name: str) -> None:
    raise InjectedError(f"injected at {name}")


_STRIKES: Final[dict[str, Callable[[str], None]]] = {"kill": _kill, "stop": _stop, "raise": _raise}


def _record(name: str, arming: _Arming) -> None:
    ledger = os.environ.get("TENURE_FAULT_LEDGER")
    if not ledger:
        return
    entry = {
        "event": "fault",
        "point": name,
        "action": arming.label,
        "arrival": arming.arrivals,
        "pid": os.getpid(),
        "t_monotonic": time.monotonic(),
    }
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(descriptor)


def _until(holds: Callable[[], bool], timeout: float | None) -> bool:
    deadline = None if timeout is None else time.monotonic() + timeout
    while not holds():
        if deadline is not None and time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


arm_from(os.environ.get("TENURE_FAULTS", ""))
