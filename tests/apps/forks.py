"""Handlers in child processes that start processes of their own, and leave them behind."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import time
import warnings
from collections.abc import Callable
from contextlib import suppress

from tenure import Backoff, Job, Tenure
from tests.apps.ledger import note

app = Tenure()

LEASE = "5m"
QUICK = Backoff("20ms", "40ms")


def forked(job: Job) -> None:
    """A copy of the child, in its process group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if os.fork() == 0:
            stay(job)
            os._exit(0)


def multiprocessed(job: Job) -> None:
    """The same, as the standard library starts it."""
    multiprocessing.get_context("fork").Process(target=stay, args=(job,)).start()


def escaped(job: Job) -> None:
    """In a session of its own, with every socket of the child in its hands."""
    sockets = [number for number in range(3, 256) if is_socket(number)]
    process = subprocess.Popen(["sleep", "600"], pass_fds=sockets, start_new_session=True)
    assert sockets
    assert process.poll() is None
    note("left behind", job)


WAYS: dict[str, Callable[[Job], None]] = {"fork": forked, "multiprocessing": multiprocessed, "escape": escaped}


def is_socket(number: int) -> bool:
    """Whether a descriptor is open and a socket."""
    with suppress(OSError), socket.socket(fileno=os.dup(number)):
        return True
    return False


def stay(job: Job, begun: Callable[[], None] | None = None) -> None:
    """Outlive the child."""
    note("left behind", job)
    if begun is not None:
        begun()
    time.sleep(600)


@app.job(lease=LEASE, backoff=QUICK, cpu=True)
def hangs(job: Job, way: str) -> None:
    """Leaves a process behind and does not come to an end, the first time."""
    note("started", job)
    if job.claims == 1:
        WAYS[way](job)
        time.sleep(600)


@app.job(lease=LEASE, backoff=QUICK, cpu=True, timeout="2s")
def is_late(job: Job, way: str) -> None:
    """The same, with a timeout."""
    hangs.handler(job, way)


@app.job(lease=LEASE, cpu=True)
def ends_its_own(job: Job) -> int | None:
    """Starts a process and ends it, the way a pool does."""
    fork = multiprocessing.get_context("fork")
    begun = fork.Event()
    process = fork.Process(target=stay, args=(job, begun.set))
    process.start()
    begun.wait(30)
    process.terminate()
    process.join(30)
    return process.exitcode
