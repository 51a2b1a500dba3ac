"""Effects of synchronous handlers: begun, written and ended in threads, with middleware of the event loop around them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import ClientCursor, Connection
from psycopg.rows import dict_row

from tenure import Job, State, Tenure
from tenure.faultpoints import armed
from tenure.store.connections import aconnect, connect
from tenure.tx import EffectConnection, ThreadConnection
from tests.apps import effect_forms as forms_app
from tests.worker.effect_forms import FORMS, IN_THREADS, WRITE, Form, psycopg_sync, written
from tests.worker.here import QUICK, burst, eventually, failures, finish, record, until_ended, working
from tests.worker.processes import Bench

Database = psycopg.Connection[Any]
PATIENCE = 60.0


# ------------------------------------------------------------------------------------------------------- where it begins


def _plain(tx: Connection) -> None:
    tx.execute(WRITE, ["row", 1])


def _pipeline(tx: Connection) -> None:
    with tx.pipeline():
        tx.execute(WRITE, ["row", 1])


def _other_cursor(tx: Connection) -> None:
    ClientCursor(tx).execute(WRITE, ["row", 1])


def _server_cursor(tx: Connection) -> None:
    with tx.cursor("named") as cursor:
        cursor.execute("select 'row'")
        [(what,)] = cursor.fetchall()
    tx.execute(WRITE, [what, 1])


def _copy(tx: Connection) -> None:
    with tx.cursor().copy("copy written from stdin") as copy:
        copy.write_row(["row", 1])


def _savepoint(tx: Connection) -> None:
    with tx.transaction():
        tx.execute(WRITE, ["row", 1])


def _many(tx: Connection) -> None:
    with tx.cursor() as cursor:
        cursor.executemany(WRITE, [["row", 1]])


def _threads_of_its_own(tx: Connection) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: tx.execute("select %s::int", [n]), range(8)))
        threads.submit(tx.execute, WRITE, ["row", 1]).result()


@pytest.mark.parametrize(
    "use",
    [_plain, _pipeline, _other_cursor, _server_cursor, _copy, _savepoint, _many, _threads_of_its_own],
    ids=lambda use: use.__name__,
)
def test_whatever_comes_first_is_part_of_the_effect(
    app: Tenure, database: Database, use: Callable[[Connection], None]
) -> None:
    attempts: list[int] = []

    @app.job(effect=True, backoff=QUICK)
    def write(tx, job: Job) -> None:  # type: ignore[no-untyped-def]  # without an annotation it is psycopg's
        use(tx)
        attempts.append(job.attempt)
        if job.attempt == 1:
            raise ValueError("what was written goes with the attempt")

    ticket = write.enqueue_sync()
    worker = finish(app, ticket)

    assert attempts == [1, 2]
    assert written(database) == [("row", 1)]
    assert (worker.counts["committed"], worker.counts["duplicate"]) == (1, 0)
    assert database.execute("select count(*) from tenure.dedup").fetchone() == (1,)


def test_an_effect_that_writes_nothing_is_done_once_too(app: Tenure, database: Database) -> None:
    @app.job(effect=True)
    def idle(tx: Connection) -> None:
        assert tx.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    ticket = idle.enqueue_sync()
    burst(app)
    assert record(app, ticket.id).state is State.DONE
    assert database.execute("select job_id from tenure.dedup").fetchall() == [(ticket.id,)]


@pytest.mark.parametrize("form", IN_THREADS, ids=lambda form: form.__name__)
def test_effects_in_threads_run_beside_each_other(app: Tenure, database: Database, form: Form) -> None:
    """Each waits for the others inside its transaction, and the event loop goes on."""
    together = threading.Barrier(5)

    def meet(_: Job) -> str:
        together.wait(PATIENCE)
        return threading.current_thread().name

    tickets = form(app, meet).enqueue_many_sync([{"what": str(n)} for n in range(5)])
    burst(app)
    names = {record(app, ticket.id).result for ticket in tickets}
    assert len(names) == 5
    assert len(written(database)) == 5


# --------------------------------------------------------------------------------------------------- where it may not end


def _commit(tx: Connection) -> None:
    tx.commit()


def _roll_back(tx: Connection) -> None:
    tx.rollback()


def _with(tx: Connection) -> None:
    with tx:
        tx.execute(WRITE, ["row", 1])


def _autocommit(tx: Connection) -> None:
    tx.autocommit = True


def _autocommit_by_method(tx: Connection) -> None:
    tx.set_autocommit(True)


def _commit_statement(tx: Connection) -> None:
    tx.execute("commit")


def _begin_anew(tx: Connection) -> None:
    tx.execute("rollback")
    tx.execute("begin")


@pytest.mark.parametrize(
    "way",
    [_commit, _roll_back, _with, _autocommit, _autocommit_by_method, _commit_statement, _begin_anew],
    ids=lambda way: way.__name__,
)
def test_a_handler_cannot_end_the_transaction(
    app: Tenure, database: Database, way: Callable[[Connection], None]
) -> None:
    @app.job(effect=True, max_attempts=1)
    def meddle(tx: Connection) -> None:
        tx.execute("select 1")
        way(tx)

    ticket = meddle.enqueue_sync()
    burst(app)
    dead = record(app, ticket.id)
    by_statement = way in (_commit_statement, _begin_anew)
    assert failures(dead)[0]["type"] == ("Permanent" if by_statement else "ProgrammingError")
    assert written(database) == []


def test_a_savepoint_undoes_a_part(app: Tenure, database: Database) -> None:
    @app.job(effect=True)
    def write(tx: Connection) -> None:
        tx.execute(WRITE, ["kept", 1])
        with contextlib.suppress(psycopg.errors.UniqueViolation), tx.transaction():
            tx.execute(WRITE, ["undone", 1])
            tx.execute(WRITE, ["kept", 2])

    write.enqueue_sync()
    burst(app)
    assert written(database) == [("kept", 1)]


def test_a_failed_statement_cannot_be_passed_over(app: Tenure, database: Database) -> None:
    @app.job(effect=True, max_attempts=1)
    def write(tx: Connection) -> None:
        tx.execute(WRITE, ["row", 1])
        with contextlib.suppress(psycopg.errors.UniqueViolation):
            tx.execute(WRITE, ["row", 2])

    ticket = write.enqueue_sync()
    burst(app)
    dead = record(app, ticket.id)
    assert (dead.reason, failures(dead)[0]["type"]) == ("exhausted", "InFailedSqlTransaction")
    assert written(database) == []


# ------------------------------------------------------------------------------------------------------------ middleware


def test_middleware_stands_around_the_handler_and_within_the_effect(app: Tenure, database: Database) -> None:
    """What it raises after the handler undoes the effect; what it answers is the result."""
    seen: list[object] = []

    @app.middleware
    async def around(job: Job, run: Callable[[], Awaitable[Any]]) -> Any:
        result = await run()
        seen.append(written(database))
        if job.attempt == 1:
            raise ConnectionError("after the handler")
        return f"{result} and more"

    ticket = psycopg_sync(app, lambda _: "this", backoff=QUICK).enqueue_sync("row")
    finish(app, ticket)
    assert seen == [[], []]
    assert written(database) == [("row", 2)]
    assert record(app, ticket.id).result == '"this and more"'


def test_middleware_that_does_not_run_the_handler_is_an_effect_all_the_same(app: Tenure, database: Database) -> None:
    @app.middleware
    async def around(job: Job, run: Callable[[], Awaitable[Any]]) -> Any:
        return "skipped"

    ticket = psycopg_sync(app).enqueue_sync("row")
    burst(app)
    assert record(app, ticket.id).result == '"skipped"'
    assert written(database) == []
    assert database.execute("select count(*) from tenure.dedup").fetchone() == (1,)


def test_a_handler_that_middleware_gave_up_can_write_no_more(app: Tenure, database: Database) -> None:
    """Its thread goes on; its transaction is gone, and its connection is nobody else's."""
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    said: list[str] = []

    @app.middleware
    async def impatient(job: Job, run: Callable[[], Awaitable[Any]]) -> Any:
        if job.attempt == 1:
            await _given_up(run, begun)
            raise TimeoutError("too slow")
        return await run()

    @app.job(effect=True, backoff=QUICK, lease="1h")
    def write(tx: Connection, job: Job) -> None:
        tx.execute(WRITE, [f"attempt {job.attempt}", job.attempt])
        if job.attempt == 1:
            begun.set()
            go_on.wait(PATIENCE)
            try:
                tx.execute(WRITE, ["late", job.attempt])
            except psycopg.Error as error:
                said.append(str(error))
            ended.set()

    ticket = write.enqueue_sync()
    finish(app, ticket)  # the second attempt does not wait for the first one's dedup row
    go_on.set()
    assert ended.wait(PATIENCE)
    assert written(database) == [("attempt 2", 2)]
    assert said == ["the effect is over: tx cannot be used after its handler has ended"]
    assert failures(record(app, ticket.id))[0]["type"] == "TimeoutError"


def test_a_handler_that_is_still_at_work_is_not_committed(app: Tenure, database: Database) -> None:
    """Although middleware has given it up and answers something else."""
    begun, go_on = threading.Event(), threading.Event()

    @app.middleware
    async def makeshift(job: Job, run: Callable[[], Awaitable[Any]]) -> Any:
        await _given_up(run, begun)
        return "makeshift"

    @app.job(effect=True, max_attempts=1)
    def write(tx: Connection) -> None:
        tx.execute(WRITE, ["half", 1])
        begun.set()
        go_on.wait(PATIENCE)

    ticket = write.enqueue_sync()

    async def work() -> None:
        async with working(app):
            await until_ended(app, ticket)
            go_on.set()

    asyncio.run(work())
    assert "still at work" in failures(record(app, ticket.id))[0]["message"]
    assert written(database) == []


async def _given_up(run: Callable[[], Awaitable[Any]], begun: threading.Event) -> None:
    """Wait for a handler no longer than until it has begun, as a timeout would."""
    running = asyncio.ensure_future(run())
    await asyncio.to_thread(begun.wait, PATIENCE)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


# --------------------------------------------------------------------------------------------------------- told to stop


@pytest.mark.parametrize("form", IN_THREADS, ids=lambda form: form.__name__)
def test_a_handler_that_gives_up_because_it_was_told_to_leaves_nothing(
    app: Tenure, database: Database, form: Form
) -> None:
    """It was asked to end with the worker, saw that, and returned early: the job is given back, whole."""
    begun = threading.Event()

    def stop_early(job: Job) -> None:
        begun.set()
        while job.claims == 1 and not job.lost:
            threading.Event().wait(0.01)

    ticket = form(app, stop_early).enqueue_sync("row")

    async def interrupt() -> None:
        async with working(app, grace=0.0):
            await eventually(begun.is_set, "the handler")

    asyncio.run(interrupt())
    assert written(database) == []
    given_back = record(app, ticket.id)
    assert (given_back.state, given_back.attempts, given_back.releases) == (State.PENDING, 0, 1)
    burst(app)
    assert written(database) == [("row", 1)]


@pytest.mark.parametrize("form", IN_THREADS, ids=lambda form: form.__name__)
def test_a_thread_that_goes_on_after_its_lease_is_fenced(app: Tenure, database: Database, form: Form) -> None:
    """It cannot be stopped; what it writes after ``job.lost`` is rolled back."""
    heard = threading.Event()

    def go_on(job: Job) -> None:
        if job.claims == 1:
            database.execute("update tenure.jobs set lease_until = clock_timestamp()")
            while not job.lost:
                threading.Event().wait(0.01)
            heard.set()

    ticket = form(app, go_on, lease="1s", backoff=QUICK).enqueue_sync("row")

    async def work() -> None:
        async with working(app) as worker:
            await eventually(heard.is_set, "the loss")
            await eventually(lambda: worker.counts["stale"], "its end")

    asyncio.run(work())
    assert written(database) == []
    assert database.execute("select count(*) from tenure.dedup").fetchone() == (0,)
    assert record(app, ticket.id).state in (State.RUNNING, State.PENDING)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_the_worker_is_told_before_the_completion_is_sent(app: Tenure, database: Database, form: Form) -> None:
    """From then on the completion's own answer decides, and a heartbeat's does not."""
    told: list[object] = []
    ticket = form(app).enqueue_sync("row")

    async def work() -> None:
        async with working(app) as worker:

            def look() -> None:
                told.extend(held.settling for held in worker._leases)

            with armed("effect.before_complete", look):
                await until_ended(app, ticket)

    asyncio.run(work())
    assert told == [True]


# ------------------------------------------------------------------------------------------------- what is left of it


def test_one_connection_serves_the_next_effect_clean(app: Tenure, database: Database) -> None:
    seen: list[object] = []

    @app.job(effect=True)
    def spoil_and_look(tx: Connection, turn: int) -> None:
        seen.append(tx.execute("select current_setting('search_path'), to_regclass('mine'), 7").fetchone())
        tx.row_factory = dict_row  # type: ignore[assignment]
        tx.prepare_threshold = 0
        tx.adapters.register_loader("int4", psycopg.types.string.TextLoader)
        tx.execute("set search_path to nowhere")
        tx.execute("select pg_advisory_lock(42)")
        tx.execute("create temporary table mine (x int)")

    spoil_and_look.enqueue_many_sync([{"turn": turn} for turn in range(5)])
    burst(app, concurrency=1)
    assert seen == [('"$user", public', None, 7)] * 5
    assert database.execute("select pg_try_advisory_lock(42)").fetchone() == (True,)


def test_a_connection_kept_beyond_its_effect_is_of_no_use_in_the_next(app: Tenure, database: Database) -> None:
    kept: list[Connection] = []
    said: list[str] = []
    writing, tried = threading.Event(), threading.Event()

    @app.job(effect=True)
    def keep(tx: Connection) -> None:
        kept.append(tx)
        tx.execute(WRITE, ["in time", 1])

        def late() -> None:
            writing.wait(PATIENCE)
            try:
                tx.execute(WRITE, ["late", 1])
            except psycopg.Error as error:
                said.append(str(error))
            tried.set()

        context = contextvars.copy_context()  # as of whatever the handler starts with it, a task say
        threading.Thread(target=context.run, args=[late]).start()

    @app.job(effect=True)
    def next_one(tx: Connection) -> None:
        tx.execute(WRITE, ["next", 1])
        assert tx is kept[0]
        writing.set()
        tried.wait(PATIENCE)

    async def work() -> None:
        async with working(app, concurrency=1):
            await until_ended(app, await keep.enqueue())
            await until_ended(app, await next_one.enqueue())

    asyncio.run(work())
    assert said == ["the effect is over: tx cannot be used after its handler has ended"]
    assert written(database) == [("in time", 1), ("next", 1)]


def test_who_waited_for_the_lock_until_the_effect_was_over_is_too_late(database: Database) -> None:
    """A thread that a handler has left behind does not slip in between two statements of the completion."""
    said: list[str] = []
    dsn = database.info.dsn
    with contextlib.closing(ThreadConnection.connect(dsn, autocommit=True)) as tx:
        tx.starts_with(lambda: None)
        waiting = threading.Event()

        def late() -> None:
            waiting.set()
            try:
                tx.execute(WRITE, ["late", 1])
            except psycopg.Error as error:
                said.append(str(error))

        thread = threading.Thread(target=late)
        with tx.lock:
            thread.start()
            waiting.wait(PATIENCE)
            tx.close_door()
        thread.join(PATIENCE)

    async def on_loop() -> None:
        tx = await EffectConnection.connect(dsn, autocommit=True)
        tx.starts_with(partial(asyncio.sleep, 0))
        async with tx.lock:
            late = asyncio.ensure_future(tx.execute(WRITE, ["late", 1]))
            await asyncio.sleep(0)
            tx.close_door()
        try:
            await late
        except psycopg.Error as error:
            said.append(str(error))
        await tx.close()

    asyncio.run(on_loop())
    assert said == ["the effect is over: tx cannot be used after its handler has ended"] * 2
    assert written(database) == []


def test_both_sorts_of_effects_share_ten_connections(
    app: Tenure, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    most: list[int] = []

    def connecting(*args: Any, **more: Any) -> Any:
        opened.append(connect(*args, **more))
        return opened[-1]

    async def aconnecting(*args: Any, **more: Any) -> Any:
        opened.append(await aconnect(*args, **more))
        return opened[-1]

    monkeypatch.setattr("tenure.effects.pool.connect", connecting)
    monkeypatch.setattr("tenure.effects.pool.aconnect", aconnecting)

    def look(_: Job) -> None:
        most.append(sum(not conn.closed for conn in list(opened)))

    kinds = [psycopg_sync(app, look, name="sync"), FORMS[0](app, look, name="async")]
    for _ in range(3):
        for kind in kinds:
            kind.enqueue_many_sync([{"what": f"{kind.name} {n} {len(most)}"} for n in range(30)])
        burst(app)
    assert len(written(database)) == 180
    assert 2 <= max(most) <= 10
    assert {type(conn) for conn in opened} == {EffectConnection, ThreadConnection}


# ---------------------------------------------------------------------------------------------------- in child processes


def test_effects_in_children_whatever_their_form(bench: Bench) -> None:
    bench.use(forms_app.app)
    bench.ask(forms_app.TABLE)
    tickets = [kind.enqueue_sync(kind.name) for kind in forms_app.IN_CHILDREN]
    worker = bench.start("tests.apps.effect_forms:app", burst=True, children=1)
    assert worker.ended() == 0
    results = {(done.state, done.result) for ticket in tickets if (done := bench.record(ticket.id))}
    assert {state for state, _ in results} == {State.DONE}
    assert str(worker.pid) not in {result for _, result in results}
    assert sorted(what for (what,) in bench.ask("select what from written")) == sorted(
        kind.name for kind in forms_app.IN_CHILDREN
    )
    assert worker.counts["committed"] == len(tickets)
