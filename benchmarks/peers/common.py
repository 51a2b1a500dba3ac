"""What the peers' Python programs share: the payload, the record of handler calls, and the three roles.

Only the standard library: it runs in every peer's environment. A program is started with its role as the argument and
finds the rest in its environment:

    BENCH_DSN        the database of this run
    BENCH_SETTINGS   the configuration, a JSON object
    BENCH_RECORDS    the directory to which workers write whom they handled, and when

A process ends when its standard input does, so nothing is left when the comparison is killed.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

_RECORD = struct.Struct("<dd")  # job number, monotonic seconds; a time of 0 is a record not yet written
_ROOM = 16_000_000  # records a worker may write; the file is sparse, so what is not used costs nothing
_WARM_UP = 20  # calls before single ones are timed: connections, prepared statements


class Producer(Protocol):
    """What enqueues: ``one`` commits a job, ``many`` commits all of a range in one call of the peer's batch interface."""

    async def one(self, job: int) -> None: ...

    async def many(self, jobs: range) -> None: ...


Main = Callable[[Coroutine[Any, Any, None]], None]
"""What runs a coroutine to its end: ``asyncio.run`` or ``uvloop.run``."""


class Recorder:
    """Writes who was handled, and when, to a mapped file: about half a microsecond a job. For one thread."""

    def __init__(self, folder: Path) -> None:
        fd = os.open(folder / str(os.getpid()), os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, _ROOM * _RECORD.size)
        self._map = mmap.mmap(fd, _ROOM * _RECORD.size)
        os.close(fd)
        self._at = 0

    def __call__(self, job: int) -> None:
        # The monotonic clock is one for all processes of the machine.
        _RECORD.pack_into(self._map, self._at, job, time.monotonic())
        self._at += _RECORD.size


def payload(job: int) -> dict[str, Any]:
    """A job's arguments: about 200 bytes of JSON."""
    return {"n": job, "text": "x" * 180}


def dsn() -> str:
    """Where the queue of this run is."""
    return os.environ["BENCH_DSN"]


def settings() -> dict[str, Any]:
    """The configuration that is measured; empty is the peer's default."""
    found: dict[str, Any] = json.loads(os.environ.get("BENCH_SETTINGS", "{}"))
    return found


def recorder() -> Recorder:
    """The record of this worker process."""
    return Recorder(Path(os.environ["BENCH_RECORDS"]))


def main(
    *,
    setup: Callable[[], Awaitable[None]],
    producer: Callable[[], AbstractAsyncContextManager[Producer]],
    worker: Callable[[asyncio.Event], Awaitable[None]] | None = None,
    run: Main = asyncio.run,
) -> None:
    """Do what the role in the first argument asks for.

    Args:
        setup: makes the peer's tables.
        producer: opens what enqueues.
        worker: works until the event is set; None where the peer's own command is started instead.
        run: what runs the coroutine.
    """
    role = sys.argv[1]
    if role == "setup":
        run(_awaited(setup()))
    elif role == "producer":
        run(_produce(producer))
    elif role == "worker" and worker is not None:
        end_with_parent()
        run(_work(worker))
    else:
        raise SystemExit(f"no such role: {role}")


def end_with_parent() -> None:
    """Send this process SIGTERM when its standard input ends, and end it for good a little later."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)
    os._exit(1)


async def _awaited(what: Awaitable[None]) -> None:
    await what


async def _work(worker: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await worker(stop)


# ------------------------------------------------------------------------------------------------ a producer's orders


async def _produce(producer: Callable[[], AbstractAsyncContextManager[Producer]]) -> None:
    """Take orders from standard input, one JSON object a line, and answer each with one line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints, prints to the log
    async with producer() as to:
        print("{}", file=answers, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            jobs = range(order["first"], order["first"] + order["count"])
            print(json.dumps(await _ORDERS[order["do"]](to, jobs, order)), file=answers, flush=True)


async def _one_by_one(to: Producer, jobs: range, _: dict[str, Any]) -> dict[str, Any]:
    for job in jobs[:_WARM_UP]:
        await to.one(job)
    timed = jobs[_WARM_UP:]
    started = time.monotonic()
    for job in timed:
        await to.one(job)
    return {"seconds": time.monotonic() - started, "timed": len(timed)}


async def _in_bulk(to: Producer, jobs: range, order: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    for first in range(0, len(jobs), order["chunk"]):
        await to.many(jobs[first : first + order["chunk"]])
    return {"seconds": time.monotonic() - started}


async def _paced(to: Producer, jobs: range, order: dict[str, Any]) -> dict[str, Any]:
    """At an even pace; answers when each call began and returned."""
    calls = []
    begin = time.monotonic()
    for at, job in enumerate(jobs):
        await asyncio.sleep(begin + at / order["rate"] - time.monotonic())
        called = time.monotonic()
        await to.one(job)
        calls.append((called, time.monotonic()))
    return {"calls": calls}


_ORDERS = {"one": _one_by_one, "many": _in_bulk, "paced": _paced}
