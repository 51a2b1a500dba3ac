"""Kills processes at one crash point, again and again under load, and says what came of their jobs, as JSON.

    python -m tests.chaos.points POINT DSN SCRATCH --kills 20     at the least

It forks its workers: they begin with everything imported, and a kill costs a tenth of what a new interpreter does. For that
it has no threads and no connections of its own while it forks. A kill counts when the process has ended by signal 9 and the
ledger has its line about the point. In the end one worker that nobody kills drains the queue, and the checker judges.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from psycopg import sql

from tenure import faultpoints
from tenure.chaos.apps import ELSEWHERE, LEDGER, QUEUE
from tenure.chaos.check import Verdict, judged
from tenure.chaos.crew import TARGET
from tenure.chaos.facts import gathered
from tenure.chaos.place import Place
from tenure.chaos.producer import Orders, Producer
from tenure.cli import app as command
from tenure.store.connections import connect
from tenure.store.migrate import migrations
from tenure.store.postgres import PostgresStore
from tenure.worker.child import die_with_parent
from tenure.worker.main import run_here
from tenure.worker.options import Options

AT_ONCE = 2  # workers
RATE = 60.0  # jobs a second
PATIENCE = 300.0  # seconds after which twenty kills, or the last jobs after them, have failed
SEED = 1  # of what is enqueued
LOAD = 3.0  # seconds of it at the least, however soon there are enough kills
_LOOK = 0.005
_ARRIVALS = {"drain.begun": 1, "redrive.before": 1, "promote.after": 1, "migrate.between": len(migrations())}
"""A process is killed at one of its first arrivals, in turn: how many of them there are, where it is not any number, or
where more would be long to wait for."""

Work = Callable[[], object]


class Killer:
    """Forks processes that are killed at a point, and counts them.

    Args:
        place: where they are.
        point: where they are killed.
    """

    def __init__(self, place: Place, point: str) -> None:
        self._place = place
        self._point = point
        self._forked = 0
        self._alive: set[int] = set()
        self.kills = 0

    def fork(self, work: Work, *, armed: bool) -> int:
        """Do something in a process of its own; answers its id."""
        self._forked += 1
        if pid := os.fork():
            self._alive.add(pid)
            return pid
        arrival = 1 + self._forked % _ARRIVALS.get(self._point, 4)
        return _become(work, f"{self._point}=kill@{arrival}" if armed else "", self._place.log)

    def ended(self, pid: int) -> bool:
        """Whether it has; if it was killed at the point, that counts.

        Raises:
            RuntimeError: it has ended otherwise.
        """
        done, status = os.waitpid(pid, os.WNOHANG)
        if not done:
            return False
        self._alive.discard(pid)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            told = [line for line in self._place.ledger.lines() if line["event"] == "fault" and line["pid"] == pid]
            if [line["point"] for line in told] != [self._point]:
                raise RuntimeError(f"{pid} was killed, and its ledger says {told}")
            self.kills += 1
        elif code not in (0, -signal.SIGTERM):  # told to go before it had begun
            raise RuntimeError(f"a process ended with {code}: {self._place.log.read_text()[-2000:]}")
        return True

    def gone(self, pid: int, number: int = signal.SIGTERM) -> None:
        """Wait for its end.

        Args:
            number: the signal it gets first; 0 is none.
        """
        os.kill(pid, number)
        os.waitpid(pid, 0)
        self._alive.discard(pid)

    def close(self) -> None:
        """Nobody is left."""
        for pid in tuple(self._alive):
            self.gone(pid, signal.SIGKILL)


def _become(work: Work, faults: str, log: Path) -> NoReturn:
    code = 1
    try:
        die_with_parent()
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        faultpoints.arm_from(faults)
        code = int(work() or 0)  # type: ignore[call-overload]
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def killed_at(point: str, place: Place, kills: int) -> Verdict:
    """The whole experiment.

    Args:
        kills: how many processes are to be killed at the point, at the least: in ``LOAD`` there may be more.

    Raises:
        TimeoutError: they are not.
    """
    killer = Killer(place, point)
    try:
        return _judged(killer, point, place, kills)
    finally:
        killer.close()


def _patience(kills: int) -> float:
    return PATIENCE * max(1.0, kills / 20)


def _judged(killer: Killer, point: str, place: Place, kills: int) -> Verdict:
    _prepared(killer, place, kills if point == "migrate.between" else 0)
    orders = Orders("p", place.dsn, place.schema, RATE, SEED)
    producer = killer.fork(lambda: _produced(orders), armed=False)
    work, at_once = _victim(point, place)
    helper = killer.fork(lambda: _worked(place), armed=False) if work is not _WORKER else 0
    victims: list[int] = []
    begun = time.monotonic()
    while killer.kills < kills or time.monotonic() < begun + LOAD:
        victims = [pid for pid in victims if not killer.ended(pid)]
        victims += [killer.fork(lambda: work(place), armed=True) for _ in range(at_once - len(victims))]
        if time.monotonic() > begun + _patience(kills):
            raise TimeoutError(f"{killer.kills} of {kills} kills: {place.log.read_text()[-2000:]}")
        time.sleep(_LOOK)
    for pid in [producer, *victims, *filter(None, [helper])]:
        killer.gone(pid)
    with connect(place.dsn) as conn:
        jobs = sql.SQL("select from {} limit 1").format(sql.Identifier(place.schema, "jobs"))
        end = time.monotonic() + _patience(kills)
        while conn.execute(jobs).rowcount and time.monotonic() < end:  # what failed is due in a moment
            killer.gone(killer.fork(lambda: _worked(place, burst=True), armed=False), 0)
        return judged(gathered(place.ledger, conn, place.schema, place.elsewhere))


def _prepared(killer: Killer, place: Place, kills: int) -> None:
    """The schema, made by migrators of which so many are killed; and the tables of effects."""
    end = time.monotonic() + _patience(kills)
    while killer.kills < kills and time.monotonic() < end:
        pid = killer.fork(lambda: _migrated(place), armed=True)
        while not killer.ended(pid):
            time.sleep(_LOOK)
    killer.gone(killer.fork(lambda: _migrated(place), armed=False), 0)
    place.furnish()


def _victim(point: str, place: Place) -> tuple[Callable[[Place], object], int]:
    """What comes by the point, and how many at a time."""
    match point:
        case "redrive.before":
            return _redriven, 1
        case "drain.begun":
            return _drained, AT_ONCE
        case _:
            return _WORKER, AT_ONCE


def _migrated(place: Place) -> None:
    store = PostgresStore(place.dsn, place.schema)
    store.migrate()
    store.close()


def _produced(orders: Orders) -> None:
    producer = Producer(orders, children=False)  # a child is a new interpreter, in each of the workers that are killed
    signal.signal(signal.SIGTERM, lambda *_: producer.stopped.set())
    producer.run()


def _worked(place: Place, *, burst: bool = False) -> int:
    # Who is killed in a moment holds few jobs and has one child, for each is a new interpreter. Who drains runs what takes
    # seconds side by side, and what was killed with the others, which children run alone.
    at_once, children = (30, 5) if burst else (5, 1)
    options = Options(
        concurrency=at_once,
        prefetch=5,
        children=children,
        grace=3,
        burst=burst,
        dsn=place.dsn,
        schema=place.schema,
    )
    return int(run_here(TARGET, options))


_WORKER: Callable[[Place], object] = _worked


def _drained(place: Place) -> int:
    """A worker that is told to go as soon as it has something to do."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    return _worked(place)


def _redriven(place: Place) -> None:
    """Somebody at a command line who puts dead letters back, as soon as there are any."""
    with connect(place.dsn) as conn:
        dead = sql.SQL("select from {} limit 1").format(sql.Identifier(place.schema, "dead"))
        while not conn.execute(dead).rowcount:
            time.sleep(_LOOK)
    where = ["--dsn", place.dsn, "--schema", place.schema]
    command(["dead", "redrive", "--queue", QUEUE, "--out-of-order", *where], standalone_mode=False)


def main() -> None:
    """As the head of this file says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("point", choices=sorted(faultpoints.POINTS))
    parser.add_argument("dsn")
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--kills", type=int, default=20, help=f"at the least: there are {LOAD:g} s of load in any case")
    options = parser.parse_args()
    place = Place(options.dsn, "tenure_points", options.scratch)
    os.environ |= {LEDGER: str(place.ledger.path), ELSEWHERE: str(place.elsewhere)}
    os.environ["TENURE_FAULT_LEDGER"] = str(place.ledger.faults)
    verdict = killed_at(options.point, place, options.kills)
    sys.stdout.write(
        json.dumps({"point": options.point, "seed": SEED, **asdict(verdict), "valid": verdict.valid}) + "\n"
    )


if __name__ == "__main__":
    main()
