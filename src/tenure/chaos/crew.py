"""The processes of a run: workers and producers, started again when they end, until the run is over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from tenure.chaos.apps import ELSEWHERE, LEDGER
from tenure.chaos.network import Network
from tenure.chaos.place import Place
from tenure.chaos.plants import PLANT
from tenure.chaos.producer import Orders
from tenure.worker.options import Options

TARGET = "tenure.chaos.apps:app"

_GRACE = 5.0  # seconds a worker that is told to go may take for its handlers
_BIRTH = 60.0  # seconds until all of them are to be at work; then it begins without who is not
_LOOK = 0.02
_LAST_MOMENTS = 20.0  # seconds until whoever was told to go is killed


class Crew:
    """Workers and producers, one for each way of a network.

    Args:
        place: where they are.
        network: their ways to its server.
        rate: jobs a second that each producer enqueues.
        seed: decides what producers do.
        plant: the bug that they have.
    """

    def __init__(self, place: Place, network: Network, *, rate: float, seed: int, plant: str | None) -> None:
        self._place = place
        self._network = network
        self._rate = rate
        self._seed = seed
        self._plant = plant
        self._started: list[subprocess.Popen[bytes]] = []
        self._stopped: set[int] = set()
        self._armed: set[int] = set()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.producers: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        """Start them; returns when each is at work, so that a slow machine's run is no shorter than a fast one's."""
        self.workers += (self._worker(n) for n in range(len(self._network.workers)))
        self.producers += (self._producer(n) for n in range(len(self._network.producers)))
        latest = time.monotonic() + _BIRTH
        while not all(map(self._at_work, (*self.workers, *self.producers))) and time.monotonic() < latest:
            self.tend()
            time.sleep(_LOOK)

    def _at_work(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether it has told the ledger of something: a worker of its first handler, a producer of its first call."""
        return self._place.ledger.of(process.pid).exists()

    def tend(self) -> None:
        """Start again whoever has ended."""
        for n, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self._stopped.discard(worker.pid)
                self._armed.discard(worker.pid)
                self.workers[n] = self._worker(n)
        for n, producer in enumerate(self.producers):
            if producer.poll() is not None:
                self.producers[n] = self._producer(n)

    def replace(self, n: int, faults: str = "") -> int:
        """SIGKILL a worker, if it still lives, and start another one in its place; answers who was killed.

        Args:
            faults: what to arm in the new one, see ``tenure.faultpoints``.
        """
        pid = kill(self.workers[n])
        self._stopped.discard(pid)
        self._armed.discard(pid)
        self.workers[n] = self._worker(n, faults)
        if faults:
            self._armed.add(self.workers[n].pid)
        return pid

    def armed(self) -> bool:
        """Whether somebody has yet to come by a crash point."""
        return any(worker.pid in self._armed and worker.poll() is None for worker in self.workers)

    def spared(self, n: int, fit: Callable[[int], bool] = lambda _: True) -> int:
        """The next worker from this one on that has no crash point to come by; this one if all have.

        Args:
            fit: and for which this holds.
        """
        some = ((n + step) % len(self.workers) for step in range(len(self.workers)))
        return next((k for k in some if self.workers[k].pid not in self._armed and fit(k)), n)

    def disarm(self) -> list[int]:
        """Replace those who have not come by their crash point; answers who was killed for that."""
        return [self.replace(n) for n, worker in enumerate(self.workers) if worker.pid in self._armed]

    def stop(self, n: int) -> int:
        """SIGSTOP; answers whom."""
        worker = self.workers[n]
        worker.send_signal(signal.SIGSTOP)
        self._stopped.add(worker.pid)
        return worker.pid

    def go_on(self, pid: int) -> None:
        """SIGCONT, if it is still one of ours."""
        for worker in self.workers:
            if worker.pid == pid and pid in self._stopped:
                worker.send_signal(signal.SIGCONT)
        self._stopped.discard(pid)

    def stop_producers(self) -> None:
        """Let each finish its call and go."""
        end(self.producers)
        self.producers = []

    def close(self) -> None:
        """End all of them; returns when they are gone."""
        for pid in tuple(self._stopped):
            self.go_on(pid)
        end(self._started)

    def _worker(self, n: int, faults: str = "") -> subprocess.Popen[bytes]:
        way = self._network.workers[n]
        # One child: each is a new interpreter, and with several a worker that is new would hardly get to its jobs.
        options = Options(concurrency=10, children=1, grace=_GRACE, dsn=way.entered(), schema=self._place.schema)
        told = {"target": TARGET, **asdict(options)}
        more = {"TENURE_FAULTS": faults, "TENURE_FAULT_LEDGER": str(self._place.ledger.faults)}
        return self._start("tenure.worker", told, more)

    def _producer(self, n: int) -> subprocess.Popen[bytes]:
        nth = len(self._started)
        dsn = self._network.producers[n].entered()
        orders = Orders(f"p{nth}", dsn, self._place.schema, self._rate, self._seed + nth)
        return self._start("tenure.chaos.producer", asdict(orders), {"TENURE_FAULTS": ""})

    def _start(self, module: str, told: object, more: dict[str, str]) -> subprocess.Popen[bytes]:
        """A session of its own: Ctrl-C is for the command, which ends them in order."""
        ours = {LEDGER: str(self._place.ledger.path), ELSEWHERE: str(self._place.elsewhere), PLANT: self._plant or ""}
        with self._place.log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-m", module, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **ours, **more},
                start_new_session=True,
            )
        self._started.append(process)
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), process.stdin as line:
                line.write(json.dumps(told).encode())
        return process


def kill(process: subprocess.Popen[bytes]) -> int:
    """SIGKILL; answers the process id once it is gone."""
    process.kill()
    process.wait()
    return process.pid


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """SIGTERM, and SIGKILL to who does not go."""
    for process in processes:
        process.terminate()
    latest = time.monotonic() + _LAST_MOMENTS
    for process in processes:
        try:
            process.wait(max(0.1, latest - time.monotonic()))
        except subprocess.TimeoutExpired:
            kill(process)
