"""What a walk may do: the choices of each step, the likelier ones more often, and the operations that they become."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from hypothesis import strategies as st

from tenure.job import NewJob
from tenure.store import protocol as ops
from tenure.store.protocol import Op
from tests.model.values import Ending, Lease, Offer
from tests.store.steps import FAILURE, QUEUE

HOUR = 3600.0

KEYS = ("a", "b", "c")
WORKERS = (("work",), ("work", "other"))
"""What each worker knows."""

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
"""Stands for a negative delay at the door."""


def payload(n: int) -> str:
    """As PostgreSQL writes it, so that the model need not know how it does that."""
    return f'{{"n": {n}}}'


class Terms(NamedTuple):
    """What a call of the door says of all its jobs."""

    kind: str
    max_attempts: int
    ttl: int


terms = st.builds(
    Terms, st.sampled_from(["work", "work", "other"]), st.sampled_from([3, 2, 1]), st.sampled_from([9, 3, 0])
)
pick = st.sampled_from([0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 5, 8])
picks = st.lists(pick, min_size=1, max_size=3)
waits = st.sampled_from([0, 0, 0, 1, 3, -1])
leases = st.sampled_from([1, 3])
ttls = st.sampled_from([1, 3, 9, 0])
named = st.sampled_from([None, None, "a", "b"])
"""The natural key of effects, where they have one."""

batches = st.sampled_from([500, 500, 1])
limits = st.sampled_from([100, 2, 1])
workers = st.sampled_from([1, 0])
seldom = st.sampled_from([False, False, False, True])
offers = st.lists(
    st.tuples(
        st.sampled_from([payload(1), payload(2)]),
        st.sampled_from([None, None, None, *KEYS]),
        st.sampled_from([5, 5, 0, 9]),
        st.sampled_from([0, 0, 0, 0, 1, 3, -1]),
        st.sampled_from([None, None, None, None, 1, 5]),
    ),
    min_size=1,
    max_size=3,
)
failures = st.sampled_from(["TimeoutError", None])
completions = st.builds(Ending, st.just("complete"), result=st.sampled_from([None, payload(1)]))
retries = st.builds(Ending, st.just("retry"), waits, st.just("TimeoutError"), st.booleans(), st.booleans())
deferrals = st.builds(Ending, st.sampled_from(["throttle", "snooze"]), waits, failures)
releases = st.builds(Ending, st.just("release"))
burials = st.builds(
    Ending, st.just("bury"), failure=st.just("TimeoutError"), reason=st.sampled_from(["permanent", "poison"])
)
endings = completions | retries | deferrals | releases | burials


def acceptance(terms: Terms, offered: list[Offer]) -> ops.Accept:
    """The operation that offers these jobs."""
    jobs = [
        NewJob(
            offer.id,
            offer.payload,
            offer.priority,
            max(0, offer.delay) * HOUR,
            LONG_AGO if offer.delay < 0 else None,
            None if offer.expires is None else offer.expires * HOUR,
            key=offer.key,
        )
        for offer in offered
    ]
    return ops.Accept(QUEUE, terms.kind, 1, terms.kind, terms.max_attempts, terms.ttl * HOUR, 1000, jobs)


def knowing(kinds: Sequence[str], hours: int) -> list[ops.Known]:
    """What a claimer says that it can run."""
    return [ops.Known(kind, 1, hours * HOUR) for kind in kinds]


def settlement(ending: Ending, leases: list[Lease]) -> Op[dict[UUID, ops.Settlement]]:
    """The operation that ends these attempts so."""
    delay, failure = ending.delay * HOUR, FAILURE if ending.failure else None
    match ending.how:
        case "complete":
            return ops.Complete(QUEUE, [ops.Completion(*lease, ending.result) for lease in leases])
        case "retry":
            flags = ending.death, ending.keeps
            return ops.Retry(QUEUE, [ops.Failed(*lease, delay, FAILURE, *flags) for lease in leases])
        case "throttle":
            return ops.Throttle(QUEUE, [ops.Deferred(*lease, delay, failure) for lease in leases])
        case "snooze":
            return ops.Snooze(QUEUE, [ops.Deferred(*lease, delay, failure) for lease in leases])
        case "release":
            return ops.Release(QUEUE, [ops.Unrun(*lease) for lease in leases])
        case "bury":
            return ops.Bury(QUEUE, [ops.Given(*lease, ending.reason, FAILURE) for lease in leases])
