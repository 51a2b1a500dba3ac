"""Kinds that call a payment provider which a test switches on, and one that does not."""

from __future__ import annotations

from tenure import Backoff, Job, Tenure, Throttled
from tests.apps.ledger import gate, note, opened

app = Tenure()
app.downstream("psp", calls=4, open_for="1h")

LATER = Backoff("1h", "1h")


@app.job(queue="pay", downstream="psp", backoff=LATER, lease="2s")
async def pay(job: Job, waits: str | None = None) -> None:
    """Ends well once there is a gate ``up``."""
    note("started", job)
    if waits is not None:
        await opened(waits)
    if not gate("up").exists():
        raise ConnectionError("the provider does not answer")
    note("ended", job)


@app.job(queue="pay")
async def mail(job: Job) -> None:
    """Calls nobody."""
    note("ended", job)


@app.job(queue="calls", backoff=LATER)
async def call(job: Job, fails: bool = False) -> None:
    """Is told "not now" if it is to be."""
    note("called", job)
    if fails:
        raise Throttled(retry_after=3600)
