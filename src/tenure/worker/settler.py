"""Sends settlements to the store, many in one statement, and sees each through to its answer.

While one flush is under way the next one gathers, and as long as more jobs are held it waits a moment for their
company: a busy worker settles in large batches, and the last job of a lull at once. When
an answer is lost, the same settlement is sent again; what is then gone is looked up by its token, and counts as settled if
it is found. One item that the store refuses never takes the others of its flush along.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg

from tenure.errors import OUTAGE, StoreBusy
from tenure.faultpoints import point
from tenure.store import protocol as ask
from tenure.store.postgres import PostgresStore
from tenure.worker.leases import Held, Leases
from tenure.worker.outcome import Asked

log = logging.getLogger("tenure.worker")

LINGER = 0.005  # seconds a small flush waits for company, where there can be any
SMALL = 500
LARGEST = 1000
_BUSY = 0.5  # seconds until a settlement is sent again whose row somebody held
_PAUSE = (0.1, 2.0)  # seconds between two tries, first and longest

Item = tuple[Held, Any]
OnSettled = Callable[[type[ask.Op[Any]], list[tuple[Held, str]]], None]


class Settler:
    """Buffers settlements and flushes them.

    Args:
        store: where they go.
        leases: what is settled leaves it.
        counts: ``settled``, ``cancelled``, ``stale`` (lost), ``unknown``.
        on_settled: called with the answers to each flush.
    """

    def __init__(self, store: PostgresStore, leases: Leases, counts: Counter[str], on_settled: OnSettled) -> None:
        self._store = store
        self._leases = leases
        self._counts = counts
        self._on_settled = on_settled
        self._pending: dict[tuple[str, type[ask.Op[Any]]], list[Item]] = {}
        self._size = 0
        self._later = 0  # settlements that come again in a moment
        self._resent: set[Held] = set()  # an answer of theirs was lost, whatever else happens before the next one comes
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, held: Held, asked: Asked) -> None:
        """Settle a job; from here on the settlement's answer decides."""
        op, item = asked
        held.settling = True
        self._pending.setdefault((held.job.queue, op), []).append((held, item))
        self._size += 1
        self._filled.set()
        self._empty.clear()

    def put_all(self, op: type[ask.Op[Any]], items: list[Item]) -> None:
        """Settle many jobs in one way."""
        queue, pending = "", list[Item]()
        for item in items:
            held = item[0]
            held.settling = True
            if held.job.queue != queue:
                queue = held.job.queue
                pending = self._pending.setdefault((queue, op), [])
            pending.append(item)
        self._size += len(items)
        self._filled.set()
        self._empty.clear()

    async def run(self) -> None:
        """Flush until cancelled."""
        while True:
            await self._filled.wait()
            await self._company()
            self._filled.clear()
            pending, self._pending, self._size = self._pending, {}, 0
            for (queue, op), items in pending.items():
                for start in range(0, len(items), LARGEST):
                    await self._flush(queue, op, items[start : start + LARGEST])
            if not self._pending and not self._later:
                self._empty.set()

    async def _company(self) -> None:
        if self._size < SMALL and self._size < len(self._leases):
            await asyncio.sleep(LINGER)

    async def drained(self) -> None:
        """Wait until everything that was put has its answer."""
        await self._empty.wait()

    async def _flush(self, queue: str, op: type[ask.Op[Any]], items: list[Item]) -> None:
        _passing(op)
        try:
            answers = await self._sent(queue, op, items)
        except StoreBusy as error:
            await self._apart(queue, op, items, error)
            return
        except (psycopg.Error, ValueError) as error:
            if len(items) > 1:
                for item in items:
                    await self._flush(queue, op, [item])
                return
            answers = await self._instead(queue, op, items[0], error)
        point("settle.after")
        lost = _superseded(items) if len(answers) < len(items) else ()
        self._answered(
            op, [(held, "lost" if held in lost else answers.get(held.job.id, "unknown")) for held, _ in items]
        )

    def _answered(self, op: type[ask.Op[Any]], answers: list[tuple[Held, str]]) -> None:
        for answer, times in Counter([answer for _, answer in answers]).items():
            self._counts["stale" if answer == "lost" else answer] += times
        settled = [held for held, _ in answers]
        self._leases.drop(*settled)
        self._resent.difference_update(settled)
        self._on_settled(op, answers)

    async def _sent(self, queue: str, op: type[ask.Op[Any]], items: list[Item]) -> dict[Any, str]:
        """The answers; the batch is sent until it gets through or no lease of it can be alive."""
        pause = _PAUSE[0]
        while True:
            try:
                answers = await self._store.arun(op(queue, [item for _, item in items]))  # type: ignore[call-arg]
                resent = any(held in self._resent for held, _ in items)
                return await self._recognised(queue, items, answers) if resent else answers
            except StoreBusy:
                raise
            except OUTAGE as error:
                self._resent.update(held for held, _ in items)
                if all(time.monotonic() > held.deadline for held, _ in items):
                    log.error(
                        "%d settlements did not get through before their leases ended: %s", len(items), error.what
                    )
                    return {}
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PAUSE[1])

    async def _apart(self, queue: str, op: type[ask.Op[Any]], items: list[Item], error: StoreBusy) -> None:
        """A flush that was given up, for a row that somebody holds or for its size: by halves, so that what holds one
        settlement up is not in the way of the others; a single one comes again a little later."""
        if len(items) > 1:
            middle = len(items) // 2
            await self._flush(queue, op, items[:middle])
            await self._flush(queue, op, items[middle:])
            return
        held, item = items[0]
        log.warning("settlement of job %s has to wait: %s", held.job.id, error.what)
        if time.monotonic() > held.deadline:
            self._answered(op, [(held, "unknown")])
            return
        self._later += 1
        asyncio.get_running_loop().call_later(_BUSY, self._again, held, (op, item))

    def _again(self, held: Held, asked: Asked) -> None:
        self._later -= 1
        self.put(held, asked)

    async def _recognised(self, queue: str, items: list[Item], answers: dict[Any, str]) -> dict[Any, str]:
        """After a repeat: a lease that is gone was settled by the first try, or nobody can say."""
        lost = [held for held, _ in items if held in self._resent and answers[held.job.id] == "lost"]
        gone = [ask.Unrun(held.job.id, held.token) for held in lost]
        settled = await self._store.arun(ask.Settled(queue, gone))
        return answers | {one.id: "settled" if one.id in settled else "unknown" for one in gone}

    async def _instead(self, queue: str, op: type[ask.Op[Any]], item: Item, error: Exception) -> dict[Any, str]:
        """A settlement the store cannot take as it is: the same without what the handler left behind."""
        held, asked = item
        log.error("settlement of job %s was refused (%s); sent without its texts", held.job.id, type(error).__name__)
        bare = '{"class": "unknown", "type": "Unstorable", "message": "the failure could not be stored"}'
        replaced = {"result": None} if "result" in asked._fields else {"failure": bare}
        try:
            return await self._sent(queue, op, [(held, asked._replace(**replaced))])
        except (psycopg.Error, ValueError):
            log.exception("settlement of job %s was refused again; its lease will end by itself", held.job.id)
            return {}


def _superseded(items: list[Item]) -> set[Held]:
    """Of two leases of one job in a flush, the older: answers are by job, and are the newer one's."""
    newest = {held.job.id: held for held, _ in sorted(items, key=lambda item: item[0].claimed)}
    return {held for held, _ in items}.difference(newest.values())


def _passing(op: type[ask.Op[Any]]) -> None:
    point("settle.before")
    if op is ask.Retry:
        point("retry.before")
    elif op is ask.Bury:
        point("bury.before")
