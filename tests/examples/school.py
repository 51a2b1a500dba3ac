"""A bench with the catalogue on it: its tables filled, a directory for the exports, and the example's settings."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString

import httpx
import psycopg
import pytest
import uvicorn
from examples.catalog_export import jobs, web
from examples.catalog_export.catalog import load
from examples.catalog_export.jobs import app, deliver, export_course

from tenure import Backoff, Record, State, Ticket
from tests.worker.here import QUICK, burst
from tests.worker.processes import ROOT, Bench

APP = "examples.catalog_export.jobs:app"
DYING = "tests.examples.dying:app"
EXAMPLE = ROOT / "examples/catalog_export"
LEASE = "2s"

FOR_EXPORTS = [
    "claim.after_commit",
    "handler.running",
    "effect.before_dedup",
    "effect.after_dedup",
    "file.before_name",
    "file.after_name",
    "effect.before_complete",
    "effect.before_commit",
    "effect.after_commit",
]
FOR_DELIVERIES = [
    "claim.after_commit",
    "handler.running",
    "post.before",
    "post.after",
    "settle.before",
    "settle.after",
]


class School(Bench):
    """A bench with the catalogue.

    Args:
        dsn: a database with the schema.
        directory: where files, logs and gates go.
        receiver: where deliveries go.
        monkeypatch: sets what the example reads from the environment, and the same for workers in this process.
    """

    def __init__(self, dsn: str, directory: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(dsn, directory)
        self.receiver = receiver
        self.exports = directory / "exports"
        self.exports.mkdir()
        self._monkeypatch = monkeypatch
        self.use(app)
        app.migrate()
        for name, value in {
            "TENURE_DSN": dsn,
            "CATALOG_EXPORTS": str(self.exports),
            "CATALOG_RECEIVER": receiver.url,
            "CATALOG_LEASE": LEASE,
            "CATALOG_BACKOFF": "20ms",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(jobs, "EXPORTS", self.exports)
        monkeypatch.setattr(jobs, "RECEIVER", receiver.url)
        self.retry_after(QUICK)
        with psycopg.connect(dsn) as conn:
            load(conn)

    def retry_after(self, backoff: Backoff) -> None:
        """How long workers in this process wait after a failure."""
        for kind in (export_course, deliver):
            self._monkeypatch.setattr(kind, "policy", replace(kind.policy, backoff=backoff))

    def rows(self, query: LiteralString, *parameters: object) -> list[tuple[Any, ...]]:
        """What the database answers."""
        with psycopg.connect(self.dsn) as conn:
            return conn.execute(query, parameters).fetchall()

    def courses(self) -> list[str]:
        """The codes of all courses."""
        return [code for (code,) in self.ask("select code from courses order by code")]

    def export(self, course: str = "chess") -> Ticket:
        """Ask for an export without HTTP."""
        return export_course.enqueue_sync(course=course, key=f"export of {course}")

    def exported(self, course: str = "chess") -> Ticket:
        """Ask for an export, and let a worker in this process do it, and not deliver it."""
        ticket = self.export(course)
        burst(app, queues=("exports",))
        return ticket

    def known(self, ticket: Ticket) -> Record:
        """What the queue says of an export."""
        record = self.record(ticket.id)
        assert record is not None
        return record

    def delivery(self, ticket: Ticket) -> Record:
        """What the queue says of the delivery of an export that is done."""
        done = self.known(ticket)
        assert done.state is State.DONE, done
        [(delivery,)] = self.rows("select delivery from exports where job_id = %s", ticket.id)
        record = self.record(delivery)
        assert record is not None
        return record

    def key(self, ticket: Ticket) -> str:
        """The Idempotency-Key of an export's delivery."""
        return f"deliveries/deliver/{ticket.id}"

    @contextmanager
    def site(self) -> Iterator[httpx.Client]:
        """The HTTP of this school, served by a thread of this process."""
        server = uvicorn.Server(uvicorn.Config(web.site, ws="none", log_level="warning"))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=server.run, args=([listener],), name="site")
            thread.start()
            try:
                with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60) as client:
                    yield client
            finally:
                server.should_exit = True
                thread.join()

    def catalogue(self) -> list[Any]:
        """Courses and lessons, each row with the transaction that wrote it and with its place."""
        return [
            self.ask("select xmin::text, xmax::text, ctid::text, * from courses order by code"),
            self.ask("select xmin::text, xmax::text, ctid::text, * from lessons order by course, position"),
        ]

    def recomputed(self, course: str) -> bytes:
        """The file of a course, made from the tables in another way."""
        [(code, title, subject)] = self.rows("select code, title, subject from courses where code = %s", course)
        lessons = self.rows(
            "select position, title, minutes, summary from lessons where course = %s order by position", course
        )
        told = {
            "code": code,
            "title": title,
            "subject": subject,
            "lessons": [dict(zip(("position", "title", "minutes", "summary"), row, strict=True)) for row in lessons],
            "minutes": sum(row[2] for row in lessons),
        }
        return json.dumps(told, ensure_ascii=False, indent=2).encode() + b"\n"

    def require_right(self, tickets: dict[str, Ticket]) -> None:
        """See that these exports are there: one row each, its file, and nothing else in the directory."""
        rows = self.ask("select job_id, course, file, sha256, lessons, minutes from exports")
        assert sorted((job, course) for job, course, *_ in rows) == sorted((t.id, c) for c, t in tickets.items())
        for _, course, file, sha256, lessons, minutes in rows:
            content = (self.exports / file).read_bytes()
            assert content == self.recomputed(course)
            assert hashlib.sha256(content).hexdigest() == sha256
            assert (lessons, minutes) == (len(json.loads(content)["lessons"]), json.loads(content)["minutes"])
        assert {path.name for path in self.exports.iterdir()} == {row[2] for row in rows}


class Receiver:
    """The outside receiver, running."""

    def __init__(self, base: str) -> None:
        self.url = f"{base}/deliveries"
        self._base = base

    def will(self, *moods: str) -> None:
        """What the coming calls meet."""
        httpx.put(f"{self._base}/moods", json=moods).raise_for_status()

    def seen(self) -> dict[str, dict[str, Any]]:
        """By key: calls, works, and the digest of what was delivered."""
        return {one.pop("key"): one for one in httpx.get(self.url).json()}

    def counted(self, key: str) -> tuple[int, int]:
        """Calls and works of a key."""
        one = self.seen().get(key, {"calls": 0, "works": 0})
        return one["calls"], one["works"]
