"""A dump that is restored elsewhere starts paused: nothing in it runs again until somebody says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.grants import Grants
from tenure.store.postgres import PostgresStore
from tests.apps import load
from tests.backup.conftest import Pair
from tests.backup.dumps import dumped, restored
from tests.cli.conftest import tenure
from tests.conftest import Server
from tests.store.steps import accept, claim, take
from tests.support.roles import a_role, as_role
from tests.worker.ledger import until
from tests.worker.processes import Bench, Process

APP = "tests.apps.load:app"
RESTORED = "restored from elsewhere"

on_one_version = pytest.mark.parametrize("pair", ["pair18"], indirect=True)


@pytest.fixture
def original(pair: Pair) -> Iterator[PostgresStore]:
    """A database with the schema, on the first server."""
    dsn = pair.here.fresh()
    store = PostgresStore(dsn)
    yield store
    store.close()
    pair.here.drop(dsn)


class Desk:
    """Where a test works: what it makes goes at its end.

    Args:
        directory: for dumps, ledgers and logs.
        stack: of the test.
    """

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.stack = stack

    def moved(self, server: Server, original: PostgresStore, *options: str) -> PostgresStore:
        """What is restored on a server from a dump of the original."""
        file = dumped(server, original.dsn, self.directory / "queue.dump")
        store = PostgresStore(restored(server, file, *options))
        self.stack.callback(server.drop, store.dsn)
        self.stack.callback(store.close)
        return store

    def bench(self, dsn: str) -> Bench:
        """For workers on a database."""
        directory = self.directory / dsn.rpartition("=")[2]
        directory.mkdir()
        return self.stack.enter_context(closing(Bench(dsn, directory)))


@pytest.fixture
def desk(tmp_path: Path, original: PostgresStore) -> Iterator[Desk]:
    """Goes before the original does."""
    with ExitStack() as stack:
        yield Desk(tmp_path, stack)


def paused(store: PostgresStore) -> list[str]:
    return [queue.name for queue in store.run(ops.ListQueues()) if queue.paused]


def is_at_work(worker: Process) -> bool:
    return "is working on" in worker.log


def test_workers_leave_the_jobs_of_a_restored_dump_alone_until_they_are_told(
    pair: Pair, original: PostgresStore, desk: Desk
) -> None:
    with closing(Bench(original.dsn, desk.directory)) as before:
        before.use(load.app)
        running, waiting = (load.plain.enqueue_sync().id for _ in range(2))
    [job] = claim(original, queue="default", known=[ops.Known("plain", 1, 1.0)], limit=1)
    assert job.id == running
    store = desk.moved(pair.elsewhere, original)

    bench = desk.bench(store.dsn)
    first = bench.start(APP, queues="default,probe", concurrency=2)
    until(lambda: is_at_work(first), "the first worker")
    assert RESTORED in first.log
    assert "every queue is paused (default)" in first.log
    assert "tenure queue resume --all" in first.log
    second = bench.start(APP, queues="default,probe", concurrency=2)
    until(lambda: is_at_work(second), "another worker")
    assert RESTORED not in second.log
    assert "queue default is paused" in second.log

    bench.use(load.app)
    probe = load.plain.enqueue_sync(queue="probe")  # new, in a queue that was not there: it shows that they do claim
    bench.await_state(probe.id)
    bench.await_state(running, State.PENDING)  # its lease ends as everywhere
    assert {line.id for line in bench.ledger.lines()} == {str(probe.id)}

    assert tenure("queue", "resume", "--all", dsn=store.dsn).code == 0
    for id in (running, waiting):
        bench.await_state(id)
    assert original.run(ops.LookUp(None, [waiting]))[waiting].state is State.PENDING  # the original goes its own way


@on_one_version
def test_migrate_pauses_and_says_so_once(pair: Pair, original: PostgresStore, desk: Desk) -> None:
    accept(original)
    store = desk.moved(pair.elsewhere, original)
    told = tenure("migrate", dsn=store.dsn)
    assert (told.code, told.out) == (0, "Schema tenure: up to date.\n")
    assert RESTORED in told.err
    assert "tenure queue resume --all" in told.err
    assert paused(store) == ["q"]
    store.run(ops.PauseQueues(["q"], paused=False))
    assert tenure("migrate", dsn=store.dsn).err == ""
    assert paused(store) == []
    assert len(claim(store)) == 1


@on_one_version
def test_who_resumes_one_queue_before_any_worker_has_looked_finds_the_others_paused(
    pair: Pair, original: PostgresStore, desk: Desk
) -> None:
    accept(original)
    original.run(ops.SetQueue("other"))
    store = desk.moved(pair.elsewhere, original)
    told = tenure("queue", "resume", "q", dsn=store.dsn)
    assert (told.code, told.out.split()) == (0, ["queue", "answer", "q", "resumed"])
    assert "restored from elsewhere: every queue is paused (other, q)" in told.err
    assert paused(store) == ["other"]
    assert store.run(ops.PauseIfRestored()) is None
    assert len(claim(store)) == 1


def test_a_dump_that_is_restored_on_the_same_server_is_paused_too(
    pair: Pair, original: PostgresStore, desk: Desk
) -> None:
    accept(original)
    store = desk.moved(pair.here, original)
    assert store.run(ops.PauseIfRestored()) == ["q"]
    assert claim(store) == []
    assert original.run(ops.PauseIfRestored()) is None
    assert len(claim(original)) == 1


@on_one_version
def test_a_dump_without_jobs_is_at_home_where_it_is_restored(pair: Pair, original: PostgresStore, desk: Desk) -> None:
    original.run(ops.SetQueue("q"))
    store = desk.moved(pair.elsewhere, original)
    assert store.run(ops.PauseIfRestored()) is None
    accept(store)
    assert store.run(ops.PauseIfRestored()) is None
    assert len(claim(store)) == 1


@on_one_version
def test_in_a_workers_role_it_is_the_same(pair: Pair, original: PostgresStore, desk: Desk) -> None:
    role = desk.stack.enter_context(a_role(original.dsn, "worker"))
    original.grant(Grants(workers=[role]))
    accept(original)
    store = desk.moved(pair.here, original)
    working = PostgresStore(as_role(store.dsn, role))
    desk.stack.callback(working.close)
    assert working.run(ops.PauseIfRestored()) == ["q"]
    assert claim(working) == []


@on_one_version
def test_without_its_privileges_a_dump_keeps_workers_out_until_they_have_them_again(
    pair: Pair, original: PostgresStore, desk: Desk
) -> None:
    role = desk.stack.enter_context(a_role(original.dsn, "worker"))
    original.grant(Grants(workers=[role]))
    accept(original)
    store = desk.moved(pair.here, original, "--no-privileges")
    bench = desk.bench(store.dsn)
    login = as_role(store.dsn, role)
    assert bench.start(APP, dsn=login, queues="q", burst=True).ended() == 3
    assert paused(store) == []
    store.grant(Grants(workers=[role]))
    again = bench.start(APP, dsn=login, queues="q", burst=True)
    assert again.ended() == 0
    assert RESTORED in again.log
    assert paused(store) == ["q"]


# ------------------------------------------------------------------------------------------------ under running workers


@on_one_version
def test_a_backup_that_is_put_in_the_place_of_the_database_under_running_workers_does_not_run(
    pair: Pair, original: PostgresStore, desk: Desk
) -> None:
    bench = desk.bench(original.dsn)
    bench.use(load.app)
    done = load.plain.enqueue_sync()
    file = dumped(pair.here, original.dsn, desk.directory / "queue.dump")
    worker = bench.start(APP, queues="default,probe", concurrency=2)
    bench.await_state(done.id)

    put_in_place(pair.here, restored(pair.here, file), original.dsn)
    until(lambda: RESTORED in worker.log, "that the worker sees it")
    probe = load.plain.enqueue_sync(queue="probe")
    bench.await_state(probe.id)
    assert bench.await_state(done.id, State.PENDING).claims == 0
    assert len(bench.ledger.lines("ran", done.id)) == 1

    bench.store.run(ops.PauseQueues(None, paused=False))
    bench.await_state(done.id)
    assert len(bench.ledger.lines("ran", done.id)) == 2
    assert worker.alive


def put_in_place(server: Server, restored: str, original: str) -> None:
    """Put a database in the place of another, which is dropped: who was connected has to connect again."""
    new, old = (sql.Identifier(dsn.rpartition("=")[2]) for dsn in (restored, original))
    with psycopg.connect(server.engine.dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("alter database {} allow_connections false").format(old))
        admin.execute(sql.SQL("drop database {} with (force)").format(old))
        admin.execute(sql.SQL("alter database {} rename to {}").format(new, old))


def test_what_is_restored_into_the_database_itself_is_noticed_by_who_stays_connected(
    pair: Pair, original: PostgresStore
) -> None:
    """The server, the database and the connection are the same: the table is another one."""
    take(original)
    assert original.run(ops.PauseIfRestored()) is None
    with psycopg.connect(original.dsn) as conn:
        conn.execute("create table tenure.other (like tenure.jobs including all)")
        conn.execute("insert into tenure.other overriding system value select * from tenure.jobs")
        conn.execute("drop table tenure.jobs")
        conn.execute("alter table tenure.other rename to jobs")
    assert original.run(ops.PauseIfRestored()) == ["q"]
