"""Runs chaos: producers, workers and a nemesis as real processes; then heal, drain, check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from psycopg import Connection, sql
from psycopg.conninfo import make_conninfo

from tenure.chaos import place, plants
from tenure.chaos.check import Verdict, judged
from tenure.chaos.crew import Crew
from tenure.chaos.facts import gathered
from tenure.chaos.nemesis import Nemesis
from tenure.chaos.network import Network
from tenure.chaos.place import Place
from tenure.chaos.plan import Fault, chosen, planned
from tenure.chaos.told import Facts
from tenure.embedded.engine import Engine
from tenure.stage import interruptible, require_there, undisturbed
from tenure.store.connections import connect

Show = Callable[[str, int, int | None], None]
"""Called with what is done, how much of it, and how much there is, if that is known."""

PRODUCERS = 2
_RATE = 130.0  # jobs a second of each producer
_PATIENCE = 60.0  # seconds without any progress after which what is left counts as stuck
_LOOK = 0.2
_SURE = 5  # looks that must find nothing


@dataclass(frozen=True)
class Wishes:
    """What a run is asked for.

    Args:
        seconds: how long producers and nemesis are at work.
        seed: decides the schedule, and what producers do.
        workers: how many processes.
        faults: comma-separated kinds; None takes all that are possible.
        plant: the bug that the processes have.
        dsn: a database; None starts an embedded PostgreSQL.
        schema: in which the queue is; None takes a new one, which is dropped at the end.
        evidence: where ledgers are kept if the promise was not; None is a directory among the temporary files.
    """

    seconds: float = 60.0
    seed: int = 1
    workers: int = 3
    faults: str | None = None
    plant: str | None = None
    dsn: str | None = field(default=None, repr=False)
    schema: str | None = None
    evidence: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Args:
        drained: seconds from the end of the producers until nothing was left to do, or nothing moved.
        missed: kinds of faults that were asked for and did not happen: the time was too short for them.
        kept: where ledgers, logs and rows are, if the promise was not kept.
    """

    verdict: Verdict
    facts: Facts
    drained: float
    missed: list[str]
    kept: Path | None = None

    def caught(self, wishes: Wishes) -> bool | None:
        """Whether the planted bug shows where it is known to; None where none was planted."""
        return None if wishes.plant is None else getattr(self.verdict, plants.require(wishes.plant).shown) > 0

    def is_good(self, wishes: Wishes) -> bool:
        """The promise was kept; or, where a bug was planted, that was caught: a run that misses it has proven nothing."""
        return self.verdict.valid if wishes.plant is None else bool(self.caught(wishes))

    def as_dict(self, wishes: Wishes) -> dict[str, Any]:
        """For programs."""
        return {
            **asdict(self.verdict),
            "seed": wishes.seed,
            "seconds": wishes.seconds,
            "workers": wishes.workers,
            "plant": wishes.plant,
            "caught": self.caught(wishes),
            "drained_s": self.drained,
            "missed": self.missed,
            "kept": None if self.kept is None else str(self.kept),
            "valid": self.verdict.valid,
        }


def run(wishes: Wishes, show: Show) -> Outcome:
    """A run, from the first process to the verdict.

    Raises:
        ConfigError: a fault or bug that there is not, a server that is not ours to stop, a schema that holds jobs, evidence
            where something is already.
        EngineError, StoreUnavailable, ServerUnsuitable: there is no server for it, or a pooler in front of it.
    """
    kinds = chosen(wishes.faults, embedded=wishes.dsn is None)
    if wishes.plant is not None:
        _require_plant(wishes.plant)
    plan = planned(wishes.seed, wishes.seconds, wishes.workers, kinds)
    with interruptible(), _set_up(wishes) as (here, engine):
        drained = _happened(wishes, plan, here, engine, show)
        with connect(here.dsn) as conn:
            facts = gathered(here.ledger, conn, here.schema, here.elsewhere)
        verdict = judged(facts)
        missed = [kind for kind in kinds if kind not in verdict.faults]
        if verdict.valid:
            return Outcome(verdict, facts, drained, missed)
        outcome = Outcome(verdict, facts, drained, missed, wishes.evidence or here.scratch)
        _write_down(outcome, wishes, here)
        return outcome


@contextmanager
def _set_up(wishes: Wishes) -> Iterator[tuple[Place, Engine | None]]:
    """The place of the run, and the server where it is ours to stop."""
    name = wishes.schema or f"tenure_chaos_{wishes.seed}_{time.time_ns():x}"
    with (
        place.scratch(wishes.evidence) as scratch,
        place.server(wishes.dsn) as (dsn, engine),
        # A server of our own goes with all that is on it.
        place.schema(dsn, name, drop=wishes.schema is None and engine is None),
    ):
        here = Place(dsn, name, scratch)
        here.furnish()
        yield here, engine


def _happened(wishes: Wishes, plan: list[Fault], here: Place, engine: Engine | None, show: Show) -> float:
    """All of it: faults, healing, draining; answers how long the last took, seconds."""
    application = f"chaos {here.schema}"
    with Network(make_conninfo(here.dsn, application_name=application), wishes.workers, PRODUCERS) as network:
        require_there(network.ways[0].proxy.dsn())
        crew = Crew(here, network, rate=_RATE, seed=wishes.seed, plant=wishes.plant)
        nemesis = Nemesis(crew, network, here.ledger, dsn=here.dsn, application=application, engine=engine)
        total = int(wishes.seconds)
        try:
            crew.begin()
            nemesis.carry_out(plan, wishes.seconds, lambda passed: show("faults, seconds", int(passed), total))
            nemesis.heal()
            crew.stop_producers()
            return _drained(crew, here, show)
        finally:
            with undisturbed():
                crew.close()


def _drained(crew: Crew, here: Place, show: Show) -> float:
    """Until nothing is left, or nothing moves any more; answers how long that took, seconds."""
    started = moved = time.monotonic()
    least: int | None = None
    empty = 0
    with connect(here.dsn) as conn:
        while empty < _SURE and time.monotonic() < moved + _PATIENCE:
            left = _left(conn, here.schema)
            empty = 0 if left else empty + 1  # the commit of a producer that was killed may still be under way
            if least is None or left < least:
                least, moved = left, time.monotonic()
            crew.tend()
            show("drained, jobs left", 0, left)
            time.sleep(_LOOK)
    return round(time.monotonic() - started, 1)


def _left(conn: Connection, schema: str) -> int:
    row = conn.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(schema, "jobs"))).fetchone()
    return 0 if row is None else int(row[0])


def _write_down(outcome: Outcome, wishes: Wishes, here: Place) -> None:
    """What the database held goes beside the ledgers: its schema may be gone in a moment."""
    rows = [row._asdict() for row in outcome.facts.rows] + [effect._asdict() for effect in outcome.facts.effects]
    here.rows.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    here.verdict.write_text(json.dumps(outcome.as_dict(wishes), indent=2))


def _require_plant(name: str) -> None:
    """See that there is such a bug, and that it finds the code that it is to change."""
    plants.require(name)
    told = subprocess.run(
        [sys.executable, "-c", "import tenure.chaos.apps"],
        env={**os.environ, plants.PLANT: name},
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode:
        raise AssertionError(f"{name} cannot be planted: {told.stderr}")
