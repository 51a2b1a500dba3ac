"""Whatever the library: the same requests get the same answers, and leave the same rows, as on a connection of our own.

Requests are made up at random, and once by hand. Each list of them is sent twice: into one queue by ourselves, into another
by a caller with a library's connection, who then commits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, settings

from tenure import Refused, Tenure
from tenure.kind import Kind
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import SetQueue
from tenure.ticket import Ticket
from tests.drivers.callers import CALLERS, calling
from tests.drivers.conftest import Watch
from tests.support.properties import given, st

Step = list[dict[str, Any]]
"""Requests that are made together; a single one may also be made alone."""

NASTY = "%s %% %(key)s :key ? $1 {x} \\ ' \" é 🌱 \n"
"""What some way of writing values would stumble over."""

SOON = datetime(2020, 1, 31, 12, 30, tzinfo=UTC)
LATE = datetime(2035, 1, 31, 12, 30, 0, 123456, tzinfo=UTC)

requests = st.fixed_dictionaries(
    {"n": st.integers(1, 2)},
    optional={
        "note": st.sampled_from(["", NASTY, "long" * 100]),
        "key": st.sampled_from(["a", "b", NASTY]),
        "delay": st.sampled_from([0, 3600, 0.5]),
        "expires": st.sampled_from(["1d", LATE]),
        "priority": st.integers(0, 9),
        "headers": st.sampled_from([{}, {"note": NASTY, "n": 1.0}]),
        "wants_result": st.booleans(),
        "order": st.sampled_from(["o", NASTY]),
    },
)
steps = st.lists(
    st.one_of(
        st.lists(requests, min_size=1, max_size=4),
        requests.map(lambda request: [{"replace": "key" in request, **request}]),
    ),
    min_size=1,
    max_size=6,
)

BY_HAND: list[Step] = [
    [{"n": 1, "key": "a"}],  # new
    [{"n": 1, "key": "a"}],  # same
    [{"n": 2, "key": "a"}],  # conflict
    [{"n": 3, "key": "a", "replace": True, "delay": 60, "headers": {"by": NASTY}, "expires": LATE}],  # replaced
    [{"n": 3, "key": "a"}],  # same, as replaced
    [{"n": 4}],  # keyless
    [  # in bulk, with duplicates
        {"n": 5, "key": "b", "at": SOON},
        {"n": 5, "key": "b"},
        {"n": 6, "key": "b"},
        {"n": 6, "priority": 0},
        {"n": 6, "at": LATE, "expires": "1h"},
        {"n": 3, "key": "a"},
        {"n": 9, "key": "a"},
        {"n": 7, "key": NASTY, "note": NASTY},
        {"n": 8, "note": "long" * 100},  # too large
        {"n": 8, "key": "c", "note": "long" * 100},
        {"n": 8, "wants_result": True},  # nowhere to keep it
        {"n": 8, "key": "d", "wants_result": True},
        {"n": 9, "key": "b", "replace": True},
    ],
    [{"n": 8, "note": "long" * 100}],
    [{"n": 8, "wants_result": True}],
]

_numbers = itertools.count()


@pytest.fixture
def kind(pg_dsn: str) -> Iterator[Kind]:
    with Tenure(pg_dsn, payload_limit=300) as app:

        @app.job()
        def work(n: int, note: str = "") -> None:
            raise NotImplementedError

        yield work


@pytest.mark.parametrize("library", CALLERS)
@example(made=BY_HAND)
@given(made=steps)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_library_gets_the_same_answers_and_leaves_the_same_rows(
    library: str, kind: Kind, pg_dsn: str, made: list[Step]
) -> None:
    number = next(_numbers)
    ours, theirs = f"ours-{number}", f"theirs-{number}"
    store: PostgresStore = kind.app.store
    for queue in (ours, theirs):
        store.run(SetQueue(queue, {"retention": 0}))
    expected = send(made, ours, kind, kind.enqueue_sync, kind.enqueue_many_sync)
    with calling(library, pg_dsn) as caller:
        caller.begin()
        answers = send(
            made,
            theirs,
            kind,
            lambda *args, **more: caller.enqueue(kind, *args, **more),
            lambda batch: caller.enqueue_many(kind, batch),
        )
        caller.commit()
    assert answers == expected
    watch = Watch(pg_dsn)
    assert rows(watch, theirs) == rows(watch, ours)
    watch.conn.close()


def test_the_requests_made_by_hand_get_every_answer(kind: Kind) -> None:
    kind.app.store.run(SetQueue("q", {"retention": 0}))
    told = send(BY_HAND, "q", kind, kind.enqueue_sync, kind.enqueue_many_sync)
    words = {answer[0] for answer in told if answer[0] != "Refused"}
    assert words == {"new", "same", "conflict", "replaced", "too_large", "no_result", "Conflict", "PayloadTooLarge"}


def send(
    made: list[Step],
    queue: str,
    kind: Kind,
    one: Callable[..., Ticket],
    many: Callable[[list[Any]], list[Ticket]],
) -> list[tuple[Any, ...]]:
    """Make the requests; what was said, with the jobs numbered in the order in which they are first spoken of."""
    seen: dict[UUID, int] = {}
    told: list[tuple[Any, ...]] = []

    def tell(ticket: Ticket) -> None:
        number = seen.setdefault(ticket.id, len(seen))
        told.append((ticket.answer, ticket.state, ticket.key, ticket.result_text, number))

    for step in made:
        if len(step) > 1:
            for ticket in many([kind.request(queue=queue, **request) for request in step]):
                tell(ticket)
            continue
        try:
            tell(one(queue=queue, **step[0]))
        except Refused as error:
            told.append((type(error).__name__, getattr(error, "held", None), getattr(error, "given", None)))
    return told


def rows(watch: Watch, queue: str) -> list[Any]:
    """What is stored of a queue: all but ids, and moments that depend on when it was said."""
    jobs = watch.conn.execute(
        """
        select kind, version, state, priority, attempts, max_attempts, key, order_key, gate, payload::text, headers::text,
               case when available_at = %(late)s then 'late'
                    else round(extract(epoch from available_at - accepted_at) / 100)::text end,
               case when expires_at = %(late)s then 'late'
                    else round(extract(epoch from expires_at - accepted_at) / 100)::text end
        from tenure.jobs where queue = %(queue)s order by seq
        """,
        {"queue": queue, "late": LATE},
    ).fetchall()
    keys = watch.conn.execute(
        """
        select k.key, k.kind, k.fingerprint, k.ttl, k.state, k.expires_at, j.payload::text
        from tenure.keys k join tenure.jobs j on j.id = k.job_id where k.queue = %s order by k.key
        """,
        [queue],
    ).fetchall()
    return [jobs, keys]
