"""Bounds that many ask for at once, and transactions that stay open meanwhile."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import psycopg
import pytest

from tenure import QueueDraining, QueueFull, Tenure
from tenure.drivers import run
from tenure.drivers.psycopg import Psycopg
from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.acceptance import accepting_again
from tenure.store.postgres import PostgresStore
from tests.races.bounded import started
from tests.races.sessions import PATIENCE, Sessions
from tests.store.steps import KIND, QUEUE, accept, claim, complete, figures, look, new, offer, take
from tests.store.test_bounds import OTHER, answers, bound, drain, eventually, move, shedding, waiting


def offered(count: int = 1, **options: Any) -> ops.Accept:
    return ops.Accept(QUEUE, KIND, 1, KIND, 3, 3600.0, 10_000, [new(**options) for _ in range(count)])


# ------------------------------------------------------------------------------------------------------------ at once


def test_no_more_come_in_than_may_wait_however_many_ask_at_once(store: PostgresStore) -> None:
    bound(store, max_depth=25, exact=True)
    processes = [started(store.dsn, 15) for _ in range(3)]
    told = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        out, _ = process.communicate(timeout=PATIENCE)
        told.append(int(out))
    assert sum(told) == waiting(store) == 25


def test_an_estimate_lets_in_no_more_than_calls_under_way_bring(store: PostgresStore) -> None:
    producers, most = 6, 40
    bound(store, max_depth=most)
    together = Barrier(producers)

    def produce(_: int) -> int:
        own = PostgresStore(store.dsn)
        try:
            own.run(ops.LookUpKey(QUEUE, "a"))  # connected
            together.wait(PATIENCE)
            return sum(offer(own, new())[0].answer == "new" for _ in range(15))
        finally:
            own.close()

    with ThreadPoolExecutor(producers) as pool:
        accepted = sum(pool.map(produce, range(producers)))
    assert accepted == waiting(store)
    assert most <= accepted <= most + producers


def test_an_exact_bound_waits_for_those_who_are_storing(sessions: Sessions) -> None:
    bound(sessions.store, max_depth=1, exact=True)
    one, two = sessions.pair()
    one.begin()
    assert answers(one.run(offered())) == ["new"]
    late = two.start(lambda: two.run(offered()))
    sessions.await_blocked(two, by=one)
    one.commit()
    assert answers(late.result(PATIENCE)) == ["full"]


def test_of_an_exact_bound_nothing_is_left_by_what_was_rolled_back(sessions: Sessions) -> None:
    bound(sessions.store, max_depth=1, exact=True)
    one, two = sessions.pair()
    one.begin()
    one.run(offered())
    late = two.start(lambda: two.run(offered()))
    sessions.await_blocked(two, by=one)
    one.rollback()
    assert answers(late.result(PATIENCE)) == ["new"]


def test_an_exact_bound_is_not_kept_by_who_does_not_see_what_others_commit(sessions: Sessions) -> None:
    bound(sessions.store, max_depth=5, exact=True)
    one = sessions.open()
    one.begin("repeatable read")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="exact"):
        one.run(offered())
    one.rollback()


def test_an_estimate_holds_up_nobody(sessions: Sessions) -> None:
    bound(sessions.store, max_depth=2)
    one, two = sessions.pair()
    one.begin()
    assert answers(one.run(offered())) == ["new"]
    assert answers(two.run(offered())) == ["new"]
    assert answers(two.run(offered(2))) == ["full", "full"]
    one.rollback()
    assert eventually(sessions.store) == ["new"]  # its number is free again
    assert waiting(sessions.store) == 2


def test_a_snapshot_of_the_past_writes_nothing_down(sessions: Sessions) -> None:
    store = sessions.store
    bound(store, max_depth=2)
    one = sessions.open()
    one.begin("repeatable read")
    one.conn.execute("select count(*) from tenure.jobs")
    accept(store, 2)
    assert answers(one.run(offered())) == ["full"]
    one.rollback()
    assert answers(offer(store, new())) == ["full"]
    assert waiting(store) == 2


def test_who_wants_to_count_waits_for_who_counts_and_believes_it(sessions: Sessions) -> None:
    store = sessions.store
    bound(store, max_depth=5)
    one, two = sessions.pair()
    one.begin()
    one.conn.execute("lock table tenure.jobs in access exclusive mode")
    first = two.start(lambda: two.run(ops.Measure(QUEUE)))
    sessions.await_blocked(two, by=one)
    three = sessions.open()
    second = three.start(lambda: three.run(ops.Measure(QUEUE)))
    sessions.await_blocked(three, by=two)
    one.rollback()
    assert [first.result(PATIENCE), second.result(PATIENCE)] == [True, True]
    assert two.run(ops.Measure(QUEUE)) is True  # whoever counted has given its lock back


def test_a_count_that_is_given_up_leaves_no_lock(sessions: Sessions) -> None:
    store = sessions.store
    bound(store, max_depth=5)
    one, two = sessions.pair()
    one.begin()
    one.conn.execute("lock table tenure.jobs in access exclusive mode")
    two.conn.execute("set lock_timeout = '10ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        two.run(ops.Measure(QUEUE))
    one.rollback()
    mine = (
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database where d.datname = current_database()"
    )
    assert sessions.one(f"{mine} and l.locktype = 'advisory'") == 0


# ------------------------------------------------------------------------------------------------------------ shedding


def test_nobody_goes_for_a_job_that_is_rolled_back(sessions: Sessions) -> None:
    store = sessions.store
    shedding(store, depth=1)
    [id] = accept(store, priority=9)
    one = sessions.open()
    one.begin()
    assert answers(one.run(offered(priority=0))) == ["new"]
    one.rollback()
    assert look(store, id).state is State.PENDING
    assert figures(store).dead == {}


@pytest.mark.parametrize("exact", [False, True], ids=["estimated", "exact"])
def test_where_too_few_could_go_nobody_is_locked_by_the_transaction_that_was_refused(
    sessions: Sessions, *, exact: bool
) -> None:
    store = sessions.store
    shedding(store, depth=2, exact=exact)
    accept(store, priority=1)
    [id] = accept(store, priority=9)
    one = sessions.open()
    one.begin()
    assert answers(one.run(offered(2, priority=5))) == ["full", "full"]
    assert [job.id for job in claim(store, limit=10)][-1] == id, "its transaction is open"
    one.commit()
    assert figures(store).dead == {}


def test_a_job_that_is_being_claimed_does_not_make_room(sessions: Sessions) -> None:
    store = sessions.store
    shedding(store, depth=2)
    accept(store, priority=9)
    one = sessions.open()
    one.begin()
    [leased] = claim(one)
    accept(store, priority=0)
    assert answers(offer(store, new(priority=0))) == ["full"]
    one.commit()
    assert look(store, leased.id).state is State.RUNNING


# ------------------------------------------------------------------------------------------------- somebody's own work


def app_on(store: PostgresStore) -> tuple[Tenure, Any]:
    app = Tenure(store.dsn)

    @app.job(name=KIND, queue=QUEUE)
    async def work(n: int = 0) -> None: ...

    return app, work


def test_a_producers_transaction_goes_on_where_there_is_no_room(store: PostgresStore) -> None:
    bound(store, max_depth=1)
    accept(store)
    app, work = app_on(store)
    with app, psycopg.connect(store.dsn) as conn:
        conn.execute("insert into effects (note) values ('x')")
        with pytest.raises(QueueFull) as caught:
            work.enqueue_sync(conn=conn)
        with pytest.raises(QueueFull):
            work.enqueue_many_sync([{"n": 1}], conn=conn)
        conn.commit()
        assert conn.execute("select count(*) from effects").fetchone() == (1,)
    assert (caught.value.queue, caught.value.max_depth, caught.value.depth, caught.value.jobs) == (QUEUE, 1, 1, 1)
    assert caught.value.retry_after is not None


def test_a_producer_waits_for_room(store: PostgresStore) -> None:
    bound(store, max_depth=1, when_full="wait", wait_limit=PATIENCE)
    accept(store)
    app, work = app_on(store)
    with app, ThreadPoolExecutor(1) as pool:
        late = pool.submit(work.enqueue_sync)
        claim(store)
        assert late.result(PATIENCE).answer == "new"


def test_a_producer_waits_for_room_on_an_event_loop_and_not_for_ever(store: PostgresStore) -> None:
    bound(store, max_depth=1, when_full="wait", wait_limit=0.01)
    accept(store)
    app, work = app_on(store)

    async def produce() -> str:
        async with app:
            with pytest.raises(QueueFull):
                await work.enqueue()
            claim(store)
            bound(store, wait_limit=PATIENCE)
            [ticket] = await work.enqueue_many([{"n": 1}])
            return str(ticket.answer)

    assert asyncio.run(produce()) == "new"


def test_nobody_waits_in_a_transaction(store: PostgresStore) -> None:
    bound(store, max_depth=1, when_full="wait", wait_limit=3600.0)
    accept(store)
    app, work = app_on(store)
    with app, psycopg.connect(store.dsn) as conn, pytest.raises(QueueFull):
        work.enqueue_sync(conn=conn)


def test_a_queue_that_drains_says_so(store: PostgresStore) -> None:
    app, work = app_on(store)
    with app:
        app.migrate()
        drain(store)
        with pytest.raises(QueueDraining, match="tenure queue resume q"):
            work.enqueue_sync()


def test_in_sql_a_full_queue_is_an_error(store: PostgresStore) -> None:
    app, _ = app_on(store)
    with app:
        app.migrate()
    bound(store, max_depth=1)
    with psycopg.connect(store.dsn, autocommit=True) as conn:
        [(answer,)] = conn.execute("select answer from tenure.enqueue('work', key => 'k')")
        assert answer == "new"
        with pytest.raises(psycopg.Error, match="Queue 'q' is full") as caught:
            conn.execute("select * from tenure.enqueue('work')")
        assert caught.value.sqlstate == "TN003"
        assert "retry_after" in (caught.value.diag.message_detail or "")
        assert conn.execute("select answer from tenure.enqueue('work', key => 'k')").fetchall() == [("same",)]
        drain(store)
        with pytest.raises(psycopg.Error, match="being drained"):
            conn.execute("select * from tenure.enqueue('work')")


# ---------------------------------------------------------------------------------------------------------- lost answers


def again(store: PostgresStore, op: ops.Accept) -> list[str]:
    """What a producer is told that repeats a call whose answer was lost."""
    with psycopg.connect(store.dsn, autocommit=True) as conn:
        return answers(run(accepting_again(op, store._said), Psycopg(conn)))


def test_a_job_whose_answer_was_lost_is_found_in_a_queue_that_is_full_meanwhile(store: PostgresStore) -> None:
    bound(store, max_depth=1)
    op = offered(key="k")
    store.run(op)
    assert again(store, op) == ["new"]
    complete(store, claim(store)[0])
    assert eventually(store) == ["new"]
    assert again(store, op) == ["new"]  # it was, and is done
    assert again(store, offered()) == ["full"]


def test_a_job_that_was_moved_meanwhile_is_not_accepted_a_second_time(store: PostgresStore) -> None:
    op = offered(2)
    store.run(op)
    move(store)
    assert again(store, op) == ["new", "new"]
    assert (waiting(store, OTHER), len(claim(store))) == (2, 0)


# -------------------------------------------------------------------------------------------------------------- moving


def test_what_somebody_holds_stays_and_holds_up_nobody(sessions: Sessions) -> None:
    store = sessions.store
    first, second = accept(store, 2)
    one = sessions.open()
    one.begin()
    one.conn.execute("select from tenure.jobs where id = %s for update", [first])
    assert [moved.id for moved in move(store)] == [second]
    one.rollback()
    assert [moved.id for moved in move(store)] == [first]


def test_a_ticket_finds_a_job_that_was_moved(store: PostgresStore) -> None:
    app, work = app_on(store)
    with app:
        keyed, plain = work.enqueue_sync(key="k"), work.enqueue_sync()
        move(store)
        for leased in claim(store, queue=OTHER):
            store.run(ops.Complete(OTHER, [ops.Completion(leased.id, leased.token, '"x"')]))
        assert [ticket.result_sync(timeout=PATIENCE) for ticket in (keyed, plain)] == ["x", "x"]


def test_a_moved_job_that_is_running_is_answered_as_running(store: PostgresStore) -> None:
    take(store, key="k")
    accept(store, key="l")
    move(store)
    claim(store, queue=OTHER)
    told = offer(store, new(key="k"), new(key="l"))
    assert [(one.answer, one.state) for one in told] == [("same", State.RUNNING)] * 2
