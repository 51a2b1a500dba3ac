"""Effects and their deliveries: dedup row, effect and completion are there together or not at all, and once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from tenure.effects import RERUNS
from tenure.errors import Permanent
from tenure.faultpoints import armed
from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.effect_runs import Ended, Handler, run_alone, write, writes
from tests.races.sessions import PATIENCE, Sessions
from tests.races.wire import tapped
from tests.store.steps import (
    KIND,
    QUEUE,
    Leased,
    accept,
    claim,
    claim_suspects,
    look,
    settled,
    sweep,
    take,
)

ROOT = Path(__file__).parents[2]


def happened(sessions: Sessions) -> list[int]:
    """The effects there are, by the attempt that wrote them."""
    return [row[0] for row in sessions.watch.execute("select attempt from effects order by attempt")]


def dedup_rows(sessions: Sessions) -> int:
    return int(sessions.one("select count(*) from tenure.dedup"))


def redelivered(sessions: Sessions) -> Leased:
    """The job again, after its lease: to the next worker."""
    sessions.shift(31)
    sweep(sessions.store)
    [leased] = [*claim(sessions.store), *claim_suspects(sessions.store)]
    return leased


class Paused:
    """A handler that stands still after its effect is written, or before; ``pid`` is its backend."""

    def __init__(self, leased: Leased, *, written: bool = True) -> None:
        self._leased = leased
        self._written = written
        self._arrived = Event()
        self._go = Event()
        self.pid = 0

    async def __call__(self, tx: AsyncConnection) -> None:
        await tx.execute("select")  # begun: the dedup row is there
        if self._written:
            await write(tx, self._leased)
        self.pid = tx.info.backend_pid
        self._arrived.set()
        await asyncio.to_thread(self._go.wait, PATIENCE)
        if not self._written:
            await write(tx, self._leased)

    def begin(self, store: PostgresStore, threads: ThreadPoolExecutor) -> Future[Ended]:
        """Run it in a thread, until it stands still."""
        ended = threads.submit(run_alone, store, self._leased, self)
        assert self._arrived.wait(PATIENCE)
        return ended

    def go_on(self) -> None:
        self._go.set()


# ------------------------------------------------------------------------------------------- two deliveries at once


def test_a_second_delivery_waits_for_the_first_and_does_nothing(sessions: Sessions) -> None:
    """Two jobs with one dedup key, as a natural key makes them."""
    one, two = (leased._replace(job=leased.job._replace(key="order 7")) for leased in _two(sessions))
    with ThreadPoolExecutor(2) as threads:
        paused = Paused(one)
        first = paused.begin(sessions.store, threads)
        second = threads.submit(run_alone, sessions.store, two)
        sessions.until(lambda: waits_for(sessions, paused.pid) == 1)
        paused.go_on()
        assert (first.result(PATIENCE), second.result(PATIENCE)) == ("committed", "already done")
    assert len(happened(sessions)) == dedup_rows(sessions) == 1
    assert look(sessions.store, two.id).state is State.RUNNING  # its worker completes it


def _two(sessions: Sessions) -> list[Leased]:
    accept(sessions.store, 2)
    return claim(sessions.store)


def waits_for(sessions: Sessions, pid: int) -> int:
    """How many sessions wait for this one."""
    return int(sessions.one("select count(*) from pg_stat_activity where %s = any(pg_blocking_pids(pid))", pid))


def test_a_second_delivery_goes_on_when_the_first_one_has_failed(sessions: Sessions) -> None:
    one, two = (leased._replace(job=leased.job._replace(key="order 7")) for leased in _two(sessions))
    with ThreadPoolExecutor(2) as threads:
        paused = Paused(one)
        first = paused.begin(sessions.store, threads)
        second = threads.submit(run_alone, sessions.store, two)
        sessions.until(lambda: waits_for(sessions, paused.pid) == 1)
        sessions.kill(paused.pid)
        assert second.result(PATIENCE) == "committed"
        paused.go_on()
        with pytest.raises(psycopg.OperationalError):
            first.result(PATIENCE)
    assert len(happened(sessions)) == dedup_rows(sessions) == 1


@pytest.mark.parametrize("written", [False, True], ids=["before its effect", "after its effect"])
def test_a_redelivery_waits_for_the_zombie_whose_effect_is_then_undone(sessions: Sessions, written: bool) -> None:
    zombie = take(sessions.store)
    with ThreadPoolExecutor(2) as threads:
        paused = Paused(zombie, written=written)
        first = paused.begin(sessions.store, threads)
        successor = redelivered(sessions)
        second = threads.submit(run_alone, sessions.store, successor)
        sessions.until(lambda: waits_for(sessions, paused.pid) == 1)
        paused.go_on()
        assert (first.result(PATIENCE), second.result(PATIENCE)) == ("lost", "committed")
    assert happened(sessions) == [2]
    assert dedup_rows(sessions) == 1
    assert look(sessions.store, zombie.id).state is State.DONE


def test_a_zombie_that_stands_still_in_an_effect_delays_its_successor_by_a_lease(sessions: Sessions) -> None:
    """The server ends the transaction when it has been idle for the length of the lease."""
    accept(sessions.store)
    [zombie] = claim(sessions.store, known=[ops.Known(KIND, 1, 0.5)])
    with ThreadPoolExecutor(2) as threads:
        paused = Paused(zombie)
        first = paused.begin(sessions.store, threads)
        successor = redelivered(sessions)
        assert run_alone(sessions.store, successor) == "committed"
        paused.go_on()
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            first.result(PATIENCE)
    assert happened(sessions) == [2]


def test_an_open_effect_does_not_lock_its_job(sessions: Sessions) -> None:
    leased = take(sessions.store)
    with ThreadPoolExecutor(1) as threads:
        paused = Paused(leased)
        ended = paused.begin(sessions.store, threads)
        held = ops.Held(leased.id, leased.token, 60.0)
        assert sessions.store.run(ops.Extend(QUEUE, [held])) == {leased.id: "extended"}
        assert sessions.store.run(ops.Cancel(QUEUE, [leased.id])) == {leased.id: "asked"}
        paused.go_on()
        assert ended.result(PATIENCE) == "committed"
    assert look(sessions.store, leased.id).state is State.DONE


def test_an_effect_that_was_completed_in_time_commits_although_its_lease_ends_before(sessions: Sessions) -> None:
    """Between completion and commit the row is locked: a sweep passes over it, and a heartbeat does not wait."""
    leased = take(sessions.store)
    told: list[Any] = []

    def meanwhile() -> None:
        told.append(sessions.store.run(ops.Extend(QUEUE, [ops.Held(leased.id, leased.token, 60.0)])))
        told.append(sweep(sessions.store))

    with armed("effect.before_commit", meanwhile):
        assert run_alone(sessions.store, leased) == "committed"
    assert told == [{leased.id: "locked"}, {}]
    assert happened(sessions) == [1]
    assert look(sessions.store, leased.id).state is State.DONE


def test_an_effect_of_a_lease_that_ends_before_the_completion_is_undone(sessions: Sessions) -> None:
    leased = take(sessions.store)
    with armed("effect.before_complete", lambda: sessions.shift(31)):
        assert run_alone(sessions.store, leased) == "lost"
    assert happened(sessions) == []
    assert dedup_rows(sessions) == 0


# -------------------------------------------------------------------------------------------------------- crashes

BEFORE_COMMIT = ["effect.before_dedup", "effect.after_dedup", "effect.before_complete", "effect.before_commit"]


@pytest.mark.parametrize("point", [*BEFORE_COMMIT, "effect.after_commit"])
def test_a_process_killed_at_any_point_leaves_all_or_nothing(sessions: Sessions, point: str) -> None:
    [id] = accept(sessions.store)
    assert _process(sessions.store, f"{point}=kill").returncode == -signal.SIGKILL
    sessions.until(lambda: not sessions.one(_OTHERS))
    committed = point == "effect.after_commit"
    assert happened(sessions) == ([1] if committed else [])
    assert dedup_rows(sessions) == int(committed)
    assert look(sessions.store, id).state is (State.DONE if committed else State.RUNNING)
    if not committed:
        assert run_alone(sessions.store, redelivered(sessions)) == "committed"
        assert happened(sessions) == [2]
    assert look(sessions.store, id).state is State.DONE
    assert dedup_rows(sessions) == 1


_OTHERS = """
    select exists (
        select from pg_stat_activity
        where datname = current_database() and application_name = 'tenure' and state <> 'idle'
    )
"""


def test_the_process_is_sound_when_nobody_kills_it(sessions: Sessions) -> None:
    accept(sessions.store)
    assert _process(sessions.store, "").stdout == "committed\n"
    assert happened(sessions) == [1]


def _process(store: PostgresStore, faults: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.races.effect_process", store.dsn],
        cwd=ROOT,
        env={**os.environ, "TENURE_FAULTS": faults},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("written", [False, True], ids=["before its effect", "after its effect"])
def test_a_connection_killed_inside_an_effect_leaves_nothing(sessions: Sessions, written: bool) -> None:
    leased = take(sessions.store)
    with ThreadPoolExecutor(1) as threads:
        paused = Paused(leased, written=written)
        ended = paused.begin(sessions.store, threads)
        sessions.kill(paused.pid)
        paused.go_on()
        with pytest.raises(psycopg.OperationalError):
            ended.result(PATIENCE)
    assert happened(sessions) == []
    assert dedup_rows(sessions) == 0
    assert look(sessions.store, leased.id).state is State.RUNNING
    assert run_alone(sessions.store, redelivered(sessions)) == "committed"
    assert happened(sessions) == [2]


@pytest.mark.parametrize("point", BEFORE_COMMIT)
def test_an_error_at_any_point_leaves_nothing(sessions: Sessions, point: str) -> None:
    leased = take(sessions.store)
    with armed(point, "raise"), pytest.raises(Exception, match=point):
        run_alone(sessions.store, leased)
    assert happened(sessions) == []
    assert dedup_rows(sessions) == 0
    assert run_alone(sessions.store, leased) == "committed"
    assert happened(sessions) == [1]


def test_an_effect_that_is_there_is_not_written_again(sessions: Sessions) -> None:
    """Delivered again although it was committed: as after a restore, or with a token taken for lost."""
    leased = take(sessions.store)
    assert run_alone(sessions.store, leased) == "committed"
    assert run_alone(sessions.store, leased) == "already done"
    assert happened(sessions) == [1]


# ------------------------------------------------------------------------------------- run again in place, and refused


class Fails:
    """A handler that writes its effect and then fails with a database error, so many times."""

    def __init__(self, leased: Leased, times: int, sqlstate: str) -> None:
        self._leased = leased
        self._times = times
        self._sqlstate = sqlstate
        self.calls = 0

    async def __call__(self, tx: AsyncConnection) -> None:
        self.calls += 1
        await write(tx, self._leased)
        if self.calls <= self._times:
            await tx.execute(f"do $$ begin raise exception 'again' using errcode = '{self._sqlstate}'; end $$")


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
@pytest.mark.parametrize("times", [1, RERUNS])
def test_a_serialization_failure_or_deadlock_runs_the_effect_again_in_place(
    sessions: Sessions, times: int, sqlstate: str
) -> None:
    leased = take(sessions.store)
    handler = Fails(leased, times, sqlstate)
    assert run_alone(sessions.store, leased, handler) == "committed"
    assert handler.calls == times + 1
    assert happened(sessions) == [1]


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_one_that_goes_on_fails_the_attempt(sessions: Sessions, sqlstate: str) -> None:
    leased = take(sessions.store)
    handler = Fails(leased, 99, sqlstate)
    with pytest.raises(psycopg.OperationalError, match="again"):
        run_alone(sessions.store, leased, handler)
    assert handler.calls == RERUNS + 1
    assert happened(sessions) == []
    assert dedup_rows(sessions) == 0


def test_any_other_error_is_not_run_again(sessions: Sessions) -> None:
    leased = take(sessions.store)
    handler = Fails(leased, 99, "23505")
    with pytest.raises(psycopg.errors.UniqueViolation):
        run_alone(sessions.store, leased, handler)
    assert handler.calls == 1


def test_a_real_deadlock_is_survived(sessions: Sessions) -> None:
    leased = take(sessions.store)
    other = sessions.open()
    sessions.watch.execute("insert into effects (note) values ('x'), ('y')")
    lock = "update effects set attempt = 0 where note = %s"
    theirs: list[Future[Any]] = []

    async def handler(tx: AsyncConnection) -> None:
        await tx.execute("set local deadlock_timeout = '10ms'")  # so that this side is the victim
        if not theirs:
            await tx.execute(lock, ["x"])
            other.begin()
            other.conn.execute(lock, ["y"])
            theirs.append(other.start(lambda: other.conn.execute(lock, ["x"])))
            await asyncio.to_thread(sessions.await_blocked, other)
            await tx.execute(lock, ["y"])
        await write(tx, leased)

    assert run_alone(sessions.store, leased, handler) == "committed"
    theirs[0].result(PATIENCE)
    other.commit()
    assert sessions.one("select count(*) from effects where job_id is not null") == 1


@pytest.mark.parametrize(
    "statements",
    [["commit"], ["commit", "begin"], ["rollback"], ["rollback and chain"], ["commit", "select 1"]],
    ids=str,
)
def test_a_handler_that_ends_the_transaction_itself_is_noticed(sessions: Sessions, statements: list[str]) -> None:
    leased = take(sessions.store)

    async def handler(tx: AsyncConnection) -> None:
        await write(tx, leased)
        for statement in statements:
            await tx.execute(statement)

    with pytest.raises(Permanent, match="ended the effect's transaction itself"):
        run_alone(sessions.store, leased, handler)
    assert look(sessions.store, leased.id).state is State.RUNNING  # its worker buries it
    assert happened(sessions) == ([1] if "commit" in statements else [])
    assert dedup_rows(sessions) == len(happened(sessions))


@pytest.mark.parametrize("method", ["commit", "rollback"])
def test_the_connection_refuses_to_commit_or_roll_back(sessions: Sessions, method: str) -> None:
    leased = take(sessions.store)

    async def handler(tx: AsyncConnection) -> None:
        await write(tx, leased)
        await getattr(tx, method)()

    with pytest.raises(psycopg.ProgrammingError, match="an effect cannot"):
        run_alone(sessions.store, leased, handler)
    assert happened(sessions) == []
    assert dedup_rows(sessions) == 0


def test_a_savepoint_of_the_handler_is_its_own_matter(sessions: Sessions) -> None:
    leased = take(sessions.store)

    async def handler(tx: AsyncConnection) -> None:
        async with tx.transaction(force_rollback=True):
            await write(tx, leased)
        async with tx.transaction():
            await write(tx, leased)

    assert run_alone(sessions.store, leased, handler) == "committed"
    assert happened(sessions) == [1]


def test_a_handler_that_uses_no_connection_is_an_effect_all_the_same(sessions: Sessions) -> None:
    leased = take(sessions.store)

    async def handler(tx: AsyncConnection) -> None:
        assert tx.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    assert run_alone(sessions.store, leased, handler) == "committed"
    assert dedup_rows(sessions) == 1
    assert run_alone(sessions.store, leased, handler) == "already done"


def test_a_handler_that_swallows_everything_cannot_write_twice(sessions: Sessions) -> None:
    leased = take(sessions.store)

    async def handler(tx: AsyncConnection) -> None:
        with contextlib.suppress(BaseException):  # what a handler must not do
            await write(tx, leased)

    assert run_alone(sessions.store, leased, handler) == "committed"
    assert run_alone(sessions.store, leased, handler) == "already done"
    assert happened(sessions) == [1]


# ------------------------------------------------------------------------------------------------------ cut at commit


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_cut_around_the_commit_is_unknown_until_asked(sessions: Sessions, when: str) -> None:
    leased = take(sessions.store)
    with tapped(sessions.store.dsn) as wire:
        cut = wire.cut_commit(when)
        assert run_alone(wire.store, leased) == "unknown"
        cut.wait()
    sessions.until(lambda: not sessions.one(_OTHERS))
    committed = when == "after"
    assert settled(sessions.store, leased) == committed
    assert happened(sessions) == ([1] if committed else [])
    assert dedup_rows(sessions) == int(committed)
    again: Handler = writes(leased)
    assert run_alone(sessions.store, leased, again) == ("already done" if committed else "committed")
    assert happened(sessions) == [1]
