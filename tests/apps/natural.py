"""One effect for each order, however many jobs there are for it; the first handler waits at a gate."""

from __future__ import annotations

import os
from pathlib import Path

from psycopg import Connection

from tenure import Backoff, Job, Tenure
from tenure.faultpoints import Gate

app = Tenure()

TABLE = "create table written (order_id int not null, pid int not null)"


@app.job(effect=True, dedup=lambda order_id: order_id, backoff=Backoff("20ms", "40ms"), aliases=["charge"])
def bill(tx: Connection, job: Job, order_id: int, fails: bool = False) -> dict[str, int]:
    """Writes a row, and then waits."""
    tx.execute("insert into written (order_id, pid) values (%s, %s)", [order_id, os.getpid()])
    Gate(Path(os.environ["TENURE_GATES"]) / "gate").wait()
    if fails and job.attempt == 1:
        raise ConnectionError("after the gate")
    return {"order": order_id, "billed by": os.getpid()}


@app.job(effect=True, cpu=True, dedup=lambda order_id: f"order {order_id}")
def bill_in_child(tx: Connection, order_id: int) -> dict[str, int]:
    """Writes a row in a child process."""
    tx.execute("insert into written (order_id, pid) values (%s, %s)", [order_id, os.getpid()])
    return {"order": order_id, "billed by": os.getpid()}
