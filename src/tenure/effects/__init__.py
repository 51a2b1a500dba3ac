"""The transactional consumer: dedup row, business effect and completion in one commit, or none of them.

A handler declared with ``effect=True`` gets ``tx``, a connection of the queue's database in one of several forms. Its
transaction begins at the first use, not at the claim, so that it is short: BEGIN, the dedup row, whatever the handler
writes, the fenced completion, COMMIT. The job's row is locked only by the completion. If the lease is gone by then, all of
it is rolled back. The handler cannot commit; a transaction it ended in spite of that is noticed and the attempt fails.

What is said is written once (``steps``); it is said on the event loop or in the handler's thread (``opened``), on
connections of their own (``pool``), to which SQLAlchemy's objects can be lent (``alchemy``). Where a kind asks for it,
several effects share a transaction (``company``).
"""

from tenure.effects.attempt import GaveUpError
from tenure.effects.effect import AlreadyDoneError, CommitUnknownError, Effect, by_idempotency_key, by_natural_key
from tenure.effects.opened import caught
from tenure.effects.run import RERUNS, Effects

__all__ = [
    "RERUNS",
    "AlreadyDoneError",
    "CommitUnknownError",
    "Effect",
    "Effects",
    "GaveUpError",
    "by_idempotency_key",
    "by_natural_key",
    "caught",
]
