"""``make example-catalog``: every course is exported and delivered while two workers are killed, and all is checked.

Ends with 0 if everything is there, once, and with 1 if not.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psycopg

from . import check, stage
from .catalog import load
from .jobs import app

UNKNOWN = "underwater-basket-weaving"
MOODS = ["lose", "busy", "down", "hang"]
KILLS = {  # by queue: where its first worker is killed, and what that means
    "exports": ("effect.before_commit=kill@8", "its eighth export was written and not committed"),
    "deliveries": ("settle.before=kill@5", "a file was delivered, and the queue did not know yet"),
}


def main() -> int:
    """Run it; answers the exit code."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, stage.database() as dsn:
        exports = Path(scratch) / "exports"
        exports.mkdir()
        os.environ |= {
            "TENURE_DSN": dsn,
            "CATALOG_EXPORTS": str(exports),
            "CATALOG_LEASE": "3s",
            "CATALOG_BACKOFF": "200ms",
            "CATALOG_PATIENCE": "2",
            "RECEIVER_DB": f"{scratch}/receiver.sqlite",
        }
        app.point_at(dsn)
        with app, psycopg.connect(dsn, autocommit=True) as conn:
            app.migrate()
            print(f"{load(conn)} courses are in the catalogue")
            try:
                held = _played(conn, exports)
            except (TimeoutError, subprocess.TimeoutExpired):
                for log in sorted(Path(scratch).glob("*.log")):
                    print(f"--- {log.name}\n{log.read_text()[-3000:]}")
                raise
    failed = [what for what, holds in held.items() if not holds]
    for what, holds in held.items():
        print(f"{'ok    ' if holds else 'FAILED'} {what}")
    print(f"{'Not everything is right.' if failed else 'Everything is there, once.'} {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _played(conn: psycopg.Connection, exports: Path) -> dict[str, bool]:
    """The play itself; answers what has to hold, and whether it does."""
    before = check.catalogue(conn)
    logs = exports.parent
    with (
        stage.server(logs / "receiver.log", "receiver") as receiver,
        stage.server(logs / "web.log", "web") as web,
        httpx.Client(base_url=web, timeout=30) as client,
    ):
        os.environ["CATALOG_RECEIVER"] = f"{receiver}/deliveries"
        httpx.put(f"{receiver}/moods", json=MOODS).raise_for_status()
        print(f"the receiver's next calls: {', '.join(MOODS)}; then it behaves")
        codes = [code for (code,) in conn.execute("select code from courses order by code")]
        asked = {code: _ask(client, code, code) for code in [*codes, UNKNOWN]}
        again, other = _ask(client, codes[0], codes[0]), _ask(client, codes[0], codes[1])
        print(f"{len(asked)} exports were asked for, one of them twice, and one operation for another course as well")
        killed = [_killed(logs / f"{queue}.log", queue, *kill) for queue, kill in KILLS.items()]
        with stage.worker(logs / "worker.log"):
            print("a third worker does the rest")
            told = stage.until(lambda: _ended(client, asked), "all exports to end")
        again_later = _ask(client, codes[0], codes[0])
        seen = {one["key"]: one for one in httpx.get(f"{receiver}/deliveries").json()}
    lost = told.pop(UNKNOWN)
    sent = {code: seen.get(f"deliveries/deliver/{asked[code].json()['id']}", {}) for code in codes}
    _show(told, sent)
    print(f"{UNKNOWN}: {lost['state']} ({lost['reason']}) after {lost['attempts']} attempt: {lost['error']}\n")
    rows = conn.execute("select course, sha256 from exports order by course").fetchall()
    return {
        "each export was answered with 202": {answer.status_code for answer in asked.values()} == {202},
        "the same request got the same answer": again.content == again_later.content == asked[codes[0]].content,
        "the same operation with another course was a conflict": other.status_code == 409,
        "two workers were killed": killed == [-signal.SIGKILL] * 2,
        "each export is done": all(one["state"] == "done" for one in told.values()),
        "each delivery is done": all(one["delivery"]["state"] == "done" for one in told.values() if one["delivery"]),
        "an unknown course was given up at once": (lost["reason"], lost["attempts"]) == ("permanent", 1),
        "there is one result row for each export": [course for course, _ in rows] == codes,
        "each file is the course it was made of": check.files(conn, exports) == [],
        "what was delivered is what the rows say": {code: one.get("sha256") for code, one in sent.items()}
        == dict(rows),
        "the receiver worked once for each of them": [one["works"] for one in seen.values()] == [1] * len(codes),
        "courses and lessons are as before": check.catalogue(conn) == before,
    }


def _ask(client: httpx.Client, operation: str, course: str) -> httpx.Response:
    return client.post("/exports", json={"operation": f"export of {operation}", "course": course})


def _killed(log: Path, queue: str, faults: str, when: str) -> int:
    """A worker of one queue that runs until it is killed; answers how it ended."""
    with stage.worker(log, "--queues", queue, TENURE_FAULTS=faults) as worker:
        ended = worker.wait(stage.LONGEST)
    print(f"worker {worker.pid} was killed: {when}")
    return ended


def _ended(client: httpx.Client, asked: dict[str, httpx.Response]) -> dict[str, Any] | None:
    """What has become of each export, once all of them have ended, their deliveries included."""
    told = {code: client.get(answer.json()["status"]).json() for code, answer in asked.items()}
    ends = [part["state"] for one in told.values() for part in (one, one.get("delivery")) if part]
    return told if all(end in ("done", "dead") for end in ends) else None


def _show(told: dict[str, Any], sent: dict[str, Any]) -> None:
    print(f"\n{'course':22}{'export':10}{'attempts':10}{'lessons':9}{'delivery':10}{'calls':7}works")
    for code, one in told.items():
        lessons = (one["result"] or {}).get("lessons", "")
        delivery = (one["delivery"] or {}).get("state", "")
        calls, works = sent[code].get("calls", ""), sent[code].get("works", "")
        print(f"{code:22}{one['state']:10}{one['attempts']:<10}{lessons:<9}{delivery:10}{calls:<7}{works}")
    print()


if __name__ == "__main__":
    sys.exit(main())
