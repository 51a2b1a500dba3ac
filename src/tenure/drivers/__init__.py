"""Other people's connections: what Tenure says on them, and how.

A ``Script`` says statements and is sent their rows; it does no I/O, so one text of it runs on every connection, in a thread
or on an event loop. ``borrow`` and ``aborrow`` find out whose connection it is that somebody hands in.
"""

from tenure.drivers.find import aborrow, borrow, require_queue
from tenure.drivers.script import (
    ABorrowed,
    Borrowed,
    Rows,
    Script,
    Statement,
    arun,
    as_uuid,
    causes,
    require_transaction,
    run,
    sqlstate,
)

__all__ = [
    "ABorrowed",
    "Borrowed",
    "Rows",
    "Script",
    "Statement",
    "aborrow",
    "arun",
    "as_uuid",
    "borrow",
    "causes",
    "require_queue",
    "require_transaction",
    "run",
    "sqlstate",
]
