"""An event loop in a thread of its own: where jobs run that a synchronous call has enqueued."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """A thread that runs coroutines for others, started when it is needed."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, in the caller's context, and wait for it."""
        if threading.current_thread() is self._thread:  # it would wait for itself
            other = LoopThread()
            try:
                return other.run(work)
            finally:
                other.close()
        return asyncio.run_coroutine_threadsafe(work, self._started()).result()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                ready = threading.Event()
                self._thread = threading.Thread(target=self._serve, args=(ready,), name="tenure-inline", daemon=True)
                self._thread.start()
                ready.wait()
            loop = self._loop
        if loop is None:
            raise RuntimeError("the thread of the inline mode could not start a loop")
        return loop

    def _serve(self, ready: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            ready.set()
            self._loop.run_forever()

    def close(self) -> None:
        """End the thread; tasks that handlers have left behind are cancelled."""
        with self._starting:
            thread, loop = self._thread, self._loop
            self._thread = self._loop = None
        if thread is not None and loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join()
