"""Starts workers: in this process, or several under a supervisor; signals, exit codes, logging."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys

from tenure.errors import ConfigError
from tenure.loading import load
from tenure.worker.logs import begin_log
from tenure.worker.options import Exit, Options
from tenure.worker.supervisor import supervise
from tenure.worker.wishes import wishes
from tenure.worker.worker import Worker

log = logging.getLogger("tenure.worker")


def main(target: str, options: Options) -> int:
    """Run workers for ``module:app``; answers the exit code (see ``Exit``).

    Raises:
        ConfigError: the app cannot be loaded, or an option cannot work.
        TenureError: the database cannot be used.
    """
    _check(options)
    if options.processes > 1 or options.reload:
        return supervise(target, options)
    begin_log()
    return run_here(target, options)


def run_here(target: str, options: Options) -> Exit:
    """One worker in this process, until a signal or the end of its burst."""
    app = load(target)
    app.point_at(options.dsn, options.schema)
    app.on_start(_freeze)
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            return _to_its_end(runner.get_loop(), Worker(app, target, options))
    finally:
        app.close()


def _freeze() -> None:
    """What is there before the first job is there to stay: the collector need not look at it after every few thousand."""
    gc.collect()
    gc.freeze()


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where that is installed; else Python's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _to_its_end(loop: asyncio.AbstractEventLoop, worker: Worker) -> Exit:
    """Run a worker; a handler's task of its own that raises what stops a loop does not stop ours."""
    task = loop.create_task(_run(worker))
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as error:
            if task.done():
                raise
            log.error("a task of a handler raised %s; the worker goes on", type(error).__name__)


async def _run(worker: Worker) -> Exit:
    loop = asyncio.get_running_loop()
    heard = wishes()
    for number in heard:
        loop.add_signal_handler(number, worker.stop)
    code = await worker.run()
    for number in heard:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)  # it is ending; a late wish must not change how
    if code in (Exit.LEFT_RUNNING, Exit.STUCK):
        # What does not end, be it a thread or a coroutine, would keep the interpreter alive.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _check(options: Options) -> None:
    for name in ("concurrency", "processes"):
        if getattr(options, name) < 1:
            raise ConfigError(f"{name}={getattr(options, name)}.", hint="Use 1 or more.")
    if options.grace < 0:
        raise ConfigError(f"grace={options.grace}.", hint="Use 0 or more seconds.")
    if options.children is not None and options.children < 1:
        raise ConfigError(f"children={options.children}.", hint="Use 1 or more: suspects run in children.")
    if options.prefetch is not None and options.prefetch < 0:
        raise ConfigError(f"prefetch={options.prefetch}.", hint="Use 0 or more.")
