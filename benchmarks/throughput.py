"""How fast one worker process is on this machine: enqueue in bulk, then the whole life of no-op jobs, archived.

    make bench

The embedded PostgreSQL in a directory of its own, fsync on, default settings. Medians of the rounds; other work on the
machine shows in them. This is a first look; comparisons with a floor and with others need more than one number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tenure import Tenure, embedded
from tenure.worker import Options, Worker

PAYLOAD: dict[str, Any] = {"text": "x" * 180, "n": 1}


async def round_trip(dsn: str, jobs: int) -> tuple[float, float]:
    """Jobs a second: enqueued in bulk, and processed by one worker."""
    async with Tenure(dsn) as app:

        @app.job()
        async def nothing(text: str, n: int) -> None: ...

        requests = [nothing.request(**PAYLOAD) for _ in range(jobs)]
        started = time.perf_counter()
        for first in range(0, jobs, 10_000):
            await nothing.enqueue_many(requests[first : first + 10_000])
        enqueued = time.perf_counter()
        worker = Worker(app, "benchmarks.throughput:app", Options(burst=True))
        await worker.run()
        ended = time.perf_counter()
        if worker.counts["settled"] != jobs:
            raise SystemExit(f"{worker.counts['settled']} of {jobs} jobs were settled")
    return jobs / (enqueued - started), jobs / (ended - enqueued)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o711)
        with embedded.attach(Path(home) / "pg") as engine:
            with Tenure(engine.dsn) as app:
                app.migrate()
            rounds = [asyncio.run(round_trip(engine.dsn, options.jobs)) for _ in range(options.rounds)]
        embedded.stop(Path(home) / "pg", force=True)
    enqueued, processed = (statistics.median(figures) for figures in zip(*rounds, strict=True))
    told = {
        "jobs": options.jobs,
        "rounds": options.rounds,
        "enqueued_per_s": round(enqueued),
        "jobs_per_s": round(processed),
    }
    if options.json:
        print(json.dumps(told))
    else:
        print(
            f"{options.jobs} jobs, median of {options.rounds}: enqueued {enqueued:,.0f}/s, processed {processed:,.0f}/s"
        )


if __name__ == "__main__":
    main()
