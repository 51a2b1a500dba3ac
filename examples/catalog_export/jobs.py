"""The two kinds of jobs: export a course to a file, deliver the file to somebody else."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
from psycopg import AsyncConnection

from tenure import Backoff, Job, Permanent, Tenure

from .catalog import read, rendered
from .files import digest, keep

EXPORTS = Path(os.environ.get("CATALOG_EXPORTS", "exports"))
RECEIVER = os.environ.get("CATALOG_RECEIVER", "http://127.0.0.1:8100/deliveries")
PATIENCE = float(os.environ.get("CATALOG_PATIENCE", "10"))  # seconds to wait for the receiver's answer
LEASE = os.environ.get("CATALOG_LEASE", "30s")
BACKOFF = Backoff(os.environ.get("CATALOG_BACKOFF", "5s"), "1h")

app = Tenure()


@app.job(queue="exports", effect=True, max_attempts=3, lease=LEASE, backoff=BACKOFF)
async def export_course(tx: AsyncConnection, job: Job, course: str) -> dict[str, Any]:
    """Write a course to a file. Its result row, its delivery and the end of the job are one commit."""
    found = await read(tx, course)
    if found is None:
        raise Permanent(f"there is no course {course!r}")
    content = rendered(found)
    file = await asyncio.to_thread(keep, EXPORTS, str(job.id), content)
    delivery = await deliver.enqueue(file=file, sha256=digest(content), key=str(job.id), conn=tx)
    result = {
        "course": course,
        "file": file,
        "sha256": digest(content),
        "lessons": len(found["lessons"]),
        "minutes": sum(lesson["minutes"] for lesson in found["lessons"]),
        "delivery": str(delivery.id),
    }
    await tx.execute(
        "insert into exports (job_id, course, file, sha256, lessons, minutes, delivery)"
        " values (%(job)s, %(course)s, %(file)s, %(sha256)s, %(lessons)s, %(minutes)s, %(delivery)s)",
        {"job": job.id, **result},
    )
    return result


# More attempts than an export has: somebody else's service may be away for longer than our own disk.
@app.job(queue="deliveries", max_attempts=10, lease=LEASE, backoff=BACKOFF)
async def deliver(job: Job, file: str, sha256: str) -> dict[str, Any]:
    """Send a file to the receiver. It may be sent twice; the key lets the receiver tell."""
    content = await asyncio.to_thread((EXPORTS / file).read_bytes)
    if digest(content) != sha256:
        raise Permanent(f"{file} is not what was exported")
    headers = {"Idempotency-Key": job.idempotency_key, "Content-Type": "application/json"}
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        answer = await client.post(RECEIVER, content=content, headers=headers)
    answer.raise_for_status()  # 429 is throttled, other 4xx are permanent, 5xx and no answer are transient
    return {"receipt": answer.headers.get("location")}
