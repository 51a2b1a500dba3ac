"""Tenure: an at-least-once job queue on PostgreSQL, for work that must not be lost.

from tenure import Tenure

app = Tenure()  # $TENURE_DSN, else an embedded PostgreSQL

@app.job(queue="mail", max_attempts=5)
async def send_receipt(order_id: int) -> None: ...

ticket = await send_receipt.enqueue(order_id=42, key="order-42")
"""

from tenure.app import Tenure
from tenure.elsewhere import aapply_if_newer, apply_if_newer, once
from tenure.errors import (
    ConfigError,
    Conflict,
    EngineError,
    InvalidArguments,
    InvalidPayload,
    JobFailed,
    LeaseLost,
    MayDuplicate,
    OutcomeUnknown,
    PayloadTooLarge,
    Permanent,
    QueueDraining,
    QueueFull,
    Refused,
    ResultUnavailable,
    Retry,
    SchemaMismatch,
    ServerUnsuitable,
    Snooze,
    StoreBusy,
    StoreUnavailable,
    TenureError,
    Throttled,
    UnknownKind,
)
from tenure.job import Job, Record, State
from tenure.kind import Kind, Request
from tenure.limits import Limit
from tenure.policy import Backoff
from tenure.ticket import Ticket

__all__ = [
    "Backoff",
    "ConfigError",
    "Conflict",
    "EngineError",
    "InvalidArguments",
    "InvalidPayload",
    "Job",
    "JobFailed",
    "Kind",
    "LeaseLost",
    "Limit",
    "MayDuplicate",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "Permanent",
    "QueueDraining",
    "QueueFull",
    "Record",
    "Refused",
    "Request",
    "ResultUnavailable",
    "Retry",
    "SchemaMismatch",
    "ServerUnsuitable",
    "Snooze",
    "State",
    "StoreBusy",
    "StoreUnavailable",
    "Tenure",
    "TenureError",
    "Throttled",
    "Ticket",
    "UnknownKind",
    "aapply_if_newer",
    "apply_if_newer",
    "once",
]
