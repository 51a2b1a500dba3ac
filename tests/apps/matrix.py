"""Effects, for each place one can be in: the queue's database, alone or in a group, another one, and no database at all.

Each leaves traces that a test can count. ``MATRIX_DIE`` names the stage at which a handler kills its process, the first
time; the other moments are fault points.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

import httpx
from psycopg import AsyncConnection

from tenure import Backoff, Job, Tenure, once

app = Tenure()

LEASE = "1s"
QUICK = Backoff("20ms", "40ms")

TABLES = """
    create table written (key text not null);
    create table reserved (key text primary key, receipt text);
"""
OTHER_TABLE = "create table written (key text not null)"


def _stage(name: str, job: Job) -> None:
    if os.environ.get("MATRIX_DIE") == name and job.claims == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@app.job(effect=True, lease=LEASE, backoff=QUICK)
async def same_database(tx: AsyncConnection, job: Job) -> str:
    """The effect is a row in the queue's database."""
    await tx.execute("insert into written (key) values (%s)", [job.idempotency_key])
    return f"by delivery {job.claims}"


@app.job(effect=True, group=3, lease=LEASE, backoff=QUICK)
async def grouped(tx: AsyncConnection, job: Job) -> str:
    """The same, in a transaction that it shares."""
    await tx.execute("insert into written (key) values (%s)", [job.idempotency_key])
    return f"by delivery {job.claims}"


@app.job(lease=LEASE, backoff=QUICK)
def other_database(job: Job) -> str:
    """The effect is a row in a SQLite database."""
    with sqlite3.connect(Path(os.environ["TENURE_GATES"], "other.db"), timeout=30) as db, once(db, job) as effect:
        if not effect.done:
            db.execute("insert into written (key) values (?)", [job.idempotency_key])
            effect.result = f"by delivery {job.claims}"
    db.close()
    return str(effect.result)


@app.job(effect=True, lease=LEASE, backoff=QUICK)
async def no_transaction(tx: AsyncConnection, job: Job) -> str:
    """The effect is a call to a service that knows idempotency keys: reserve, call, confirm."""
    key = job.idempotency_key
    async with await AsyncConnection.connect(app.dsn) as conn:
        await conn.execute("insert into reserved (key) values (%s) on conflict do nothing", [key])
    _stage("reserved", job)
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.post(os.environ["MATRIX_URL"], headers={"Idempotency-Key": key})
    receipt = answer.raise_for_status().text
    await tx.execute("update reserved set receipt = %s where key = %s", [receipt, key])
    return receipt
