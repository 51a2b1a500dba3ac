"""Child processes for work that must not share a process: ``cpu=True`` kinds, and suspects.

A child runs one job at a time and is kept warm for the next. It gets the job and its token; the lease stays with the
worker, which beats for it and settles everything but an effect's own commit. A child that dies takes one job along, and its
death is known at once: the process itself is watched, because whatever a handler has forked may keep the socket open. A
child leads a process group of its own, and what is left of the group goes when the child does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

from tenure.errors import ConfigError
from tenure.worker import wire
from tenure.worker.leases import Held
from tenure.worker.outcome import Outcome, died

log = logging.getLogger("tenure.worker")

_START = 60.0  # seconds a child may take to import the app and run its start hooks
_END = 10.0  # seconds it may take to run its stop hooks
_PAUSE = 1.0  # seconds until another one is tried after one that did not start
_LAST_WORDS = 0.1  # seconds in which what a dead child has said is still heard


class Children:
    """Up to ``slots`` child processes.

    Args:
        target: the ``module:app`` they import.
        dsn: where the queue is.
        schema: its schema.
    """

    def __init__(self, target: str, dsn: str, schema: str, slots: int) -> None:
        self.slots = slots
        self._hello = wire.line("hello", dsn=dsn, schema=schema)
        self._target = target
        self._warm: list[_Child] = []
        self._busy: dict[Held, _Child] = {}

    async def run(self, held: Held, settling: Callable[[bool], None], begin: Callable[[], None]) -> Outcome:
        """Run a job in a child; ``died`` when that took the child along, ``unstarted`` when there is no child to be had.

        Args:
            settling: called when the child is about to settle by itself, and when it did not come to that.
            begin: called when a child is there and the job begins.
        """
        try:
            child = self._warm_one() or await self._born()
        except (ConfigError, OSError, RuntimeError) as error:  # not the job's doing; no process or thread to be had
            log.error("job %s is given back: %s", held.job.id, error)
            await asyncio.sleep(_PAUSE)
            return Outcome("unstarted")
        if held.cancel is not None:  # it was told to stop while the child was being born
            self._warm.append(child)
            return Outcome("released")
        self._busy[held] = child
        begin()
        try:
            outcome = await child.run(held, settling)
        finally:
            del self._busy[held]
        if outcome is None:
            return died(f"the child process running it {await child.buried()}")
        self._warm.append(child)
        return outcome

    def kill(self, held: Held) -> None:
        """Kill the child that runs a job."""
        if child := self._busy.get(held):
            child.kill()

    async def close(self) -> None:
        """End the warm children; the busy ones have been dealt with."""
        for child in self._warm:
            child.hang_up()
        await asyncio.gather(*(child.buried() for child in self._warm))
        self._warm.clear()

    def _warm_one(self) -> _Child | None:
        """A child that waits for work; one that died while it waited is no job's doing."""
        while self._warm:
            child = self._warm.pop()
            if child.alive:
                return child
            child.hang_up()
        return None

    async def _born(self) -> _Child:
        child = await _Child.start(self._target, self._hello)
        if not await child.ready():
            raise ConfigError(f"The child process for {self._target} did not start: it {await child.buried()}.")
        return child


class _Child:
    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._code: asyncio.Future[int] = self._loop.create_future()
        threading.Thread(target=self._await_end, name="tenure-child", daemon=True).start()

    @classmethod
    async def start(cls, target: str, hello: bytes) -> _Child:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours, limit=wire.LONGEST_LINE)
            writer.write(hello)
            command = [sys.executable, "-m", "tenure.worker.child", target, str(theirs.fileno())]
            try:
                process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own module; spawning takes a millisecond
                    command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0
                )
                return cls(process, reader, writer)
            except BaseException:
                writer.close()  # a child that is there after all sees it, and goes
                raise

    @property
    def alive(self) -> bool:
        return self._process.returncode is None and not self._reader.at_eof()

    async def ready(self) -> bool:
        try:
            async with asyncio.timeout(_START):
                return await self._heard() is not None
        except TimeoutError:
            self.kill()
            return False

    async def run(self, held: Held, settling: Callable[[bool], None]) -> Outcome | None:
        """The outcome, or None when the child died."""
        self._writer.write(wire.line("run", job=wire.job_out(held.job), token=str(held.token)))
        while message := await self._heard():
            if message["is"] == "outcome":
                return wire.outcome_in(message["outcome"])
            settling(bool(message["value"]))
        return None

    async def _heard(self) -> wire.Message | None:
        try:
            return wire.message(await self._reader.readline())
        except (OSError, ValueError):
            self.kill()  # it says what no child says
            return None

    def kill(self) -> None:
        if self._process.returncode is None:
            self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _await_end(self) -> None:
        """In a thread: wait for the end of the process, however many others hold its socket."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)  # until then its number is nobody else's
            self._kill_group()
            code = self._process.wait()
        else:
            code = self._process.wait()
            self._kill_group()
        with contextlib.suppress(RuntimeError):  # the loop may have ended
            self._loop.call_soon_threadsafe(self._ended, code)

    def _ended(self, code: int) -> None:
        self._code.set_result(code)
        self._loop.call_later(_LAST_WORDS, self._writer.transport.abort)

    def hang_up(self) -> None:
        self._writer.close()

    async def buried(self) -> str:
        """Wait for its end; how it ended, in words."""
        self.hang_up()
        ended, _ = await asyncio.wait({self._code}, timeout=_END)
        if not ended:
            self.kill()
        code = await self._code
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        return f"was killed by {_signal(-code)}" if code < 0 else f"ended with exit code {code}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time one
        return f"signal {number}"
