"""Effects that share a transaction: one commit for all that came to their end, and nothing of the others."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import AsyncConnection, Connection
from psycopg.rows import dict_row

from tenure.effects import AlreadyDoneError, CommitUnknownError, Effects, by_idempotency_key, by_natural_key
from tenure.errors import LeaseLost, Permanent
from tenure.faultpoints import InjectedError, armed
from tenure.forms import Form
from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.effect_runs import write
from tests.races.sessions import PATIENCE, Sessions
from tests.races.wire import tapped
from tests.store.steps import QUEUE, Leased, accept, claim, look, settled, sweep
from tests.support.properties import given, st

Handler = Callable[[Any, Leased], Awaitable[Any]]

THREAD = Form(on_loop=False)


def leased(store: PostgresStore, count: int) -> list[Leased]:
    """Jobs under a lease, in order of acceptance."""
    accept(store, count)
    return claim(store)


async def writes(tx: AsyncConnection, leased: Leased) -> str:
    """Writes the job's effect, and answers in which transaction."""
    await write(tx, leased)
    return await which(tx)


async def which(tx: AsyncConnection) -> str:
    [xid] = await (await tx.execute("select pg_current_xact_id()::text")).fetchone() or ("",)
    return str(xid)


async def fails(tx: AsyncConnection, leased: Leased) -> None:
    await write(tx, leased)
    raise ValueError("by itself")


async def fails_in_the_database(tx: AsyncConnection, leased: Leased) -> None:
    await write(tx, leased)
    await tx.execute("select 1 / 0")


async def passes_over(tx: AsyncConnection, leased: Leased) -> None:
    """A statement fails, and the handler goes on."""
    try:
        await fails_in_the_database(tx, leased)
    except psycopg.errors.DivisionByZero:
        return


async def commits(tx: AsyncConnection, leased: Leased) -> None:
    await tx.execute("commit")


async def begins_anew(tx: AsyncConnection, leased: Leased) -> None:
    await tx.execute("rollback")
    await tx.execute("begin")


async def loses_its_savepoint(tx: AsyncConnection, leased: Leased) -> None:
    await tx.execute("release tenure")


async def defers(tx: AsyncConnection, leased: Leased) -> None:
    """What it writes is refused at the commit."""
    await write(tx, leased)
    await tx.execute("insert into promised values (1), (1)")


DEFERRED = "create table if not exists promised (x int unique deferrable initially deferred)"


def together(
    store: PostgresStore,
    jobs: Sequence[Leased],
    handlers: Sequence[Handler] | Handler = writes,
    *,
    group: int = 50,
    size: int = 10,
    natural: Sequence[str] | None = None,
    during: Callable[[list[asyncio.Task[Any]]], Awaitable[Any]] | None = None,
    form: Form | None = None,
) -> list[Any]:
    """How attempts at these effects end that come at the same time: results, as JSON, or errors."""
    each = [handlers] * len(jobs) if callable(handlers) else handlers

    async def work() -> list[Any]:
        tasks = []
        for n, (one, handler) in enumerate(zip(jobs, each, strict=True)):
            effect = by_idempotency_key(one.job, one.token, ttl=60.0)
            if natural is not None:
                effect = by_natural_key(one.job, one.token, natural[n], ttl=60.0)
            effect = effect._replace(group=group, form=form or effect.form)
            call = _bound(handler, one)
            tasks.append(asyncio.ensure_future(effects.run(effect, call, stored=json.dumps, settling=lambda _: None)))
        ends = asyncio.gather(*tasks, return_exceptions=True)
        if during is not None:
            await during(tasks)
        return [end if isinstance(end, BaseException) or end is None else json.loads(end) for end in await ends]

    with ThreadPoolExecutor(10) as threads:
        effects = Effects(store, threads, size)
        try:
            return asyncio.run(asyncio.wait_for(work(), PATIENCE))
        finally:
            effects.close()


def _bound(handler: Handler, leased: Leased) -> Callable[[Any], Any]:
    return lambda tx: handler(tx, leased)


def happened(sessions: Sessions) -> Counter[UUID]:
    """How many effects each job has."""
    return Counter(id for (id,) in sessions.watch.execute("select job_id from effects"))


def states(sessions: Sessions, jobs: Sequence[Leased]) -> list[State]:
    return [look(sessions.store, one.id).state for one in jobs]


# --------------------------------------------------------------------------------------------------------- all goes well


def test_effects_that_come_together_have_one_transaction(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 5)
    ends = together(sessions.store, jobs)
    assert len(set(ends)) == 1
    assert states(sessions, jobs) == [State.DONE] * 5
    assert happened(sessions) == {one.id: 1 for one in jobs}
    assert [look(sessions.store, one.id).result for one in jobs] == [json.dumps(end) for end in ends]
    assert sessions.one("select count(*) from tenure.dedup") == 5


def test_no_more_than_the_kind_allows_share_one(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 8)
    ends = together(sessions.store, jobs, group=3)
    assert sorted(Counter(ends).values()) == [2, 3, 3]
    assert states(sessions, jobs) == [State.DONE] * 8


def test_by_itself_an_effect_has_a_transaction_of_its_own(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 4)
    assert len(set(together(sessions.store, jobs, group=1))) == 4


def test_nobody_waits_for_company(sessions: Sessions) -> None:
    """One that comes while others are at it takes a connection that is free."""
    jobs = leased(sessions.store, 2)
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def waits(tx: AsyncConnection, leased: Leased) -> None:
        await write(tx, leased)
        at_work.set()
        await go_on.wait()

    async def work(effects: Effects) -> None:
        one, two = (by_idempotency_key(job.job, job.token, ttl=60.0)._replace(group=9) for job in jobs)
        none: dict[str, Any] = {"stored": lambda _: None, "settling": lambda _: None}
        first = asyncio.ensure_future(effects.run(one, _bound(waits, jobs[0]), **none))
        await at_work.wait()
        await effects.run(two, _bound(writes, jobs[1]), **none)
        assert look(sessions.store, jobs[1].id).state is State.DONE
        go_on.set()
        await first

    with ThreadPoolExecutor(1) as threads:
        effects = Effects(sessions.store, threads)
        asyncio.run(asyncio.wait_for(work(effects), PATIENCE))
        effects.close()
    assert states(sessions, jobs) == [State.DONE] * 2


def test_synchronous_handlers_share_one_too(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 4)

    def sync(tx: Connection, leased: Leased) -> str:
        tx.execute("insert into effects (job_id, attempt) values (%s, 1)", [leased.id])
        if leased is jobs[1]:
            raise ValueError("by itself")
        [xid] = tx.execute("select pg_current_xact_id()::text").fetchone() or ("",)
        return str(xid)

    ends = together(sessions.store, jobs, sync, form=THREAD)  # type: ignore[arg-type]
    assert isinstance(ends[1], ValueError)
    assert ends[0] == ends[2] == ends[3]
    assert happened(sessions) == {one.id: 1 for one in jobs if one is not jobs[1]}


# ------------------------------------------------------------------------------------------------------ one of them fails


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "in the middle", "last"])
@pytest.mark.parametrize("bad", [fails, fails_in_the_database, passes_over], ids=lambda bad: bad.__name__)
def test_one_that_fails_is_undone_and_the_others_commit(sessions: Sessions, bad: Handler, place: int) -> None:
    jobs = leased(sessions.store, 3)
    handlers: list[Handler] = [writes] * 3
    handlers[place] = bad
    ends = together(sessions.store, jobs, handlers)
    assert isinstance(ends[place], ValueError | psycopg.Error)
    others = [end for end in ends if end is not ends[place]]
    assert len(set(others)) == 1
    assert happened(sessions) == {one.id: 1 for one in jobs if one is not jobs[place]}
    assert states(sessions, jobs).count(State.DONE) == 2
    assert sessions.one("select count(*) from tenure.dedup") == 2


def test_all_may_fail(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 3)
    ends = together(sessions.store, jobs, fails)
    assert [type(end) for end in ends] == [ValueError] * 3
    assert happened(sessions) == {}
    assert together(sessions.store, jobs) != ends
    assert states(sessions, jobs) == [State.DONE] * 3


def test_one_whose_effect_is_there_already_is_told_so_and_the_others_commit(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 3)
    sessions.watch.execute(
        "insert into tenure.dedup (queue, dedup_key, job_id) values (%s, %s, %s)",
        [QUEUE, jobs[0].job.idempotency_key, jobs[0].id],
    )
    ends = together(sessions.store, jobs)
    assert isinstance(ends[0], AlreadyDoneError)
    assert happened(sessions) == {one.id: 1 for one in jobs[1:]}


def test_a_deadlock_of_one_runs_that_one_again_by_itself(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 3)
    runs: Counter[UUID] = Counter()

    async def handler(tx: AsyncConnection, leased: Leased) -> str:
        runs[leased.id] += 1
        if leased is jobs[1] and runs[leased.id] == 1:
            await tx.execute("do $$ begin raise exception 'again' using errcode = '40P01'; end $$")
        return await writes(tx, leased)

    ends = together(sessions.store, jobs, handler)
    assert ends[0] == ends[2]
    assert ends[1] != ends[0]
    assert runs == {jobs[0].id: 1, jobs[1].id: 2, jobs[2].id: 1}
    assert happened(sessions) == {one.id: 1 for one in jobs}


def test_one_that_breaks_the_commit_fails_alone(sessions: Sessions) -> None:
    """Whose fault it was the commit does not say: all are run again, each by itself."""
    sessions.watch.execute(DEFERRED)
    jobs = leased(sessions.store, 3)
    ends = together(sessions.store, jobs, [writes, defers, writes])
    assert isinstance(ends[1], psycopg.errors.UniqueViolation)
    assert ends[0] != ends[2]
    assert happened(sessions) == {jobs[0].id: 1, jobs[2].id: 1}


@pytest.mark.parametrize("rude", [commits, begins_anew, loses_its_savepoint], ids=lambda rude: rude.__name__)
@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "in the middle", "last"])
def test_one_that_ends_the_transaction_costs_the_others_nothing_but_time(
    sessions: Sessions, rude: Handler, place: int
) -> None:
    jobs = leased(sessions.store, 3)
    handlers: list[Handler] = [writes] * 3
    handlers[place] = rude
    ends = together(sessions.store, jobs, handlers)
    if rude is not loses_its_savepoint or place < 2:
        assert isinstance(ends[place], Permanent | psycopg.Error)
    for one, end in zip(jobs, ends, strict=True):
        if one is not jobs[place]:
            assert isinstance(end, str | AlreadyDoneError)  # committed with what the rude one had no right to commit
            assert happened(sessions)[one.id] == 1


# ------------------------------------------------------------------------------------------------------- leases, commits


def test_one_that_has_lost_its_lease_is_lost_and_the_others_commit_without_it(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 4)
    runs: Counter[UUID] = Counter()

    async def handler(tx: AsyncConnection, leased: Leased) -> str:
        runs[leased.id] += 1
        return await writes(tx, leased)

    def lose() -> None:
        sessions.watch.execute(
            "update tenure.jobs set lease_until = clock_timestamp() - interval '1s' where id = %s", [jobs[2].id]
        )

    with armed("effect.before_complete", lose):
        ends = together(sessions.store, jobs, handler)
    assert isinstance(ends[2], LeaseLost)
    assert happened(sessions) == {one.id: 1 for one in jobs if one is not jobs[2]}
    assert runs == {one.id: 1 if one is jobs[2] else 2 for one in jobs}
    assert states(sessions, jobs).count(State.DONE) == 3
    assert sessions.one("select count(*) from tenure.dedup") == 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_answer_is_lost_is_unknown_for_all(sessions: Sessions, when: str) -> None:
    jobs = leased(sessions.store, 3)
    with tapped(sessions.store.dsn) as wire:
        cut = wire.cut_commit(when)
        ends = together(wire.store, jobs)
        cut.wait()
    assert [type(end) for end in ends] == [CommitUnknownError] * 3
    sessions.until(lambda: not sessions.one(_OTHERS))
    assert [settled(sessions.store, one) for one in jobs] == [when == "after"] * 3
    assert happened(sessions) == ({one.id: 1 for one in jobs} if when == "after" else {})


_OTHERS = """
    select exists (
        select from pg_stat_activity
        where datname = current_database() and application_name = 'tenure' and state <> 'idle'
    )
"""


def test_a_lost_connection_fails_the_one_that_was_at_work_and_the_others_run_again(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 4)

    async def handler(tx: AsyncConnection, leased: Leased) -> str:
        if leased is jobs[1]:
            await asyncio.to_thread(sessions.kill, tx.info.backend_pid)
        return await writes(tx, leased)

    ends = together(sessions.store, jobs, handler)
    assert [isinstance(end, psycopg.OperationalError) for end in ends] == [False, True, False, False]
    assert happened(sessions) == {one.id: 1 for one in jobs if one is not jobs[1]}


@pytest.mark.parametrize(
    "point",
    ["effect.before_dedup", "effect.after_dedup", "effect.between", "effect.before_complete", "effect.before_commit"],
)
def test_an_error_at_any_point_costs_nobody_its_effect(sessions: Sessions, point: str) -> None:
    jobs = leased(sessions.store, 3)
    with armed(point, "raise"):
        ends = together(sessions.store, jobs)
    failed = [one for one, end in zip(jobs, ends, strict=True) if isinstance(end, InjectedError)]
    assert len(failed) == (1 if point.endswith("_dedup") else 0)
    assert happened(sessions) == {one.id: 1 for one in jobs if one not in failed}


# ------------------------------------------------------------------------------------------------------ stopped meanwhile


@pytest.mark.parametrize("place", [0, 1, 2], ids=["at work", "before its turn", "the last"])
def test_one_that_is_cancelled_leaves_the_others_as_they_are(sessions: Sessions, place: int) -> None:
    jobs = leased(sessions.store, 3)
    at_work = asyncio.Event()

    async def handler(tx: AsyncConnection, leased: Leased) -> str:
        if leased is jobs[0]:
            await write(tx, jobs[0])
            at_work.set()
            await tx.execute("select pg_sleep(0.1)")
            return await which(tx)
        return await writes(tx, leased)

    async def cancel(tasks: list[asyncio.Task[Any]]) -> None:
        await at_work.wait()
        tasks[place].cancel()

    ends = together(sessions.store, jobs, handler, during=cancel)
    assert [isinstance(end, asyncio.CancelledError) for end in ends] == [n == place for n in range(3)]
    assert happened(sessions) == {one.id: 1 for one in jobs if one is not jobs[place]}


def test_one_that_has_done_its_part_is_not_stopped_any_more(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 2)
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def handler(tx: AsyncConnection, leased: Leased) -> str:
        if leased is jobs[1]:
            at_work.set()
            await go_on.wait()
        return await writes(tx, leased)

    async def cancel(tasks: list[asyncio.Task[Any]]) -> None:
        await at_work.wait()
        tasks[0].cancel()
        await asyncio.sleep(0)
        go_on.set()

    ends = together(sessions.store, jobs, handler, during=cancel)
    assert ends[0] == ends[1]
    assert happened(sessions) == {one.id: 1 for one in jobs}


# ------------------------------------------------------------------------------------------------------- one dedup key


def test_two_with_one_key_are_never_in_one_transaction(sessions: Sessions) -> None:
    """The second finds what the first has committed, result and all; if the first fails, it does the work."""
    jobs = leased(sessions.store, 4)
    ends = together(sessions.store, jobs, natural=["a", "b", "a", "a"])
    assert isinstance(ends[2], AlreadyDoneError)
    assert ends[2].result == json.dumps(ends[0])
    assert isinstance(ends[3], AlreadyDoneError)
    assert happened(sessions) == {jobs[0].id: 1, jobs[1].id: 1}


def test_if_the_first_of_two_with_one_key_fails_the_second_does_it(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 3)
    together(sessions.store, jobs, [fails, writes, writes], natural=["a", "b", "a"])
    assert happened(sessions) == {jobs[1].id: 1, jobs[2].id: 1}


def test_companies_that_wait_for_each_others_keys_come_apart(sessions: Sessions) -> None:
    """One holds ``a`` and wants ``b``, the other the other way round: PostgreSQL ends that, and nobody fails."""
    jobs = leased(sessions.store, 8)
    ends = together(sessions.store, jobs, natural=["a", "b", "c", "d", "d", "c", "b", "a"], group=4)
    assert not [end for end in ends if isinstance(end, psycopg.Error)]
    names = sessions.watch.execute("select dedup_key from tenure.dedup order by 1").fetchall()
    assert names == [("a",), ("b",), ("c",), ("d",)]
    assert sum(happened(sessions).values()) == 4


# ------------------------------------------------------------------------------------------- what one leaves for the next


def test_of_a_handlers_session_nothing_reaches_the_next_one(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 3)
    seen: list[object] = []

    async def handler(tx: AsyncConnection, leased: Leased) -> None:
        row = await (
            await tx.execute(
                "select current_setting('search_path'), current_setting('statement_timeout'), to_regclass('mine')::text,"
                " (select count(*) from pg_cursors), current_setting('datestyle'),"
                " current_setting('idle_in_transaction_session_timeout')"
            )
        ).fetchone()
        seen.append(row)
        tx.row_factory = dict_row  # type: ignore[assignment]
        await tx.execute("set search_path to nowhere")
        await tx.execute("set local statement_timeout to '1h'")
        await tx.execute("set datestyle to 'SQL, DMY'")
        await tx.execute("create temporary table mine (x int)")
        await tx.execute("declare c cursor with hold for select 1")

    assert together(sessions.store, jobs, handler) == [None] * 3
    assert seen == [('"$user", public', "0", None, 0, "ISO, MDY", "30s")] * 3


def test_a_handler_sees_what_those_before_it_have_written(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 3)
    seen: list[int] = []

    async def handler(tx: AsyncConnection, leased: Leased) -> None:
        [count] = await (await tx.execute("select count(*) from effects")).fetchone() or (-1,)
        seen.append(count)
        await write(tx, leased)

    together(sessions.store, jobs, handler)
    assert seen == [0, 1, 2]


def test_who_kept_tx_beyond_its_turn_is_kept_out_of_the_next_ones(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 2)
    said: list[str] = []
    late: list[asyncio.Task[None]] = []
    turn = asyncio.Event()

    async def handler(tx: AsyncConnection, leased: Leased) -> None:
        async def meddle() -> None:
            await turn.wait()
            try:
                await tx.execute("insert into effects (note) values ('late')")
            except psycopg.Error as error:
                said.append(str(error))

        if leased is jobs[0]:
            late.append(asyncio.ensure_future(meddle()))
        await write(tx, leased)
        if leased is jobs[1]:
            turn.set()
            await late[0]

    together(sessions.store, jobs, handler)
    assert said == ["the effect is over: tx cannot be used after its handler has ended"]
    assert happened(sessions) == {one.id: 1 for one in jobs}


# ------------------------------------------------------------------------------------------------------- any mix of them

ENDS: dict[str, Handler] = {
    "writes": writes,
    "fails": fails,
    "fails in the database": fails_in_the_database,
    "passes over": passes_over,
    "breaks the commit": defers,
    "loses its savepoint": loses_its_savepoint,
    "begins anew": begins_anew,
}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mix=st.lists(st.tuples(st.sampled_from(sorted(ENDS)), st.booleans()), min_size=1, max_size=8),
    group=st.integers(2, 8),
    size=st.integers(1, 2),
)
def test_there_are_exactly_the_effects_of_the_jobs_that_ended_done(
    sessions: Sessions, mix: list[tuple[str, bool]], group: int, size: int
) -> None:
    """Whatever becomes of each, and whoever loses its lease when the first of them is completed."""
    sessions.watch.execute("delete from effects; delete from tenure.jobs")
    sessions.watch.execute(DEFERRED)
    jobs = leased(sessions.store, len(mix))
    gone = [one.id for one, (_, lost) in zip(jobs, mix, strict=True) if lost]

    def lose() -> None:
        sessions.watch.execute(
            "update tenure.jobs set lease_until = clock_timestamp() - interval '1s' where id = any(%s)", [gone]
        )

    with armed("effect.before_complete", lose):
        ends = together(sessions.store, jobs, [ENDS[how] for how, _ in mix], group=group, size=size)
    done = {one.id for one in jobs if look(sessions.store, one.id).state is State.DONE}
    assert happened(sessions) == Counter({one.id: 1 for one in jobs if one.id in done and _writes(mix, jobs, one)})
    assert done == {one.id for one, end in zip(jobs, ends, strict=True) if not isinstance(end, BaseException)}
    assert sessions.one(
        "select count(*) from tenure.dedup d join unnest(%s::uuid[]) id on id = d.job_id", list(done)
    ) == len(done)


def _writes(mix: Sequence[tuple[str, bool]], jobs: Sequence[Leased], one: Leased) -> bool:
    return mix[jobs.index(one)][0] not in ("loses its savepoint", "begins anew")


def test_a_redelivery_after_a_lost_lease_has_its_effect(sessions: Sessions) -> None:
    jobs = leased(sessions.store, 2)
    with armed("effect.before_complete", lambda: sessions.shift(31)):
        ends = together(sessions.store, jobs)
    assert [type(end) for end in ends] == [LeaseLost] * 2
    sweep(sessions.store)
    again = sessions.store.run(ops.LookUp(QUEUE, [one.id for one in jobs]))
    assert {record.state for record in again.values()} == {State.PENDING}
    assert happened(sessions) == {}
