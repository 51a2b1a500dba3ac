"""Three ways into the table of jobs; neither rows nor answers say which one was taken."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from tenure.errors import InvalidPayload
from tenure.job import Accepted, NewJob, State
from tenure.store import protocol as ops
from tenure.store import stream
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Store
from tests.store.steps import KIND, QUEUE, accept, claim, figures, look, new, offer
from tests.support.properties import given, st

MANY = stream.FEWEST
NOW = datetime.now(UTC)
PAST, FUTURE = NOW - timedelta(days=2), NOW + timedelta(days=2, microseconds=1)

seconds = st.floats(0, 3e8) | st.sampled_from([0.0, 0.0000005, 0.0000015, 0.1])
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
objects = st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts, max_size=3).map(json.dumps)
jobs = st.builds(
    NewJob,
    id=st.builds(uuid4),
    payload=objects,
    priority=st.integers(0, 9),
    delay=seconds,
    at=st.sampled_from([None, PAST, FUTURE]),
    expires_in=st.none() | seconds,
    expires_at=st.sampled_from([None, None, PAST, FUTURE]),
    key=st.none(),
    headers=st.none() | objects,
    replace=st.just(False),
    wants_result=st.booleans(),  # the queue keeps results
    order_key=st.none() | texts.filter(bool),
)

WAITING = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"

Way = Callable[[PostgresStore, list[NewJob]], list[Accepted]]


def singly(store: PostgresStore, offered: list[NewJob]) -> list[Accepted]:
    return [told for job in offered for told in offer(store, job, max_bytes=1_000_000)]


def as_arrays(store: PostgresStore, offered: list[NewJob]) -> list[Accepted]:
    *answers, _ = _offered(store, [*offered, new(key=str(uuid4()))])  # with a key among them there is no stream
    return answers


def as_a_stream(store: PostgresStore, offered: list[NewJob]) -> list[Accepted]:
    return _offered(store, offered)


def _offered(store: PostgresStore, offered: list[NewJob]) -> list[Accepted]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "FEWEST", 1)
        return offer(store, *offered, max_bytes=1_000_000)


def stored(store: PostgresStore, offered: list[NewJob]) -> list[tuple[Any, ...]]:
    """The rows of these jobs in the order of their acceptance, times from there on where they were given so."""
    with psycopg.connect(store.dsn, autocommit=True) as conn:
        rows = conn.execute(
            "select id, queue, kind, version, state, priority, attempts, max_attempts, key, order_key, gate, payload::text,"
            " headers::text,"
            " accepted_at, available_at, expires_at from tenure.jobs where id = any(%s) order by seq",
            [[job.id for job in offered]],
        ).fetchall()
    return [(*row[:13], *_times(job, *row[13:])) for job, row in zip(offered, rows, strict=True)]


def _times(job: NewJob, accepted: datetime, available: datetime, expires: datetime | None) -> tuple[Any, ...]:
    due = available if job.at == FUTURE else available - accepted
    return due, expires if job.expires_at or expires is None else expires - accepted


@given(offered=st.lists(jobs, min_size=1, max_size=5))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whichever_way_jobs_take_the_rows_are_the_same(postgres: PostgresStore, offered: list[NewJob]) -> None:
    rows = []
    for way in (singly, as_arrays, as_a_stream):
        again = [job._replace(id=uuid4()) for job in offered]
        assert [told[1:] for told in way(postgres, again)] == [("new", State.PENDING, *[None] * 4)] * len(offered)
        rows.append([row[1:] for row in stored(postgres, again)])
    assert rows[0] == rows[1] == rows[2]


@pytest.mark.parametrize("way", [singly, as_arrays, as_a_stream])
def test_whichever_way_jobs_take_an_operators_limit_of_attempts_wins(postgres: PostgresStore, way: Way) -> None:
    postgres.run(ops.RegisterKinds([ops.KindRow(KIND, 1, QUEUE, [], False, {}, {}, {})]))
    postgres.run(ops.SetKind(KIND, {"max_attempts": 7}))
    [told] = way(postgres, [new()])
    assert look(postgres, told.id).max_attempts == 7


@pytest.mark.parametrize("way", [singly, as_arrays, as_a_stream])
@pytest.mark.parametrize("text", ['{"x": ', "", '{"s": "a\\u0000b"}', '{"s": "\\ud800"}'])
def test_whichever_way_jobs_take_what_cannot_be_kept_is_refused(postgres: PostgresStore, way: Way, text: str) -> None:
    with pytest.raises(InvalidPayload, match="Nothing was stored"):
        way(postgres, [new(text)])
    with pytest.raises(InvalidPayload, match="Nothing was stored"):
        way(postgres, [new(headers=text)])
    assert claim(postgres) == []


def test_a_single_job_is_not_planned_anew_for_each_call(postgres: PostgresStore) -> None:
    for _ in range(30):
        offer(postgres, new())
    with postgres.connection() as conn:
        [plans] = conn.execute(
            "select generic_plans, custom_plans from pg_prepared_statements where statement like '-- accept_one:%'"
        ).fetchall()
    assert plans[0] > plans[1]


# ------------------------------------------------------------------------- as many as a stream takes, in every store


def test_very_many_are_accepted_in_their_order(store: Store) -> None:
    ids = accept(store, MANY + 1)
    assert sorted(ids, key=lambda id: look(store, id).seq) == ids
    assert [leased.id for leased in claim(store, 2 * MANY)] == ids


def test_of_very_many_one_that_cannot_be_kept_refuses_all(store: Store) -> None:
    with pytest.raises(InvalidPayload):
        offer(store, *(new() for _ in range(MANY)), new('{"x": '), new())
    assert claim(store) == []
    assert len(accept(store)) == 1


def test_of_very_many_each_that_is_too_large_is_refused_alone(store: Store) -> None:
    large, written_out = new({"x": "y" * 10_000}), new('{"x": [' + "1e-400," * 30 + "1]}")
    answers = offer(store, *(new() for _ in range(MANY)), large, written_out, new())
    assert [told.answer for told in answers] == ["new"] * MANY + ["too_large", "too_large", "new"]
    assert len(claim(store, 2 * MANY)) == MANY + 1


def test_of_very_many_those_whose_result_is_kept_nowhere_are_refused(store: Store) -> None:
    store.run(ops.SetQueue(QUEUE, {"retention": 0}))
    answers = offer(store, *(new() for _ in range(MANY)), new(wants_result=True))
    assert [told.answer for told in answers] == ["new"] * MANY + ["no_result"]


def test_very_many_under_the_same_ids_are_the_same_jobs(store: Store) -> None:
    offered = [new({"n": n}) for n in range(MANY)]
    offer(store, *offered[:10])
    answers = offer(store, *offered)
    assert [told.answer for told in answers] == ["same"] * 10 + ["new"] * (MANY - 10)
    assert [told.answer for told in offer(store, *offered)] == ["same"] * MANY
    assert figures(store).pending == MANY


def test_one_job_twice_among_very_many_is_one(store: Store) -> None:
    twice = new()
    offer(store, twice, *(new() for _ in range(MANY)), twice)
    assert figures(store).pending == MANY + 1


def test_a_key_among_very_many_is_still_unique(store: Store) -> None:
    offer(store, new({"n": 0}, key="k"))
    answers = offer(store, *(new() for _ in range(MANY)), new({"n": 0}, key="k"), new({"n": 1}, key="k"))
    assert [told.answer for told in answers] == ["new"] * MANY + ["same", "conflict"]


def test_very_many_from_an_event_loop(store: Store) -> None:
    offered = [new({"n": n}) for n in range(MANY)]
    answers = asyncio.run(store.arun(ops.Accept(QUEUE, KIND, 1, KIND, 3, 3600.0, 10_000, offered)))
    assert [told.id for told in answers] == [job.id for job in offered]
    assert {leased.job.payload for leased in claim(store, 2 * MANY)} == {f'{{"n": {n}}}' for n in range(MANY)}


def test_very_many_join_the_callers_transaction(postgres: PostgresStore) -> None:
    op = ops.Accept(QUEUE, KIND, 1, KIND, 3, 3600.0, 10_000, [new({"n": n}) for n in range(MANY)])
    with psycopg.connect(postgres.dsn) as conn:
        assert {told.answer for told in postgres.run(op, conn)} == {"new"}
        assert claim(postgres) == []
        conn.rollback()
        assert claim(postgres) == []
        postgres.run(op, conn)
    assert len(claim(postgres, 2 * MANY)) == MANY


def test_a_stream_waits_for_whoever_is_committing_the_same_ids(postgres: PostgresStore) -> None:
    offered = [new({"n": n}) for n in range(MANY)]
    with (
        ThreadPoolExecutor(1) as thread,
        psycopg.connect(postgres.dsn) as conn,
        psycopg.connect(postgres.dsn, autocommit=True) as watch,
    ):
        postgres.run(ops.Accept(QUEUE, KIND, 1, KIND, 3, 3600.0, 10_000, offered[-1:]), conn)
        answers = thread.submit(offer, postgres, *offered)
        while not watch.execute(WAITING).fetchall():
            assert not answers.done()
        conn.commit()
        assert [told.answer for told in answers.result(60)] == ["new"] * (MANY - 1) + ["same"]
    assert figures(postgres).pending == MANY
