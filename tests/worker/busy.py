"""Workers with plenty to do, for tests that disturb them: jobs that take a moment, with and without an effect.

Whatever happens meanwhile, in the end each job is done, and each effect is there once::

    load = Load(bench)
    load.offer(plain=300, effects=60)
    load.start(concurrency=8)
    load.goes_on()
    ...
    load.is_done()
"""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import psycopg

from tests.apps import load as app
from tests.worker.ledger import until
from tests.worker.processes import Bench, Process

APP = "tests.apps.load:app"


class Load:
    """What was offered to a bench's workers, and what has become of it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._workers: list[Process] = []
        self.ids: set[UUID] = set()
        self.effects = 0
        self.promised_all = True  # else there may be jobs that nobody was promised
        bench.use(app.app)
        bench.ask(app.TABLE)

    def offer(self, plain: int = 0, effects: int = 0) -> None:
        """Enqueue so many more of each."""
        numbers = range(self.effects, self.effects + effects)
        tickets = app.plain.enqueue_many_sync([{}] * plain)
        tickets += app.write.enqueue_many_sync([{"what": n} for n in numbers])
        self.effects += effects
        self.ids |= {ticket.id for ticket in tickets}

    def start(self, **options: Any) -> Process:
        """One more worker."""
        self._workers.append(self._bench.start(APP, **options))
        return self._workers[-1]

    def goes_on(self, runs: int = 20) -> None:
        """Wait until all workers are at work, and so many more have run, or as many as there are jobs."""
        for worker in self._workers:
            until(lambda worker=worker: " is working on " in worker.log, "the start of a worker")  # type: ignore[misc]
        before = len(self._bench.ledger.lines("ran"))
        self._bench.ledger.wait("ran", count=min(before + runs, len(self.ids)))

    def is_done(self, timeout: float = 60.0) -> None:
        """Wait for the end of all; each job is done and ran, each effect is there once."""
        until(lambda: self._left() == 0, "the end of all jobs", timeout)
        assert self._bench.count("dead") == 0
        done = {row[0] for row in self._bench.ask("select id from tenure.archive where state = 'done'")}
        assert done == self.ids or (done > self.ids and not self.promised_all)
        assert {UUID(line.id) for line in self._bench.ledger.lines("ran")} == done
        assert sorted(row[0] for row in self._bench.ask("select what from written")) == list(range(self.effects))

    def _left(self) -> int | None:
        """Jobs that have not ended; None while the server does not say."""
        with contextlib.suppress(psycopg.OperationalError):
            return self._bench.count("jobs")
        return None
