"""Three kinds that pay through a provider: reserve, call, confirm.

1. *Reserve*: in a transaction of its own, write down that a call may follow. Whatever dies later, this row says so.
2. *Call* the provider under the job's idempotency key. No transaction is open meanwhile: ``tx`` begins at its first use.
3. *Confirm* through ``tx``: the receipt, the dedup row and the completion of the job commit together.

The kinds differ in what they do when the row says that an attempt before this one may have called: ``charge`` repeats the
call with the same key, ``transfer`` looks up what became of it, ``pay_out`` can do neither and leaves it to a human.
"""

import math
import os
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

import httpx
from psycopg import AsyncConnection

from tenure import Backoff, Job, Permanent, Snooze, Tenure, Throttled

TABLE = """
create table payments (
    key          text primary key,  -- job.idempotency_key
    cents        bigint not null,
    state        text not null default 'reserved' check (state in ('reserved', 'refused', 'paid')),
    receipt      text check ((receipt is not null) = (state = 'paid')),
    claim        int not null,      -- which claim of the job made the last call, or was about to
    reserved_at  timestamptz not null default clock_timestamp(),
    called_at    timestamptz not null default clock_timestamp()
)
"""

TIMEOUT = float(os.environ.get("PAYMENT_TIMEOUT", "10"))
"""Longest wait for an answer, seconds."""

SETTLED = 2 * TIMEOUT
"""After so many seconds a call is over at the provider's side too: what its look-up does not show then was not done."""

KEYS_LIVE = 23 * 3600.0
"""How long the provider remembers an idempotency key, and a little less, seconds."""

LEASE, BACKOFF = "3s", Backoff("200ms", "1m")  # short, so that the example is quick

app = Tenure()
client = httpx.AsyncClient(base_url=os.environ.get("PAYMENT_URL", "http://127.0.0.1:8402"), timeout=TIMEOUT)
app.on_stop(client.aclose)


class Earlier(NamedTuple):
    """What attempts before this one have left.

    Args:
        receipt: of the payment, if it was confirmed.
        reserved_ago, called_ago: seconds since the first and the last call that may have been made.
    """

    receipt: str | None
    reserved_ago: float
    called_ago: float


async def reserve(job: Job, cents: int, again_after: float = 0.0) -> Earlier | None:
    """Write down, and commit, that a call may follow; None if none can have been made before.

    Args:
        again_after: how long after an earlier call this attempt may make another one, seconds.
    """
    key = job.idempotency_key
    async with await AsyncConnection.connect(app.dsn) as conn:  # commits at its end
        new = await conn.execute(
            "insert into payments as p (key, cents, claim) values (%s, %s, %s) on conflict (key) do update"
            " set state = 'reserved', cents = excluded.cents, claim = excluded.claim,"
            " reserved_at = clock_timestamp(), called_at = clock_timestamp() where p.state = 'refused'",
            [key, cents, job.claims],
        )
        if new.rowcount:
            return None
        # It is there; the conflict has locked it, so that two attempts at the same time do not both see an old call.
        found = await conn.execute(
            "select receipt, extract(epoch from clock_timestamp() - reserved_at)::float8,"
            " extract(epoch from clock_timestamp() - called_at)::float8 from payments where key = %s",
            [key],
        )
        row = await found.fetchone()
        if row is None:
            raise LookupError(f"somebody has deleted the reservation of {key}")
        earlier = Earlier(*row)
        if earlier.called_ago >= again_after:
            await conn.execute(
                "update payments set claim = %s, called_at = clock_timestamp() where key = %s and state = 'reserved'",
                [job.claims, key],
            )
    return earlier


async def refuse(job: Job) -> None:
    """Take back what this claim reserved: nothing was done, and the next attempt is as good as the first."""
    async with await AsyncConnection.connect(app.dsn) as conn:
        await conn.execute(
            "update payments set state = 'refused' where key = %s and claim = %s and state = 'reserved'",
            [job.idempotency_key, job.claims],
        )


async def confirm(tx: AsyncConnection, job: Job, receipt: str) -> None:
    """Write down that it is paid, in the transaction that also completes the job."""
    await tx.execute("update payments set state = 'paid', receipt = %s where key = %s", [receipt, job.idempotency_key])


async def call(job: Job, earlier: Earlier | None, path: str, body: Mapping[str, object]) -> str:
    """Ask for the work; answers the receipt. The header is ignored by a provider that does not know it.

    Errors of httpx are raised as they are, because Tenure reads their status: 402 is permanent, 429 is throttled for its
    Retry-After, 5xx and no answer at all are transient.
    """
    try:
        response = await client.post(path, json=body, headers={"Idempotency-Key": job.idempotency_key})
        if response.status_code == 409:
            raise Throttled("an earlier call with this key is under way")
        response.raise_for_status()
    except httpx.HTTPError as error:
        if earlier is None and nothing_was_done(error):
            await refuse(job)
        raise
    return str(response.json()["id"])


def nothing_was_done(error: httpx.HTTPError) -> bool:
    """Whether that is certain: the provider says so, or was never reached. A timeout and a 500 leave it open."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in (400, 401, 402, 403, 404, 429)
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


async def look_up(path: str) -> str | None:
    """Ask what became of earlier calls; answers the receipt, None if there is none."""
    response = await client.get(path)
    response.raise_for_status()
    receipts = [str(payment["id"]) for payment in response.json()["found"]]
    return receipts[0] if receipts else None


@app.job(queue="payments", effect=True, lease=LEASE, backoff=BACKOFF)
async def charge(tx: AsyncConnection, job: Job, order_id: int, cents: int) -> str:
    """The provider knows idempotency keys: an earlier call is repeated with the same key."""
    key = job.idempotency_key
    earlier = await reserve(job, cents)
    if earlier and earlier.receipt:
        return earlier.receipt
    receipt = None
    if earlier and earlier.reserved_ago > KEYS_LIVE:  # a repeat would be a new call
        receipt = await look_up(f"/charges/{quote(key, safe='')}")
    receipt = receipt or await call(job, earlier, "/charges", {"order": order_id, "cents": cents})
    await confirm(tx, job, receipt)
    return receipt


@app.job(queue="payments", effect=True, lease=LEASE, backoff=BACKOFF)
async def transfer(tx: AsyncConnection, job: Job, order_id: int, cents: int) -> str:
    """The provider has a look-up, but no keys: what an earlier call has done is looked up before there is another one."""
    key = job.idempotency_key
    earlier = await reserve(job, cents, again_after=SETTLED)
    if earlier and earlier.receipt:
        return earlier.receipt
    receipt = await look_up(f"/transfers?reference={quote(key, safe='')}") if earlier else None
    if earlier and not receipt and earlier.called_ago < SETTLED:
        raise Snooze("an earlier call may still be under way", for_=SETTLED - earlier.called_ago)
    receipt = receipt or await call(job, earlier, "/transfers", {"reference": key, "order": order_id, "cents": cents})
    await confirm(tx, job, receipt)
    return receipt


@app.job(queue="payouts", effect=True, lease=LEASE, backoff=BACKOFF)
async def pay_out(tx: AsyncConnection, job: Job, order_id: int, cents: int) -> str:
    """The provider has neither: after a call that may have been made, a human decides whether there is another one."""
    key = job.idempotency_key
    earlier = await reserve(job, cents, again_after=math.inf)
    if earlier and earlier.receipt:
        return earlier.receipt
    if earlier:
        raise Permanent(f"uncertain: {key} may have been paid out {earlier.called_ago:.0f} s ago; ask the provider")
    receipt = await call(job, earlier, "/payouts", {"reference": key, "order": order_id, "cents": cents})
    await confirm(tx, job, receipt)
    return receipt
