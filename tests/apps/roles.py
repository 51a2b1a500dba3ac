"""Kinds for workers in a role of their own: an effect, a child, a failure that passes, and a dead letter."""

from __future__ import annotations

from psycopg import AsyncConnection

from tenure import Backoff, Job, Permanent, Tenure

app = Tenure()

QUICK = Backoff("20ms", "40ms")

TABLE = "create table public.paid (order_id int not null)"


@app.job(effect=True, backoff=QUICK)
async def pay(tx: AsyncConnection, order_id: int) -> int:
    """Writes a row."""
    await tx.execute("insert into public.paid (order_id) values (%s)", [order_id])
    return order_id


@app.job(cpu=True)
def double(n: int) -> int:
    """Runs in a child."""
    return 2 * n


@app.job(backoff=QUICK)
def stumble(job: Job) -> int:
    """Fails the first time."""
    if job.claims == 1:
        raise ConnectionError("not now")
    return job.claims


@app.job()
def refuse(job: Job) -> int:
    """A dead letter, and done after a redrive."""
    if job.claims == 1:
        raise Permanent("not like this")
    return job.claims


@app.job()
async def pass_on(order_id: int) -> None:
    """Enqueues another job."""
    await pay.enqueue(order_id=order_id, key=f"order-{order_id}")
