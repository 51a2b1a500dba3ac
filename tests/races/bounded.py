"""A producer in a process of its own, for bounds that many ask for at once.

    python -m tests.races.bounded DSN JOBS

It says that it is ready, waits for a line, offers so many jobs one by one, and prints how many were accepted.
"""

from __future__ import annotations

import subprocess
import sys

from tenure.store.postgres import PostgresStore
from tests.store.steps import new, offer


def started(dsn: str, jobs: int) -> subprocess.Popen[str]:
    """The process, ready to begin."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.races.bounded", dsn, str(jobs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if process.stdout is None or process.stdout.readline() != "ready\n":
        raise AssertionError("the producer did not come")
    return process


def main(dsn: str, jobs: int) -> None:
    store = PostgresStore(dsn)
    offer(store, new(), queue="warm")
    print("ready", flush=True)
    sys.stdin.readline()
    print(sum(offer(store, new())[0].answer == "new" for _ in range(jobs)))
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
