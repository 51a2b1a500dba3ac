"""Several worker processes, or one that is started over when the code changes.

The supervisor does no work of its own. It starts the processes, passes on signals, and starts again what ended without
being told to: after a pause that doubles while they keep dying young. A process that can never work, because its target or
an option cannot be, says so on the socket it got its options from, and the supervisor ends: it would only be said again. If
the supervisor dies, its workers drain and go.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType

from tenure.errors import ConfigError
from tenure.worker.logs import begin_log
from tenure.worker.options import Exit, Options
from tenure.worker.wishes import wishes

log = logging.getLogger("tenure.supervisor")

_PAUSE = (0.5, 30.0)  # seconds before a process is started again, first and longest
_OLD = 60.0  # seconds after which a process counts as having been healthy
_LOOK = 0.1
_REFUSED = 2  # exit code of a worker process that cannot work with this target or these options
_LONGEST = 1000  # characters of a sentence of what it says: it must fit into the smallest socket
_RELOAD_GRACE = 2.0


@dataclass
class _Place:
    """One of the processes, through its restarts.

    ``line`` is the other end of its standard input; ``again`` when it was told to end so that another one starts.
    """

    process: subprocess.Popen[bytes] | None = None
    line: socket.socket | None = None
    started: float = 0.0
    pause: float = _PAUSE[0]
    start_at: float = 0.0
    again: bool = False
    done: bool = False

    def tell(self) -> None:
        """Ask the process to end."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()


class Supervisor:
    """Keeps worker processes running.

    Args:
        target: their ``module:app``.
        options: theirs; ``processes`` is how many.
    """

    def __init__(self, target: str, options: Options) -> None:
        self._options = options
        alone = replace(options, processes=1, reload=False, grace=_RELOAD_GRACE if options.reload else options.grace)
        # The options go through a socket, not the command line: a DSN may hold a password.
        self._told = json.dumps({"target": target, **asdict(alone)}).encode()
        self._places = [_Place() for _ in range(options.processes)]
        self._changed = False
        self._wishes = 0  # how often we were told to stop
        self._passed_on = 0  # of them
        self._worst = int(Exit.OK)
        self._refusal: ConfigError | None = None

    def run(self) -> int:
        """Until told to stop, or every process of a burst is done.

        Raises:
            ConfigError: a process says that it cannot work like this.
        """
        before = {number: signal.signal(number, self._on_signal) for number in wishes()}
        try:
            while not all(place.done for place in self._places):
                self._pass_on()
                for place in self._places:
                    self._look_after(place)
                time.sleep(_LOOK)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._refusal is not None:
            raise self._refusal
        return self._worst

    def restart(self) -> None:
        """End every process; each is started again. From any thread."""
        self._changed = True

    def stop(self) -> None:
        """Let every process drain and go; the second time they go without grace."""
        self._wishes += 1

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stop()

    def _pass_on(self) -> None:
        """Tell the processes what we were told. Only here: a signal may come in the middle of starting one of them."""
        if self._changed:
            self._changed = False
            for place in self._places:
                place.pause, place.start_at, place.again = _PAUSE[0], 0.0, place.process is not None
                place.tell()
        while self._passed_on < self._wishes:
            self._passed_on += 1
            for place in self._places:
                place.tell()

    def _look_after(self, place: _Place) -> None:
        if place.done:
            return
        if place.process is None:
            if self._wishes:
                place.done = True
            elif time.monotonic() >= place.start_at:
                self._start(place)
            return
        code = place.process.poll()
        if code is not None:
            self._ended(place, code)

    def _start(self, place: _Place) -> None:
        place.started = time.monotonic()
        try:
            place.process, place.line = _spawned(self._told)
        except OSError as error:
            pause = _later(place)
            log.error("a worker process cannot be started: %s; the next try is in %.1f s", error, pause)

    def _ended(self, place: _Place, code: int) -> None:
        place.process = None
        again, place.again = place.again, False
        refusal = _refusal(place)
        if refusal is not None and not self._options.reload:
            self._refusal = self._refusal or refusal
            self._wishes = self._wishes or 1
        if self._wishes or (self._options.burst and code == Exit.OK):
            place.done = True
            self._worst = max(self._worst, _status(code))
        elif again:
            place.start_at = 0.0
        elif refusal is not None:
            log.error("%s The next change of a file starts it over.", refusal)
            place.start_at = math.inf
        else:
            pause = _later(place)
            log.error("a worker process ended with %d; another one starts in %.1f s", code, pause)


def _spawned(told: bytes) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A worker process and the other end of its standard input, where it finds its options."""
    command = [sys.executable, "-m", "tenure.worker", str(os.getpid())]
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            ours.sendall(told)
            ours.shutdown(socket.SHUT_WR)
            ours.setblocking(False)
            # A session of its own: a terminal's Ctrl-C reaches the supervisor, which passes it on once.
            process = subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True)  # noqa: S603 - ours
        except BaseException:
            ours.close()
            raise
    return process, ours


def _later(place: _Place) -> float:
    """Start it again after a pause; answers that."""
    healthy = time.monotonic() - place.started > _OLD
    pause = _PAUSE[0] if healthy else place.pause
    place.pause = min(2 * pause, _PAUSE[1])
    place.start_at = time.monotonic() + pause
    return pause


def _status(code: int) -> int:
    """A process's end as an exit code. One that SIGTERM could end had not begun: from then on it drains."""
    if code >= 0:
        return code
    return int(Exit.OK) if code == -signal.SIGTERM else 128 - code


def refuse(error: ConfigError) -> int:
    """In a worker process: tell the supervisor that it is no use to start another one; answers the exit code."""
    told = {"what": error.what[:_LONGEST], "kept": error.kept[:_LONGEST], "hint": error.hint[:_LONGEST]}
    os.write(sys.stdin.fileno(), json.dumps(told, ensure_ascii=False).encode(errors="replace"))
    return _REFUSED


def _refusal(place: _Place) -> ConfigError | None:
    """What the process that ended has said, if it has."""
    if place.line is None:
        return None
    with place.line as line, contextlib.suppress(OSError, ValueError):
        told = json.loads(line.recv(1 << 20))
        return ConfigError(told["what"], kept=told["kept"], hint=told["hint"])
    return None


def supervise(target: str, options: Options) -> int:
    """Run ``options.processes`` workers; with ``reload`` start them over when a source file changes."""
    begin_log()
    supervisor = Supervisor(target, options)
    if options.reload:
        _watch_sources(supervisor)
    return supervisor.run()


def _watch_sources(supervisor: Supervisor) -> None:
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        raise ConfigError("--reload needs watchfiles.", hint='Install it: pip install "tenure[reload]"') from None
    import threading

    def follow() -> None:
        for changes in watch(Path.cwd(), watch_filter=PythonFilter(), raise_interrupt=False):
            log.info("%s changed; starting over", ", ".join(sorted(Path(path).name for _, path in changes)))
            supervisor.restart()

    threading.Thread(target=follow, name="tenure-reload", daemon=True).start()
