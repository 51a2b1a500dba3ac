"""Effects through SQLAlchemy: its sessions and connections stand on the effect's transaction and cannot end it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, insert, inspect, select, text, update
from sqlalchemy.exc import IntegrityError, InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from tenure import Job, State, Tenure
from tests.worker.effect_forms import Written, written
from tests.worker.here import QUICK, burst, failures, finish, record, until_ended, working

Database = psycopg.Connection[Any]

COUNT = text("select count(*) from written")
AGAIN = text("do $$ begin raise exception 'again' using errcode = '40001'; end $$")


# ----------------------------------------------------------------------------------------------------- what one can do


def test_a_session_inserts_updates_and_selects(app: Tenure, database: Database) -> None:
    database.execute("insert into written values ('old', 0)")

    @app.job(effect=True)
    def work(tx: Session) -> list[str]:
        old = tx.get_one(Written, "old")
        old.attempt = 7
        tx.add(Written(what="new", attempt=1))
        return list(tx.scalars(select(Written.what).order_by(Written.what)))

    ticket = work.enqueue_sync()
    burst(app)
    assert written(database) == [("new", 1), ("old", 7)]
    assert record(app, ticket.id).result == '["new", "old"]'


def test_an_async_session_does_the_same(app: Tenure, database: Database) -> None:
    database.execute("insert into written values ('old', 0)")

    @app.job(effect=True)
    async def work(tx: AsyncSession) -> list[str]:
        old = await tx.get_one(Written, "old")
        old.attempt = 7
        tx.add(Written(what="new", attempt=1))
        return list(await tx.scalars(select(Written.what).order_by(Written.what)))

    ticket = work.enqueue_sync()
    burst(app)
    assert written(database) == [("new", 1), ("old", 7)]
    assert record(app, ticket.id).result == '["new", "old"]'


def test_a_connection_runs_core_statements(app: Tenure, database: Database) -> None:
    @app.job(effect=True)
    def work(tx: Connection) -> int:
        tx.execute(insert(Written), [{"what": str(n), "attempt": n} for n in range(5)])
        tx.execute(update(Written).where(Written.attempt > 2).values(attempt=9))
        with tx.execution_options(stream_results=True).execute(COUNT) as streamed:
            return int(streamed.scalar_one())

    ticket = work.enqueue_sync()
    burst(app)
    assert [attempt for _, attempt in written(database)] == [0, 1, 2, 9, 9]
    assert record(app, ticket.id).result == "5"


def test_an_async_connection_does_the_same(app: Tenure, database: Database) -> None:
    @app.job(effect=True)
    async def work(tx: AsyncConnection) -> int:
        await tx.execute(insert(Written), [{"what": str(n), "attempt": n} for n in range(5)])
        await tx.execute(update(Written).where(Written.attempt > 2).values(attempt=9))
        async with tx.stream(COUNT) as streamed:
            return int((await streamed.one())[0])

    ticket = work.enqueue_sync()
    burst(app)
    assert [attempt for _, attempt in written(database)] == [0, 1, 2, 9, 9]
    assert record(app, ticket.id).result == "5"


def test_a_nested_transaction_undoes_a_part(app: Tenure, database: Database) -> None:
    @app.job(effect=True)
    def work(tx: Session) -> None:
        tx.add(Written(what="kept", attempt=1))
        with contextlib.suppress(IntegrityError), tx.begin_nested():
            tx.add(Written(what="undone", attempt=1))
            tx.execute(insert(Written).values(what="kept", attempt=2))
        tx.add(Written(what="later", attempt=1))

    @app.job(effect=True)
    async def work_async(tx: AsyncSession) -> None:
        with contextlib.suppress(IntegrityError):
            async with tx.begin_nested():
                tx.add(Written(what="undone", attempt=1))
                await tx.execute(insert(Written).values(what="undone", attempt=2))
        tx.add(Written(what="async", attempt=1))

    tickets = [work.enqueue_sync(), work_async.enqueue_sync()]
    burst(app)
    assert {record(app, ticket.id).state for ticket in tickets} == {State.DONE}
    assert written(database) == [("async", 1), ("kept", 1), ("later", 1)]


def test_a_session_class_of_ones_own_is_made(app: Tenure, database: Database) -> None:
    class Mine(Session):
        def write(self, what: str) -> None:
            self.add(Written(what=what, attempt=1))

    class MineAsync(AsyncSession):
        sync_session_class = Mine

        async def write(self, what: str) -> None:
            self.sync_session.write(what)  # type: ignore[attr-defined]

    app.job(name="sync", effect=True)(_of(Mine))
    app.job(name="async", effect=True)(_of_async(MineAsync))
    tickets = [app.kinds[name].enqueue_sync(name) for name in ("sync", "async")]
    burst(app)
    assert {record(app, ticket.id).state for ticket in tickets} == {State.DONE}
    assert written(database) == [("async", 1), ("sync", 1)]


def _of(cls: type[Any]) -> Callable[..., Any]:
    def work(tx: Any, what: str) -> None:
        assert isinstance(tx, cls)
        tx.write(what)

    work.__annotations__["tx"] = cls
    return work


def _of_async(cls: type[Any]) -> Callable[..., Any]:
    async def work(tx: Any, what: str) -> None:
        assert isinstance(tx, cls)
        await tx.write(what)

    work.__annotations__["tx"] = cls
    return work


def test_a_job_is_enqueued_in_the_effect_as_its_first_use(app: Tenure, database: Database) -> None:
    @app.job()
    def follow(by: str) -> None:
        pass

    def after_all(attempt: int) -> None:
        if attempt == 1:
            raise ConnectionError("the job goes with the effect")

    @app.job(effect=True, backoff=QUICK)
    def in_session(tx: Session, job: Job) -> None:
        follow.enqueue_sync("session", conn=tx)
        after_all(job.attempt)

    @app.job(effect=True, backoff=QUICK)
    def in_core(tx: Connection, job: Job) -> None:
        follow.enqueue_sync("core", conn=tx)
        after_all(job.attempt)

    @app.job(effect=True, backoff=QUICK)
    async def in_async_session(tx: AsyncSession, job: Job) -> None:
        await follow.enqueue("async session", conn=tx)
        after_all(job.attempt)

    @app.job(effect=True, backoff=QUICK)
    async def in_async_core(tx: AsyncConnection, job: Job) -> None:
        await follow.enqueue("async core", conn=tx)
        after_all(job.attempt)

    @app.job(effect=True, backoff=QUICK)
    def in_psycopg(tx: psycopg.Connection, job: Job) -> None:
        follow.enqueue_sync("psycopg", conn=tx)
        after_all(job.attempt)

    @app.job(effect=True, backoff=QUICK)
    async def in_async_psycopg(tx: psycopg.AsyncConnection, job: Job) -> None:
        await follow.enqueue("async psycopg", conn=tx)
        after_all(job.attempt)

    leaders = [kind for kind in app.kinds.values() if kind.effect]
    finish(app, *[kind.enqueue_sync() for kind in leaders])
    burst(app)
    followed = database.execute("select payload->>'by' from tenure.archive where kind = 'follow' order by 1").fetchall()
    assert [row[0] for row in followed] == sorted(
        ["session", "core", "async session", "async core", "psycopg", "async psycopg"]
    )


# ------------------------------------------------------------------------------------------------ what one cannot do


def _commit(tx: Session) -> None:
    tx.commit()


def _roll_back(tx: Session) -> None:
    tx.rollback()


def _close(tx: Session) -> None:
    with tx:
        tx.add(Written(what="not sent", attempt=1))


def _reset(tx: Session) -> None:
    tx.add(Written(what="not sent", attempt=1))
    tx.reset()


def _close_connection(tx: Session) -> None:
    tx.execute(insert(Written).values(what="row", attempt=1))
    tx.connection().close()


def _begin(tx: Session) -> None:
    with tx.begin():
        tx.execute(insert(Written).values(what="block", attempt=1))


def _commit_connection(tx: Session) -> None:
    tx.connection().commit()


def _roll_connection_back(tx: Session) -> None:
    tx.execute(insert(Written).values(what="row", attempt=1))
    tx.connection().rollback()


def _commit_statement(tx: Session) -> None:
    tx.execute(text("commit"))


def _autocommit(tx: Session) -> None:
    tx.connection(execution_options={"isolation_level": "AUTOCOMMIT"})


def _isolation(tx: Session) -> None:
    tx.connection(execution_options={"isolation_level": "SERIALIZABLE"})


def _another(tx: Session) -> None:
    tx.connection().engine.connect()


WAYS: list[tuple[Callable[[Session], None], str]] = [
    (_commit, "an effect cannot commit"),
    (_roll_back, "an effect cannot roll back"),
    (_close, "is closed by Tenure"),
    (_reset, "is closed by Tenure"),
    (_close_connection, "SQLAlchemy has rolled the effect back"),
    (_begin, "an effect cannot commit"),
    (_commit_connection, "an effect cannot commit"),
    (_roll_connection_back, "SQLAlchemy has rolled the effect back"),
    (_autocommit, "autocommit"),
    (_isolation, "autocommit"),
    (_another, "an effect has one connection"),
]


@pytest.mark.parametrize(("way", "says"), WAYS, ids=[way.__name__ for way, _ in WAYS])
def test_a_session_cannot_end_the_effect(
    app: Tenure, database: Database, way: Callable[[Session], None], says: str
) -> None:
    @app.job(effect=True, max_attempts=1)
    def in_thread(tx: Session) -> None:
        way(tx)

    @app.job(effect=True, max_attempts=1)
    async def on_loop(tx: AsyncSession) -> None:
        await tx.run_sync(way)

    tickets = [in_thread.enqueue_sync(), on_loop.enqueue_sync()]
    burst(app)
    for ticket in tickets:
        dead = record(app, ticket.id)
        assert dead.state is State.DEAD
        assert says in failures(dead)[0]["message"]
    assert written(database) == []
    assert database.execute("select count(*) from tenure.dedup").fetchone() == (0,)


def test_who_passes_over_a_refused_commit_has_its_effect_all_the_same(app: Tenure, database: Database) -> None:
    """Nothing was committed there, and all is committed together at the end, or not at all."""

    @app.job(effect=True, backoff=QUICK)
    def work(tx: Session, job: Job) -> None:
        tx.add(Written(what="before", attempt=job.attempt))
        with contextlib.suppress(InvalidRequestError):
            tx.commit()
        assert written(database) == []
        tx.add(Written(what="after", attempt=job.attempt))
        if job.attempt == 1:
            raise ConnectionError("and so the commit is none")

    finish(app, work.enqueue_sync())
    assert written(database) == [("after", 2), ("before", 2)]


def _fail_in_flush(tx: Session) -> None:
    tx.add(Written(what="there", attempt=1))
    with contextlib.suppress(IntegrityError):
        tx.flush()


def _fail_in_statement(tx: Session) -> None:
    with contextlib.suppress(IntegrityError):
        tx.execute(insert(Written).values(what="there", attempt=1))


def _roll_back_by_hand(tx: Session) -> None:
    tx.execute(insert(Written).values(what="row", attempt=1))
    tx.connection().rollback()


@pytest.mark.parametrize("way", [_fail_in_flush, _fail_in_statement, _roll_back_by_hand], ids=lambda way: way.__name__)
def test_what_failed_cannot_be_passed_over(app: Tenure, database: Database, way: Callable[[Session], None]) -> None:
    database.execute("insert into written values ('there', 0)")

    @app.job(effect=True, max_attempts=1)
    def end(tx: Session) -> None:
        way(tx)

    @app.job(effect=True, max_attempts=1)
    def go_on(tx: Session) -> None:
        way(tx)
        tx.execute(insert(Written).values(what="later", attempt=1))

    ended, gone_on = end.enqueue_sync(), go_on.enqueue_sync()
    burst(app)
    assert record(app, gone_on.id).reason == record(app, ended.id).reason == "exhausted"
    assert failures(record(app, ended.id))[0]["type"] == "InFailedSqlTransaction"
    assert "begin_nested" in failures(record(app, ended.id))[0]["message"]
    assert written(database) == [("there", 0)]


def test_rolling_back_before_the_first_use_undoes_nothing(app: Tenure, database: Database) -> None:
    """There is nothing yet; what was added to the session is still there."""

    @app.job(effect=True)
    def work(tx: Session) -> None:
        tx.add(Written(what="added", attempt=1))
        tx.connection().rollback()

    @app.job(effect=True)
    def work_in_core(tx: Connection) -> None:
        tx.begin().rollback()
        tx.execute(insert(Written).values(what="core", attempt=1))

    tickets = [work.enqueue_sync(), work_in_core.enqueue_sync()]
    burst(app)
    assert {record(app, ticket.id).state for ticket in tickets} == {State.DONE}
    assert written(database) == [("added", 1), ("core", 1)]


def test_a_commit_as_a_statement_is_noticed(app: Tenure, database: Database) -> None:
    @app.job(effect=True)
    def work(tx: Session) -> None:
        tx.execute(insert(Written).values(what="row", attempt=1))
        _commit_statement(tx)

    ticket = work.enqueue_sync()
    burst(app)
    dead = record(app, ticket.id)
    assert (dead.reason, failures(dead)[0]["type"]) == ("permanent", "Permanent")


def test_a_constraint_that_is_checked_at_the_commit_undoes_everything(app: Tenure, database: Database) -> None:
    database.execute("alter table written add unique (attempt) deferrable initially deferred")
    database.execute("insert into written values ('there', 1)")

    @app.job(effect=True, max_attempts=1)
    async def work(tx: AsyncSession) -> None:
        tx.add(Written(what="row", attempt=1))

    ticket = work.enqueue_sync()
    burst(app)
    assert failures(record(app, ticket.id))[0]["type"] == "UniqueViolation"
    assert written(database) == [("there", 1)]
    assert database.execute("select count(*) from tenure.dedup").fetchone() == (0,)


# ----------------------------------------------------------------------------------------------- what is left of it


def test_sqlalchemy_begins_nothing_before_the_first_use(app: Tenure, database: Database) -> None:
    open_ones: list[int] = []

    def look() -> None:
        [(count,)] = database.execute(
            "select count(*)::int from pg_stat_activity where datname = current_database() and state like 'idle in%'"
        ).fetchall()
        open_ones.append(count)

    @app.job(effect=True)
    def in_thread(tx: Session) -> None:
        look()
        tx.add(Written(what="thread", attempt=1))
        look()
        tx.flush()
        look()

    @app.job(effect=True)
    async def on_loop(tx: AsyncConnection) -> None:
        look()
        await tx.execute(COUNT)
        look()

    for kind in (in_thread, on_loop):
        kind.enqueue_sync()
        burst(app)
    assert open_ones == [0, 0, 1, 0, 1]


def test_a_session_kept_beyond_its_effect_is_of_no_use(app: Tenure, database: Database) -> None:
    """Neither after it, nor while the next effect has the same connection."""
    kept: list[Any] = []
    said: list[str] = []

    def try_all() -> None:
        for tx in kept:
            try:
                tx.execute(insert(Written).values(what="late", attempt=1))
            except Exception as error:
                said.append(type(error).__name__)

    @app.job(effect=True)
    def keep(tx: Session) -> None:
        tx.add(Written(what="in time", attempt=1))
        tx.flush()
        kept.extend([tx, tx.connection()])

    @app.job(effect=True)
    def next_one(tx: Session) -> None:
        try_all()
        tx.add(Written(what="next", attempt=1))

    async def work() -> None:
        async with working(app, concurrency=1):
            await until_ended(app, await keep.enqueue())
            await until_ended(app, await next_one.enqueue())

    asyncio.run(work())
    try_all()
    assert len(said) == 4
    assert written(database) == [("in time", 1), ("next", 1)]


def test_objects_of_one_effect_are_not_found_in_the_next(app: Tenure, database: Database) -> None:
    known: list[int] = []
    objects: list[Written] = []

    @app.job(effect=True)
    def look(tx: Session, turn: int) -> None:
        known.append(len(tx.identity_map))
        objects.append(tx.merge(Written(what="row", attempt=turn)))

    look.enqueue_many_sync([{"turn": turn} for turn in range(5)])
    burst(app, concurrency=1)
    assert known == [0] * 5
    assert all(inspect(one).detached for one in objects)


def test_an_effect_that_is_cancelled_in_a_statement_leaves_nothing(app: Tenure, database: Database) -> None:
    @app.job(effect=True, backoff=QUICK)
    async def work(tx: AsyncSession, job: Job) -> None:
        tx.add(Written(what="row", attempt=job.attempt))
        await tx.flush()
        if job.attempt == 1:
            async with asyncio.timeout(0.1):
                await tx.execute(text("select pg_sleep(60)"))

    ticket = work.enqueue_sync()
    finish(app, ticket)
    assert written(database) == [("row", 2)]
    assert failures(record(app, ticket.id))[0]["type"] == "TimeoutError"


@pytest.mark.parametrize("sort", ["thread", "loop"])
def test_what_sqlalchemy_makes_of_a_serialization_failure_is_run_again(
    app: Tenure, database: Database, sort: str
) -> None:
    runs: list[int] = []

    @app.job(name="thread", effect=True, max_attempts=1)
    def in_thread(tx: Session) -> None:
        runs.append(len(runs))
        if len(runs) < 3:
            tx.execute(AGAIN)
        tx.add(Written(what="row", attempt=len(runs)))

    @app.job(name="loop", effect=True, max_attempts=1)
    async def on_loop(tx: AsyncSession) -> None:
        runs.append(len(runs))
        if len(runs) < 3:
            await tx.execute(AGAIN)
        tx.add(Written(what="row", attempt=len(runs)))

    app.kinds[sort].enqueue_sync()
    burst(app)
    assert written(database) == [("row", 3)]


def test_who_does_not_use_sqlalchemy_does_not_load_it(dsn: str) -> None:
    script = """
import sys
from typing import Any
from psycopg import AsyncConnection, Connection
from tenure import Tenure
from tests.worker.here import record, burst

app = Tenure(sys.argv[1])

@app.job(effect=True)
async def on_loop(tx: AsyncConnection) -> None: ...

@app.job(effect=True)
def in_thread(tx) -> None: ...

tickets = [on_loop.enqueue_sync(), in_thread.enqueue_sync()]
burst(app)
print([str(record(app, ticket.id).state) for ticket in tickets], "sqlalchemy" in sys.modules)
app.close()
"""
    done = subprocess.run([sys.executable, "-c", script, dsn], capture_output=True, text=True, check=False)
    assert done.stdout == "['done', 'done'] False\n", done.stderr
