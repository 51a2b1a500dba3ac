"""The answer to an enqueue is lost around its commit: the library finds out, and there is one job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tenure.errors import OutcomeUnknown
from tenure.job import Accepted, NewJob, State
from tenure.store import postgres as postgres_module
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tenure.store.stream import FEWEST
from tests.races.sessions import PATIENCE, Sessions
from tests.races.wire import Wire, tapped
from tests.store.steps import KIND, QUEUE, bury, claim, complete, new, offer

around = pytest.mark.parametrize("when", ["before", "after"])
keyed = pytest.mark.parametrize("key", [None, "k"], ids=["keyless", "keyed"])


@pytest.fixture
def wire(store: PostgresStore) -> Iterator[Wire]:
    with tapped(store.dsn) as wire:
        yield wire


def accepting(*jobs: NewJob) -> ops.Accept:
    return ops.Accept(QUEUE, KIND, 1, KIND, 3, 3600.0, 10_000, jobs)


def said(key: str | None) -> str:
    """The statement that a single job is accepted by."""
    return "accept_one" if key is None else "accept"


def again(store: PostgresStore, *jobs: NewJob) -> list[Accepted]:
    """What the library does after an answer was lost."""
    return store._again(accepting(*jobs))


@around
@keyed
def test_an_enqueue_whose_answer_is_lost_gives_one_job(
    sessions: Sessions, wire: Wire, when: str, key: str | None
) -> None:
    cut = wire.cut(when, said(key))
    job = new({"x": 1}, key=key)
    [accepted] = offer(wire.store, job)
    cut.wait()
    assert (accepted.id, accepted.answer, accepted.state) == (job.id, "new", State.PENDING)
    assert [leased.id for leased in claim(sessions.store)] == [job.id]


@around
@keyed
def test_the_same_on_an_event_loop(sessions: Sessions, wire: Wire, when: str, key: str | None) -> None:
    cut = wire.cut(when, said(key))
    job = new({"x": 1}, key=key)
    [accepted] = asyncio.run(wire.store.arun(accepting(job)))
    cut.wait()
    assert (accepted.id, accepted.answer) == (job.id, "new")
    assert [leased.id for leased in claim(sessions.store)] == [job.id]


@around
def test_a_batch_whose_answer_is_lost_is_there_once(sessions: Sessions, wire: Wire, when: str) -> None:
    offer(sessions.store, new({"n": 0}, key="k0"), new({"other": 1}, key="k3"))
    cut = wire.cut(when, "accept")
    jobs = [new({"n": n}, key=f"k{n}" if n % 3 == 0 else None) for n in range(100)]
    answers = offer(wire.store, *jobs)
    cut.wait()
    assert [told.answer for told in answers] == ["same", "new", "new", "conflict", *["new"] * 96]
    assert len(claim(sessions.store, 200)) == 2 + 98


@around
@pytest.mark.parametrize("statement", ["accept_terms", "accept_copy"])
@pytest.mark.parametrize("on_loop", [False, True], ids=["", "loop"])
def test_a_stream_whose_answer_is_lost_is_there_once(
    sessions: Sessions, wire: Wire, when: str, statement: str, on_loop: bool
) -> None:
    cut = wire.cut(when, statement)
    op = accepting(*(new({"n": n}) for n in range(2 * FEWEST)))
    answers = asyncio.run(wire.store.arun(op)) if on_loop else wire.store.run(op)
    cut.wait()
    assert [(told.id, told.answer) for told in answers] == [(job.id, "new") for job in op.jobs]
    assert [leased.id for leased in claim(sessions.store, 3 * FEWEST)] == [job.id for job in op.jobs]


@around
@keyed
def test_the_answer_to_the_repeat_may_be_lost_too(sessions: Sessions, wire: Wire, when: str, key: str | None) -> None:
    cuts = [wire.cut("before", said(key)), wire.cut_commit(when)]
    job = new({"x": 1}, key=key)
    [accepted] = offer(wire.store, job)
    for cut in cuts:
        cut.wait()
    assert (accepted.id, accepted.answer) == (job.id, "new")
    assert [leased.id for leased in claim(sessions.store)] == [job.id]


@keyed
def test_a_job_that_has_ended_meanwhile_is_not_accepted_a_second_time(sessions: Sessions, key: str | None) -> None:
    done, gone = new({"x": 1}, key=key), new({"x": 2}, key=None if key is None else "l")
    offer(sessions.store, done, gone)
    for leased in claim(sessions.store):
        complete(sessions.store, leased, "7") if leased.id == done.id else bury(sessions.store, leased)
    first, second = again(sessions.store, done, gone)
    assert (first.id, first.answer, first.state, first.result) == (done.id, "new", State.DONE, "7")
    assert (second.id, second.answer, second.state) == (gone.id, "new", State.DEAD)
    assert claim(sessions.store) == []
    assert sessions.one("select count(*) from tenure.jobs") == 0


def test_a_batch_of_which_some_have_ended_is_not_accepted_a_second_time(sessions: Sessions) -> None:
    jobs = [new({"n": n}) for n in range(10)]
    offer(sessions.store, *jobs)
    for leased in claim(sessions.store, 4):
        complete(sessions.store, leased)
    answers = again(sessions.store, *jobs)
    assert {told.answer for told in answers} == {"new"}
    assert [told.state for told in answers].count(State.DONE) == 4
    assert sessions.one("select count(*) from tenure.jobs") == 6


def test_with_retention_0_and_no_key_nobody_can_say(sessions: Sessions) -> None:
    sessions.store.run(ops.SetQueue(QUEUE, {"retention": 0}))
    job = new({"x": 1})
    offer(sessions.store, job)
    [leased] = claim(sessions.store)
    complete(sessions.store, leased)
    with pytest.raises(OutcomeUnknown, match=r"keeps nothing of what has ended.*idempotency key"):
        again(sessions.store, job)
    assert sessions.one("select count(*) from tenure.jobs") == 0


def test_with_retention_0_a_job_that_lives_is_found(sessions: Sessions) -> None:
    sessions.store.run(ops.SetQueue(QUEUE, {"retention": 0}))
    job = new({"x": 1})
    offer(sessions.store, job)
    [accepted] = again(sessions.store, job)
    assert (accepted.id, accepted.answer) == (job.id, "new")
    assert len(claim(sessions.store)) == 1


def test_with_retention_0_a_key_answers_after_the_end(sessions: Sessions) -> None:
    sessions.store.run(ops.SetQueue(QUEUE, {"retention": 0}))
    job = new({"x": 1}, key="k")
    offer(sessions.store, job)
    [leased] = claim(sessions.store)
    complete(sessions.store, leased, "7")
    [accepted] = again(sessions.store, job)
    assert (accepted.id, accepted.answer, accepted.state, accepted.result) == (job.id, "new", State.DONE, "7")


@pytest.mark.parametrize("end", ["commit", "rollback", "kill"])
@keyed
def test_the_repeat_waits_for_a_first_try_that_is_still_committing(
    sessions: Sessions, end: str, key: str | None
) -> None:
    first, second = sessions.pair()
    job = new({"x": 1}, key=key)
    first.begin()
    assert offer(first, job)[0].answer == "new"
    answer = second.start(lambda: again(sessions.store, job))
    sessions.until(lambda: sessions.one("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") == 1)
    sessions.kill(first) if end == "kill" else first.end(end)
    [accepted] = answer.result(PATIENCE)
    assert (accepted.id, accepted.answer) == (job.id, "new")
    assert len(claim(sessions.store)) == 1


@around
def test_a_replacement_whose_answer_is_lost_is_made_once(sessions: Sessions, wire: Wire, when: str) -> None:
    [held] = offer(sessions.store, new({"x": 1}, key="k"))
    cut = wire.cut(when, "replace")
    [accepted] = offer(wire.store, new({"x": 2}, key="k", replace=True))
    cut.wait()
    assert (accepted.id, accepted.answer) == (held.id, "replaced")
    assert [leased.job.arguments for leased in claim(sessions.store)] == [{"x": 2}]


def test_a_replacement_that_was_claimed_since_is_unknown(sessions: Sessions) -> None:
    offer(sessions.store, new({"x": 2}, key="k"))
    claim(sessions.store)
    with pytest.raises(OutcomeUnknown, match="has been claimed since"):
        again(sessions.store, new({"x": 2}, key="k", replace=True))


@pytest.mark.parametrize(("key", "hint"), [(None, "Look for the jobs"), ("k", "Enqueue again with the same")])
def test_a_database_that_stays_away_is_told(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, key: str | None, hint: str
) -> None:
    monkeypatch.setattr(postgres_module, "_PATIENCE", 0.2)
    wire.proxy.refuse()
    with pytest.raises(OutcomeUnknown, match=f"cannot be asked.*may or may not.*{hint}"):
        again(wire.store, new({"x": 1}, key=key))


@around
@pytest.mark.parametrize("key", [None, "a"])
def test_a_replacement_in_a_batch_whose_answer_is_lost_is_made(
    sessions: Sessions, wire: Wire, when: str, key: str | None
) -> None:
    [held] = offer(sessions.store, new({"x": 1}, key="k"))
    cut = wire.cut("before", "replace") if when == "before" else wire.cut("after", "accept")
    fresh, newer = offer(wire.store, new({"n": 1}, key=key), new({"x": 2}, key="k", replace=True))
    cut.wait()
    assert (fresh.answer, newer.answer, newer.id) == ("new", "replaced", held.id)
    assert sorted(leased.job.payload for leased in claim(sessions.store)) == ['{"n": 1}', '{"x": 2}']


def test_what_a_first_try_had_not_come_to_is_accepted_by_the_repeat(sessions: Sessions) -> None:
    done, alive, missing = new({"n": 1}, key="a"), new({"n": 2}, key="b"), new({"n": 3}, key="c")
    offer(sessions.store, done, alive)
    complete(sessions.store, claim(sessions.store, 1)[0], "7")
    answers = again(sessions.store, done, alive, missing)
    assert [told.answer for told in answers] == ["new"] * 3
    assert [told.id for told in answers] == [done.id, alive.id, missing.id]
    assert (answers[0].state, answers[0].result) == (State.DONE, "7")
    assert [leased.id for leased in claim(sessions.store)] == [alive.id, missing.id]


def test_a_key_that_may_be_over_already_is_no_proof(sessions: Sessions) -> None:
    sessions.store.run(ops.SetQueue(QUEUE, {"retention": 0}))
    job = new({"x": 1}, key="k")
    op = ops.Accept(QUEUE, KIND, 1, KIND, 3, 0.0, 10_000, [job])
    sessions.store.run(op)
    complete(sessions.store, claim(sessions.store)[0])
    with pytest.raises(OutcomeUnknown, match=r"held for a while after their end"):
        sessions.store._again(op)
    assert claim(sessions.store) == []


def test_a_batch_that_is_given_up_in_the_middle_says_so(sessions: Sessions) -> None:
    offer(sessions.store, new({"x": 1}, key="k"))
    [holder, _] = sessions.pair()
    impatient = PostgresStore(sessions.store.dsn, patience=0.2)
    holder.begin()
    holder.conn.execute("select from tenure.jobs for update")
    with pytest.raises(OutcomeUnknown, match=r"in the middle of the batch.*Some of its jobs were stored"):
        offer(impatient, new({"n": 1}), new({"x": 2}, key="k", replace=True))
    holder.rollback()
    impatient.close()
    assert sorted(leased.job.payload for leased in claim(sessions.store)) == ['{"n": 1}', '{"x": 1}']


def test_a_key_that_may_be_over_is_no_proof_beside_a_job_that_stands(sessions: Sessions) -> None:
    sessions.store.run(ops.SetQueue(QUEUE, {"retention": 0}))
    stands, missing = new({"n": 1}), new({"n": 2}, key="k")
    sessions.store.run(ops.Accept(QUEUE, KIND, 1, KIND, 3, 0.0, 10_000, [stands]))
    with pytest.raises(OutcomeUnknown, match=r"held for a while after their end"):
        sessions.store._again(ops.Accept(QUEUE, KIND, 1, KIND, 3, 0.0, 10_000, [stands, missing]))
    assert [leased.id for leased in claim(sessions.store)] == [stands.id]
