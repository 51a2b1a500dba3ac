"""Workers and a producer at work while servers and poolers come and go, and what is looked at in the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import psycopg

from tenure.store.postgres import PostgresStore
from tests.apps import counted
from tests.races.invariants import Invariants
from tests.support.producer import Producer, Promise, producing
from tests.worker.ledger import until
from tests.worker.processes import Bench, Process

APP = "tests.apps.counted:app"
WORKERS = 2


class Work:
    """What is at work.

    Args:
        bench: the database, wherever it is now, and the ledger.
        workers: they are to go on by themselves, whatever happens.
        producer: likewise.
    """

    def __init__(self, bench: Bench, workers: list[Process], producer: Producer) -> None:
        self.bench = bench
        self.workers = workers
        self.producer = producer

    def done(self) -> dict[int, UUID]:
        """Wait until no job is left; answers the number and id of each, all of which are done.

        Nothing is corrupt: each is in one place, keys and jobs agree, each effect is there once, and each of them has run.
        """
        until(lambda: self.bench.count("jobs") == 0, "the end of all jobs")
        assert [worker.alive for worker in self.workers] == [True] * len(self.workers)
        rows = self.bench.ask("select (payload ->> 'n')::int, id from tenure.archive where state = 'done'")
        done = dict(rows)
        assert len(done) == len(rows), "two jobs for one request"
        with psycopg.connect(self.bench.dsn, autocommit=True) as conn:
            Invariants(conn, list(done.values()))
        written = sorted(n for (n,) in self.bench.ask("select n from written"))
        assert written == sorted(n for n in done if n % 2), "an effect is missing, or there twice"
        assert set(done.values()) <= {UUID(line.id) for line in self.bench.ledger.lines("ran")}
        return done

    def runs_again(self) -> int:
        """How many runs there were beyond the first."""
        lines = self.bench.ledger.lines("ran")
        return len(lines) - len({line.id for line in lines})


@contextmanager
def at_work(dsn: str, tmp_path: Path, *, through: str | None = None) -> Iterator[Work]:
    """Make the queue, and start workers and a producer.

    Args:
        dsn: leads to the database, wherever it is.
        through: the way that workers and producer take there; None takes the same.
    """
    make_queue(dsn)
    bench = Bench(dsn, tmp_path)
    try:
        workers = [bench.start(APP, dsn=through, concurrency=8) for _ in range(WORKERS)]
        with producing(through or dsn, tmp_path / "promises.jsonl") as producer:
            bench.ledger.wait("ran", count=20)
            yield Work(bench, workers, producer)
    finally:
        bench.close()


def make_queue(dsn: str) -> None:
    """The schema, and the table that effects write into."""
    store = PostgresStore(dsn)
    store.migrate()
    store.close()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(counted.TABLE.encode())


def kept(promised: dict[int, Promise], done: dict[int, UUID]) -> bool:
    """Whether each promise was kept, with the job that was promised."""
    return {n: promise.id for n, promise in promised.items()} == {n: done.get(n) for n in promised}


def longest_pause(promised: dict[int, Promise]) -> float:
    """How long it took at the most from one promise to the next, seconds."""
    answered = sorted(promise.answered for promise in promised.values())
    return max(later - earlier for earlier, later in itertools.pairwise(answered))
