"""A child process of a worker: imports the same ``module:app``, runs its start hooks, then one job after another.

It goes when its parent does: at the end of the socket, and, where a handler keeps it from looking at the socket, by the
kernel's signal (Linux) or when it sees that it has another parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any
from uuid import UUID

from tenure.app import Tenure
from tenure.effects import Effects
from tenure.errors import TenureError
from tenure.inert import safe
from tenure.loading import load
from tenure.worker import wire
from tenure.worker.attempt import Attempts
from tenure.worker.hooks import run_hooks
from tenure.worker.logs import begin_log
from tenure.worker.wishes import wishes

_PR_SET_PDEATHSIG = 1
_LOOK = 0.5  # seconds between two looks at who our parent is


def main(target: str, descriptor: int) -> int:
    """Serve jobs from a socket until it closes."""
    parent = os.getppid()
    _die_with(parent)
    for number in wishes():
        signal.signal(number, _leave_to_the_worker)
    begin_log("[child]")
    with socket.socket(fileno=descriptor) as ours:
        _keep_from_forks(ours)
        try:
            asyncio.run(_serve(load(target), ours))
        except TenureError as error:  # of what it needs to begin; a handler's own ends its attempt
            sys.stderr.write(f"{safe(error)}\n")
            return 1
    return 0


async def _serve(app: Tenure, ours: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=ours, limit=wire.LONGEST_LINE)
    hello = await _received(reader)
    if hello is None:
        return
    app.point_at(hello["dsn"], hello["schema"])
    with ThreadPoolExecutor(1, "tenure-handler") as threads:
        effects = Effects(app.new_store(size=1), threads, 1, prepare=app.pooler is None)
        attempts = Attempts(app, effects, threads)
        await run_hooks(app.start_hooks)
        writer.write(wire.line("ready"))
        while received := await _received(reader):
            await _one(app, attempts, received, writer)
        await run_hooks(app.stop_hooks)
    effects.close()


async def _one(app: Tenure, attempts: Attempts, received: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    job = wire.job_in(received["job"])
    kind = app.find(job.kind)
    if kind is None:
        raise LookupError(f"this child does not know the kind {job.kind}")

    def settling(value: bool) -> None:
        writer.write(wire.line("settling", value=value))

    outcome = await attempts.run(kind, job, UUID(received["token"]), settling)
    writer.write(wire.line("outcome", outcome=wire.outcome_out(outcome)))
    with contextlib.suppress(ConnectionError):  # nobody is there to hear it: the next look at the socket says so too
        await writer.drain()


async def _received(reader: asyncio.StreamReader) -> wire.Message | None:
    """The next message; None when the worker has hung up, or is gone."""
    try:
        return wire.message(await reader.readline())
    except ConnectionError:
        return None


def _leave_to_the_worker(_number: int, _frame: FrameType | None) -> None:
    """Ctrl-C, SIGHUP and a service manager's SIGTERM may reach every process; the worker decides what becomes of us."""


def _keep_from_forks(ours: socket.socket) -> None:
    """What a handler starts is no child of a worker: it does not hold the socket, and signals end it."""
    ours.set_inheritable(False)

    def forked() -> None:
        os.close(ours.detach())
        for number in wishes():
            if signal.getsignal(number) is _leave_to_the_worker:
                signal.signal(number, signal.SIG_DFL)

    os.register_at_fork(after_in_child=forked)


def die_with_parent() -> None:
    """Get SIGKILL when the parent ends, also while stopped; on Linux alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _die_with(parent: int) -> None:
    die_with_parent()
    threading.Thread(target=_watch, args=(parent,), name="tenure-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
