"""What a worker of a chaos run writes down, beside what its handlers tell."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection

from tenure import Job, Tenure
from tenure.chaos.asking import write_down
from tenure.chaos.facts import from_ledger
from tenure.chaos.ledger import Ledger
from tenure.effects.company import Companies
from tenure.effects.run import Effects
from tenure.effects.steps import _APART
from tenure.worker.settler import Settler
from tests.worker.here import burst


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Of this process, in which workers write down what they ask for."""
    for owner, name in ((Settler, "put"), (Settler, "put_all"), (Effects, "_once"), (Companies, "run")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # to be put back
    ledger = Ledger(tmp_path)
    write_down(ledger)
    return ledger


def test_each_settlement_is_written_down_with_its_lease(dsn: str, ledger: Ledger) -> None:
    app = Tenure(dsn)

    @app.job()
    async def plain(job: Job) -> int:
        return job.claims

    with app:
        ticket = plain.enqueue_sync()
        burst(app)
    [line] = ledger.lines()
    assert (line["event"], line["id"], line["claim"], line["what"]) == ("asked", str(ticket.id), 1, "complete")


@pytest.mark.parametrize("group", [1, 5])
def test_an_effect_that_the_database_wants_again_is_told_between_its_runs(dsn: str, ledger: Ledger, group: int) -> None:
    app = Tenure(dsn)

    @app.job(effect=True, group=group)
    async def effect(tx: AsyncConnection, job: Job) -> int:
        ledger.note("begun", id=str(job.id), claim=job.claims)
        if sum(line["event"] == "begun" for line in ledger.lines()) < 3:
            raise psycopg.errors.SerializationFailure("once more")
        await tx.execute("select 1")
        return job.claims

    with app:
        ticket = effect.enqueue_sync()
        assert burst(app).counts["committed"] == 1
    lines = list(ledger.lines())
    assert [line["event"] for line in lines] == ["begun", "undone", "begun", "undone", "begun"]
    assert {(line["id"], line["claim"]) for line in lines} == {(str(ticket.id), 1)}


def test_effects_that_suffer_from_their_companions_are_told_between_their_runs(dsn: str, ledger: Ledger) -> None:
    app = Tenure(dsn)

    @app.job(effect=True, group=5)
    async def effect(tx: AsyncConnection, job: Job, ref: str) -> int:
        told = {"id": str(job.id), "claim": job.claims}
        ledger.note("begun", **told, ref=ref, attempt=job.attempt, parent=0)
        await tx.execute(f"release {_APART}".encode())  # what keeps it apart from the others
        ledger.note("ended", **told)
        return job.claims

    with app:
        effect.enqueue_many_sync([{"ref": f"r{n}"} for n in range(5)])
        burst(app)
    assert [line for line in ledger.lines() if line["event"] == "undone"]
    assert len(from_ledger(ledger).runs) == 5


def test_a_failure_of_the_handler_undoes_nothing_that_is_made_again(dsn: str, ledger: Ledger) -> None:
    app = Tenure(dsn)

    @app.job(effect=True, max_attempts=1)
    async def effect(tx: AsyncConnection, job: Job) -> None:
        raise ValueError

    with app:
        effect.enqueue_sync()
        burst(app)
    assert [(line["event"], line["what"]) for line in ledger.lines()] == [("asked", "bury")]
