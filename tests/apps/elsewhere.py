"""Effects in another database: one row in ``notes`` for each that was committed."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from typing import Any

import psycopg

from tenure import Backoff, Job, Tenure, once
from tests.support import mariadb

app = Tenure()

QUICK = Backoff("20ms", "40ms")


def connect(dialect: str) -> Any:
    """A connection to the database that the test has made."""
    at = os.environ["ELSEWHERE"]
    if dialect == "postgresql":
        return psycopg.connect(at)
    return mariadb.connect(at) if dialect == "mysql" else sqlite3.connect(at, timeout=60)


def written(job: Job, dialect: str, text: str) -> dict[str, int]:
    """Write a note once, and commit; answers the claim that has done it."""
    with closing(connect(dialect)) as conn:
        with once(conn, job) as effect:
            if not effect.done:
                with closing(conn.cursor()) as cursor:
                    cursor.execute(f"insert into notes values ('{text}')")  # noqa: S608 - the test's own
                effect.result = {"claim": job.claims}
        conn.commit()
        result: dict[str, int] = effect.result
        return result


@app.job(lease="5s", backoff=QUICK, once_ttl="30d")
def write(job: Job, dialect: str, text: str) -> dict[str, int]:
    """In a thread."""
    return written(job, dialect, text)


@app.job(lease="2s", backoff=QUICK, once_ttl="30d", cpu=True)
def tell(job: Job) -> dict[str, object]:
    """In a child: what it knows of its age."""
    passed = 0.0 if job.claimed is None else time.monotonic() - job.claimed
    return {"ttl": job.once_ttl, "age": job.age, "fresh": job.claimed is not None and 0 <= passed < 60}
