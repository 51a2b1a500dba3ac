"""Several worker processes, or one that is started over when the code changes.

The supervisor does no work of its own. It starts the processes, passes on signals, and starts again what ended without
being told to: after a pause that doubles while they keep dying young. If the supervisor dies, its workers drain and go.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType

from tenure.errors import ConfigError
from tenure.worker.options import Exit, Options

log = logging.getLogger("tenure.supervisor")

_PAUSE = (0.5, 30.0)  # seconds before a process is started again, first and longest
_OLD = 60.0  # seconds after which a process counts as having been healthy
_LOOK = 0.1
_RELOAD_GRACE = 2.0


@dataclass
class _Place:
    """One of the processes, through its restarts."""

    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = _PAUSE[0]
    start_at: float = 0.0
    done: bool = False


class Supervisor:
    """Keeps worker processes running.

    Args:
        target: their ``module:app``.
        options: theirs; ``processes`` is how many.
    """

    def __init__(self, target: str, options: Options) -> None:
        self._options = options
        alone = replace(options, processes=1, reload=False, grace=_RELOAD_GRACE if options.reload else options.grace)
        # The options go through a pipe, not the command line: a DSN may hold a password.
        self._told = json.dumps({"target": target, **asdict(alone)}).encode()
        self._places = [_Place() for _ in range(options.processes)]
        self._stopping = False
        self._worst = int(Exit.OK)

    def run(self) -> int:
        """Until told to stop, or every process of a burst is done."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            while not all(place.done for place in self._places):
                for place in self._places:
                    self._look_after(place)
                time.sleep(_LOOK)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._worst

    def restart(self) -> None:
        """End every process; each is started again."""
        for place in self._places:
            place.pause = 0.0
            if place.process is not None and place.process.poll() is None:
                place.process.terminate()

    def stop(self) -> None:
        """Pass the wish on; the second time they go without grace."""
        self._stopping = True
        for place in self._places:
            if place.process is not None and place.process.poll() is None:
                place.process.terminate()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stop()

    def _look_after(self, place: _Place) -> None:
        if place.done:
            return
        if place.process is None:
            if self._stopping:
                place.done = True
            elif time.monotonic() >= place.start_at:
                self._start(place)
            return
        code = place.process.poll()
        if code is not None:
            self._ended(place, code)

    def _start(self, place: _Place) -> None:
        place.started = time.monotonic()
        command = [sys.executable, "-m", "tenure.worker", str(os.getpid())]
        # A session of its own: a terminal's Ctrl-C reaches the supervisor, which passes it on once.
        place.process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603 - ours
        if place.process.stdin is not None:
            place.process.stdin.write(self._told)
            place.process.stdin.close()

    def _ended(self, place: _Place, code: int) -> None:
        place.process = None
        if self._stopping or (self._options.burst and code == Exit.OK):
            place.done = True
            self._worst = max(self._worst, code)
            return
        healthy = time.monotonic() - place.started > _OLD
        place.pause = _PAUSE[0] if healthy else min(2 * place.pause, _PAUSE[1])
        place.start_at = time.monotonic() + place.pause
        log.error("a worker process ended with %d; another one starts in %.1f s", code, place.pause)


def supervise(target: str, options: Options) -> int:
    """Run ``options.processes`` workers; with ``reload`` start them over when a source file changes."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
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
