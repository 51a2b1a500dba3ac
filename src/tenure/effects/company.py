"""Effects that share a transaction: their handlers run one after another, each behind a savepoint, with one commit.

Nobody waits for company. Effects of one kind that wait for a connection when one is free go together, as many as the kind
allows. The handlers run in their own jobs' tasks, which take turns; a task of the company's own sees it to its end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor

import psycopg
from psycopg import pq

from tenure.effects.attempt import Attempt, opened_on, written
from tenure.effects.effect import AloneError, CommitUnknownError, LeasesLostError
from tenure.effects.opened import Opened, undisturbed
from tenure.effects.pool import Pool
from tenure.effects.steps import Done, Transaction
from tenure.errors import LeaseLost
from tenure.faultpoints import point
from tenure.store.explained import severed
from tenure.store.postgres import PostgresStore
from tenure.tx import AnyConnection

Kind = tuple[str, str]
"""Whose effects may go together: a queue and the name of a kind."""


class Member:
    """An effect in company.

    ``turn`` is when its handler may run, ``written`` what became of that (None: nothing), ``ended`` how all ended (None:
    committed).
    """

    def __init__(self, attempt: Attempt) -> None:
        loop = asyncio.get_running_loop()
        self.attempt = attempt
        self.turn: asyncio.Future[Opened] = loop.create_future()
        self.written: asyncio.Future[Done | None] = loop.create_future()
        self.ended: asyncio.Future[BaseException | None] = loop.create_future()


class Companies:
    """Brings effects together.

    Args:
        store: where the jobs' completions go.
        pool: where connections come from.
        threads: where synchronous handlers run.
    """

    def __init__(self, store: PostgresStore, pool: Pool, threads: Executor) -> None:
        self._store = store
        self._pool = pool
        self._threads = threads
        self._waiting: dict[Kind, deque[Member]] = {}
        self._gathering: dict[Kind, asyncio.Task[None]] = {}  # waits for a connection
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, attempt: Attempt) -> str | None:
        """As ``Effects.run``, in whatever company there is.

        Raises:
            AloneError: it is undone for what its companions did or suffered, and is to be run again by itself.
        """
        member = Member(attempt)
        job = attempt.effect.job
        kind = job.queue, job.kind
        self._waiting.setdefault(kind, deque()).append(member)
        self._gather(kind)
        done: Done | None = None
        try:
            done = await written(await member.turn, attempt)
        finally:
            if done is None:
                attempt.settling(False)
            member.written.set_result(done)
        error = await undisturbed(member.ended)
        if error is not None:
            attempt.settling(False)
            raise error
        return done.result

    def _gather(self, kind: Kind) -> None:
        """See that somebody waits for a connection where an effect does."""
        if self._waiting.get(kind) and kind not in self._gathering:
            task = self._gathering[kind] = asyncio.get_running_loop().create_task(self._company(kind))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _company(self, kind: Kind) -> None:
        """Wait for a connection, and take along who waits then."""
        conn: AnyConnection
        try:
            on_loop = self._waiting[kind][0].attempt.effect.form.on_loop
            conn = await (self._pool.for_loop() if on_loop else self._pool.for_thread())
        except BaseException as error:
            for member in self._waiting.pop(kind, ()):
                if not member.turn.done():
                    member.turn.set_exception(error)
            return
        finally:
            del self._gathering[kind]
        try:
            members = self._taken(kind)
            self._gather(kind)
            await self._together(conn, members)
        finally:
            self._pool.give_back(conn)
            if members:  # their turn has not come, and will not with those that went before
                self._waiting.setdefault(kind, deque()).extendleft(reversed(members))
                self._gather(kind)

    def _taken(self, kind: Kind) -> deque[Member]:
        """As many as may go together, and never two with one dedup key: the second must find what the first commits."""
        taken: dict[tuple[str, str, str], Member] = {}
        left: deque[Member] = deque()
        for member in self._waiting.pop(kind):
            effect = member.attempt.effect
            key = effect.dedup.queue, effect.dedup.dedup_key, effect.dedup.step
            if member.turn.done():
                continue  # it was stopped while it waited
            if len(taken) < effect.group and key not in taken:
                taken[key] = member
            else:
                left.append(member)
        if left:
            self._waiting[kind] = left
        return deque(taken.values())

    async def _together(self, conn: AnyConnection, members: deque[Member]) -> None:
        """Give each its turn, then commit; those whose turn did not come are left."""
        transaction = Transaction(self._store, shared=True)
        done: dict[Member, Done] = {}
        opened: Opened | None = None
        error: BaseException | None = None
        try:
            while members:
                member = members.popleft()
                if member.turn.done():
                    continue  # it was stopped while it waited
                opened = opened_on(conn, member.attempt.effect, transaction, self._threads)
                member.turn.set_result(opened)
                await _turn(opened, transaction, member, done)
                if transaction.torn or (done and conn.pgconn.transaction_status == pq.TransactionStatus.IDLE):
                    raise AloneError  # a handler has ended the transaction of all, or what keeps them apart
                point("effect.between")
            if opened is not None and done:
                await opened.commit(list(done.values()))
        except BaseException as raised:
            error = raised
        finally:
            if opened is not None:
                await opened.undo()
            for member in done:
                member.ended.set_result(None if error is None else _verdict(error, member))
            if opened is not None:
                await opened.leave()


async def _turn(opened: Opened, transaction: Transaction, member: Member, done: dict[Member, Done]) -> None:
    """What a handler has written joins what is done; of one that failed nothing is left."""
    result = await member.written
    if result is not None:
        done[member] = result
    elif not transaction.torn:
        try:
            await opened.withdraw()
        except psycopg.OperationalError as error:  # nothing was sent that could have committed: the others run again
            raise AloneError from error
    await opened.let_go()


def _verdict(error: BaseException, member: Member) -> BaseException:
    """What an error of the whole means for one who had done its part."""
    job = member.attempt.effect.job
    if isinstance(error, LeasesLostError) and job.id in error.ids:
        return LeaseLost(f"Job {job.id} is not ours any more.", kept="Its effect was rolled back.")
    if isinstance(error, CommitUnknownError):
        return CommitUnknownError()
    if isinstance(error, psycopg.Error) and severed(error):
        return psycopg.OperationalError("the connection was lost in the transaction that the effect shared")
    return AloneError()
