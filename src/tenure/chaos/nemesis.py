"""The nemesis: does to processes, connections, network and server what the plan says, and writes down what it did."""

from __future__ import annotations

import heapq
import itertools
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from tenure.chaos.crew import Crew, kill
from tenure.chaos.ledger import Ledger
from tenure.chaos.network import Network, Way
from tenure.chaos.plan import Fault
from tenure.chaos.proxy import COMMIT
from tenure.embedded.engine import Engine
from tenure.errors import TenureError
from tenure.store.connections import connect

_LOOK = 0.02
_ARRIVAL = 20.0  # seconds that are given, once all is healed, to those who have not come by what waits for them
_AT_WORK = 2.0  # seconds after which a worker that is to die as it drains is told to

_COMMITS = {"keyed": re.compile(rb"\s*-- accept:"), "unkeyed": re.compile(rb"\s*-- accept_one:"), "commit": COMMIT}
"""What a producer commits with: a call's statement, by the name it begins with, or the end of a transaction of its own."""

_TERMINATE = """
select pg_terminate_backend(pid)
from (
    select pid from pg_stat_activity
    where application_name = %s and pid <> pg_backend_pid() and backend_type = 'client backend'
    order by random() limit %s
) unlucky
"""


class Nemesis:
    """Carries out a plan.

    Args:
        crew: its processes are struck.
        network: between them and the server.
        ledger: where faults are written down.
        dsn: the server, past the network.
        application: how the crew's sessions call themselves.
        engine: the server, where it is ours.
    """

    def __init__(
        self, crew: Crew, network: Network, ledger: Ledger, *, dsn: str, application: str, engine: Engine | None
    ) -> None:
        self._crew = crew
        self._network = network
        self._ledger = ledger
        self._dsn = dsn
        self._application = application
        self._engine = engine
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._answers: list[Fault] = []  # answers that are to be lost
        self._endings: list[Fault] = []  # of sessions; after a restart of the server there may be none for a while
        self._waiting: dict[Way, tuple[threading.Event, int, Fault]] = {}  # for the next commit on a way

    def carry_out(self, plan: list[Fault], seconds: float, show: Callable[[float], None]) -> None:
        """The whole plan, to the end of its time.

        Args:
            seconds: how long the run is.
            show: told how much of it has passed, every now and then.
        """
        started = time.monotonic()
        due = iter(plan)
        coming = next(due, None)
        while (passed := time.monotonic() - started) < seconds:
            self._look_after(time.monotonic())
            if coming is not None and coming.at <= passed:
                self._strike(coming)
                coming = next(due, None)
            show(passed)
            time.sleep(_LOOK)

    def heal(self) -> None:
        """Undo everything that lasts, once those whom something waits for have had the time to come by it."""
        self._look_after(float("inf"))
        if self._engine is not None:
            self._engine.ensure()
        end = time.monotonic() + _ARRIVAL
        while (self._crew.armed() or self._answers or self._endings or self._waiting) and time.monotonic() < end:
            self._look_after(time.monotonic())
            time.sleep(_LOOK)
        for pid in self._crew.disarm():
            self._note("kill", pid)

    def _look_after(self, now: float) -> None:
        """Start again who has ended, undo what has lasted long enough, and do what could not be done when it was due."""
        self._crew.tend()
        self._network.heal(now)
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()
        for way, (came, pid, fault) in list(self._waiting.items()):
            if came.is_set():
                del self._waiting[way]
                self._note(fault.kind, pid, fault)
        for fault in self._endings[:]:
            if self._terminated(int(fault.detail)):
                self._endings.remove(fault)
                self._note(fault.kind, 0, fault)
        for fault in self._answers[:]:
            if self._producer(fault)[1] not in self._waiting:  # one statement loses one answer
                self._answers.remove(fault)
                self._lose_an_answer(fault)

    def _in(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._number), what))

    def _strike(self, fault: Fault) -> None:
        began = time.monotonic()
        pid = self._done(fault)
        if pid is not None:
            lasted = max(fault.seconds, time.monotonic() - began)  # a restart takes its time
            self._note(fault.kind, pid, fault, seconds=round(lasted, 3), t=began)

    def _note(self, kind: str, pid: int, fault: Fault | None = None, *, seconds: float = 0.0, **more: Any) -> None:
        if fault is not None:
            more |= {"whom": fault.whom, "detail": fault.detail}
        self._ledger.note("struck", kind=kind, victim=pid, seconds=seconds, **more)

    def _done(self, fault: Fault) -> int | None:
        """Do it; answers to whom, 0 for all, or None: it did not come about, or tells by itself."""
        match fault.kind:
            case "kill" if fault.whom == "producer":
                return kill(self._producer(fault)[0])
            case "kill":
                return self._crew.replace(self._crew.spared(fault.target))
            case "point":
                self._send_to(fault.detail, self._crew.spared(fault.target), 1 + fault.target)
                return None  # the process that arrives there says so
            case "stop":
                return self._stop(fault)
            case "term":
                worker = self._crew.workers[self._crew.spared(fault.target)]
                worker.send_signal(signal.SIGTERM)
                return worker.pid
            case "terminate":
                self._endings.append(fault)
                return None  # until there is a session to be ended
            case "proxy" | "isolate":
                return self._disturb(fault)
            case "answer":
                self._answers.append(fault)
                return None  # until it is lost
            case _:
                return self._strike_the_server(fault.kind)

    def _strike_the_server(self, kind: str) -> int:
        if self._engine is None:
            raise AssertionError(kind)
        if kind == "restart":
            self._engine.restart("immediate")
        else:
            self._engine.crash()
            self._engine.ensure()
        return 0

    def _producer(self, fault: Fault) -> tuple[subprocess.Popen[bytes], Way]:
        n = fault.target % len(self._crew.producers)
        return self._crew.producers[n], self._network.producers[n]

    def _worker_alone(self, fault: Fault) -> tuple[subprocess.Popen[bytes], Way]:
        """One to whose network nothing is done yet, if there is one."""
        n = self._crew.spared(fault.target, lambda k: self._network.workers[k].whole)
        return self._crew.workers[n], self._network.workers[n]

    def _stop(self, fault: Fault) -> int:
        n = self._crew.spared(fault.target)
        pid = self._crew.stop(n)
        if fault.detail == "term":
            self._crew.workers[n].send_signal(signal.SIGTERM)  # it will hear of it as it goes on
        self._in(fault.seconds, lambda: self._crew.go_on(pid))
        return pid

    def _send_to(self, point: str, n: int, arrival: int) -> None:
        """Put a worker in another's place that dies as it comes by the crash point.

        Args:
            arrival: at which of its arrivals there; a drain happens once.
        """
        drains = point == "drain.begun"
        self._note("kill", self._crew.replace(n, f"{point}=kill@{1 if drains else arrival}"))
        if drains:
            self._in(_AT_WORK, self._crew.workers[n].terminate)

    def _terminated(self, number: int) -> int:
        try:
            with connect(self._dsn) as conn:
                return len(conn.execute(_TERMINATE, [self._application, number]).fetchall())
        except (TenureError, psycopg.Error):
            return 0  # the server is away

    def _disturb(self, fault: Fault) -> int:
        """Break the network of all, or of one."""
        if fault.whom == "all":
            self._network.disturb(fault.detail, fault.seconds)
            return 0
        process, way = self._producer(fault) if fault.whom == "producer" else self._worker_alone(fault)
        way.disturb(fault.detail, fault.seconds, alone=True)
        return process.pid

    def _lose_an_answer(self, fault: Fault) -> None:
        """Let a producer's next commit end without an answer."""
        verb, when, what = fault.detail.split()
        producer, way = self._producer(fault)
        came = threading.Event()

        def reached(statement: bytes) -> bool:
            if not _COMMITS[what].match(statement):
                return False
            if verb == "kill":
                producer.kill()  # it has sent the statement
            came.set()
            return True

        (way.proxy.cut_before if when == "before" else way.proxy.cut_after)(reached)
        self._waiting[way] = came, producer.pid, fault
