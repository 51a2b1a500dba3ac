"""The jobs of a chaos run: what each does, and what it tells the ledger.

A result names the claim that made it, and so does the message of an error: the checker sees whose settlement was taken.
Jobs with one natural key have one result, and it names the claim of the job that had the effect.
Effects write a row each, into tables without any constraint: a second one would be there to be counted. One kind writes
into another database, an SQLite file.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from psycopg import AsyncConnection, sql

from tenure.app import Tenure
from tenure.chaos import plants
from tenure.chaos.asking import write_down
from tenure.chaos.ledger import Ledger
from tenure.chaos.plan import LEASE
from tenure.elsewhere import once
from tenure.errors import Permanent, Snooze
from tenure.job import Job
from tenure.policy import Backoff
from tenure.worker.child import die_with_parent

QUEUE = "chaos"
NARROW = "chaos_narrow"
"""A queue that is bounded."""

ROOM = 30
"""Most jobs that may wait in it."""

LEDGER = "_TENURE_CHAOS_LEDGER"
"""Where a process writes; from the command to those it starts."""

ELSEWHERE = "_TENURE_CHAOS_ELSEWHERE"
"""The SQLite file; likewise."""

COLUMNS = "(job_id uuid not null, ref text not null, claim int not null)"
"""Of the tables that effects write into."""

TOGETHER = ("post", "grouped")
"""Kinds whose completion commits with what they have written."""

EFFECTS = (*TOGETHER, "natural", "elsewhere")
"""Kinds whose run leaves a row."""

ALWAYS = ("quick", "threaded", "heavy", "batched", "slow", "flaky", "failing", "snoozing", "narrow", *EFFECTS)
"""Kinds whose jobs always succeed in the end: none of them may be given up. Those of ``hopeless`` all are."""

_SOON = Backoff("100ms", "1s")
_PATIENT = 1000  # attempts: that none is given up is to be no matter of how often its worker was killed
_SOME_WORK = 200_000  # some milliseconds
_A_WHILE = 0.6 * LEASE  # seconds: whoever is stopped meanwhile wakes up when its lease is over

app = Tenure()


@cache
def ledger() -> Ledger:
    """This process's ledger."""
    return Ledger(Path(os.environ[LEDGER]))


@app.on_start
def write_down_what_is_asked() -> None:
    """In a worker, before its first job."""
    write_down(ledger())


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON)
async def quick(job: Job, ref: str) -> int:
    """Does next to nothing."""
    _begins(job, ref)
    await asyncio.sleep(0)
    return _ends(job)


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON)
def threaded(job: Job, ref: str) -> int:
    """Works in a thread."""
    _begins(job, ref)
    time.sleep(0.02)
    return _ends(job)


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON, cpu=True)
def heavy(job: Job, ref: str) -> int:
    """Works in a child."""
    _begins(job, ref)
    sum(range(_SOME_WORK))
    return _ends(job)


@dataclass
class Item:
    """The arguments of a job that runs with others."""

    ref: str


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON, batch=5, linger="20ms")
async def batched(items: list[Item], jobs: list[Job]) -> list[int | Exception]:
    """With others in one call, to ends of their own: some fail at their first attempt."""
    for item, job in zip(items, jobs, strict=True):
        _begins(job, item.ref)
    await asyncio.sleep(0.02)
    return [_fails(job, ConnectionError) if job.attempt == 1 and job.id.int % 4 == 0 else _ends(job) for job in jobs]


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON)
async def slow(job: Job, ref: str) -> int:
    """Needs more time than a lease: heartbeats carry it, and whoever stops its worker finds it at work."""
    _begins(job, ref)
    await _works(job, 1.2 * LEASE)
    return _ends(job)


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON)
async def flaky(job: Job, ref: str) -> int:
    """Fails the first time it comes to its end."""
    _begins(job, ref)
    if job.attempt == 1:
        raise _fails(job, ConnectionError)
    return _ends(job)


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON)
async def failing(job: Job, ref: str) -> int:
    """Its first claim works for a while, and fails then, if its worker lives to see it."""
    _begins(job, ref)
    if job.claims == 1:
        await _works(job, _A_WHILE)
        raise _fails(job, ConnectionError)
    return _ends(job)


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON)
async def snoozing(job: Job, ref: str) -> int:
    """Its first claim works for a while, and finds then that it is too early."""
    _begins(job, ref)
    if job.claims == 1:
        await _works(job, _A_WHILE)
        ledger().note("failed", id=str(job.id), claim=job.claims)
        raise Snooze(for_=0.1)
    return _ends(job)


@app.job(queue=NARROW, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON)
async def narrow(job: Job, ref: str) -> int:
    """Comes from a queue that is full now and then."""
    _begins(job, ref)
    await asyncio.sleep(0.02)
    return _ends(job)


@app.job(queue=QUEUE, lease=LEASE, backoff=_SOON)
async def hopeless(job: Job, ref: str) -> int:
    """Fails for good."""
    _begins(job, ref)
    raise _fails(job, Permanent)


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON, effect=True)
async def post(tx: AsyncConnection, job: Job, ref: str) -> int:
    """Writes a row, together with its dedup row and its completion."""
    return await _posted(tx, job, ref)


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON, effect=True, group=5)
async def grouped(tx: AsyncConnection, job: Job, ref: str) -> int:
    """The same, in a transaction that it may share with others."""
    return await _posted(tx, job, ref)


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON, effect=True, dedup=lambda order_id: order_id)
async def natural(tx: AsyncConnection, job: Job, ref: str, order_id: str) -> int:
    """The same, once for all jobs of an order: the row is the order's."""
    return await _posted(tx, job, ref, order_id)


@app.job(queue=QUEUE, lease=LEASE, max_attempts=_PATIENT, backoff=_SOON, once_ttl="1d")
def elsewhere(job: Job, ref: str) -> int:
    """Writes a row into another database, once; its result is that of the run that did."""
    _begins(job, ref)
    with closing(sqlite3.connect(os.environ[ELSEWHERE], timeout=30)) as db:
        with db, once(db, job) as effect:
            if not effect.done:
                db.execute("insert into effects values (?, ?, ?)", [str(job.id), ref, job.claims])
                effect.result = job.claims
        _ends(job)
        return int(effect.result)


def effects_table(schema: str) -> sql.Identifier:
    """The table that effects write into."""
    return sql.Identifier(schema, "chaos_effects")


@cache
def _posting(schema: str) -> str:
    return sql.SQL("insert into {} (job_id, ref, claim) values (%s, %s, %s)").format(effects_table(schema)).as_string()


async def _posted(tx: AsyncConnection, job: Job, ref: str, order: str | None = None) -> int:
    _begins(job, ref)
    await tx.execute(_posting(app.schema), [job.id, order or ref, job.claims])
    return _ends(job)


def _begins(job: Job, ref: str) -> None:
    """The parent is noted as well: of a child it is the worker, to which faults are done."""
    ledger().note("begun", id=str(job.id), ref=ref, claim=job.claims, attempt=job.attempt, parent=os.getppid())


async def _works(job: Job, seconds: float) -> None:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        ledger().note("stopped", id=str(job.id), claim=job.claims)
        raise


def _fails(job: Job, error: type[Exception]) -> Exception:
    """What to raise; its message begins with the claim's number, which the history will have."""
    ledger().note("failed", id=str(job.id), claim=job.claims)
    return error(f"claim {job.claims}")


def _ends(job: Job) -> int:
    ledger().note("ended", id=str(job.id), claim=job.claims)
    return job.claims


if LEDGER in os.environ:
    die_with_parent()  # whoever is stopped when the command is killed would stay for ever
plants.plant_from_environment()
# What was to be armed in this process is. Its children are to live: two deaths of a job's child would make it poison.
os.environ.pop("TENURE_FAULTS", None)
