"""A worker is killed at each moment of an effect, for each place an effect can be in; what comes of it is a table.

The run writes the table into ``docs/explanation/crashes.md``, and fails where that changes the page.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from tenure import State, Ticket
from tenure.kind import Kind
from tests.apps import matrix
from tests.worker.processes import ROOT, Bench

APP = "tests.apps.matrix:app"
PAGE = ROOT / "docs/explanation/crashes.md"
BEGIN, END = "<!-- the table is written by tests/worker/test_crash_matrix.py -->", "<!-- end of the table -->"


class Moment(NamedTuple):
    """One cell: what is killed where.

    Args:
        words: as the table says it.
        fault: the fault point, or the stage of the handler itself after a colon.
    """

    place: str
    words: str
    kind: Kind
    fault: str


MOMENTS = [
    *(
        Moment("same database", words, matrix.same_database, fault)
        for words, fault in [
            ("before the dedup row", "effect.before_dedup"),
            ("between dedup row and effect", "effect.after_dedup"),
            ("between effect and completion", "effect.before_complete"),
            ("at the commit", "effect.before_commit"),
            ("after the commit, before its answer", "effect.after_commit"),
        ]
    ),
    *(
        Moment("same database, in a group", words, matrix.grouped, fault)
        for words, fault in [
            ("between two effects", "effect.between"),
            ("between effects and completions", "effect.before_complete"),
            ("at the commit", "effect.before_commit"),
            ("after the commit, before its answer", "effect.after_commit"),
        ]
    ),
    *(
        Moment("another database", words, matrix.other_database, fault)
        for words, fault in [
            ("before the dedup row", "handler.running"),
            ("between dedup row and effect", "once.after_insert"),
            ("at the commit there", "once.before_result"),
            ("between effect and completion", "settle.before"),
            ("after the completion, before its answer", "settle.after"),
        ]
    ),
    *(
        Moment("no transaction", words, matrix.no_transaction, fault)
        for words, fault in [
            ("before the reservation", "handler.running"),
            ("between reservation and call", ":reserved"),
            ("between call and confirmation", "effect.before_dedup"),
            ("at the commit of the confirmation", "effect.before_commit"),
            ("after that commit, before its answer", "effect.after_commit"),
        ]
    ),
]


class Service:
    """A service on loopback that does its work once for each idempotency key, and counts."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.works: Counter[str] = Counter()
        self._receipts: dict[str, str] = {}
        lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                key = self.headers["Idempotency-Key"]
                with lock:
                    service.calls[key] += 1
                    if key not in service._receipts:
                        service.works[key] += 1
                        service._receipts[key] = f"receipt {len(service._receipts)}"
                    body = service._receipts[key].encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/work"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


def test_each_effect_happens_once_wherever_the_worker_is_killed(
    bench: Bench, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATRIX_URL", service.url)
    bench.use(matrix.app)
    bench.ask(matrix.TABLES)
    with sqlite3.connect(bench.gate("other.db").path) as other:
        other.execute(matrix.OTHER_TABLE)

    tickets = dict(zip(MOMENTS, _killed(bench, monkeypatch), strict=True))
    queues = ",".join(f"q{n}" for n in range(len(MOMENTS)))
    survivor = bench.start(APP, queues=queues, burst=True, children=2)
    assert survivor.ended() == 0

    rows = Counter(key for [key] in bench.ask("select key from written"))
    rows.update(key for [key] in other.execute("select key from written"))
    other.close()
    outcomes = [_outcome(bench, service, rows, moment, ticket) for moment, ticket in tickets.items()]
    assert {outcome[-2:] for outcome in outcomes} == {("once", "done")}
    assert _written(outcomes) == [], "the page was out of date; it is written anew"


def _killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[Ticket]:
    """A job for each moment in a queue of its own, and a worker that was killed at that moment while it ran it."""
    tickets = [moment.kind.enqueue_sync(queue=f"q{n}", key="key") for n, moment in enumerate(MOMENTS)]
    for n, moment in enumerate(MOMENTS):
        if moment.kind is matrix.grouped:
            moment.kind.enqueue_sync(queue=f"q{n}", key="companion")
    for first in range(0, len(MOMENTS), 5):
        victims = {}
        for n, moment in list(enumerate(MOMENTS))[first : first + 5]:
            point, _, stage = moment.fault.partition(":")
            monkeypatch.setenv("MATRIX_DIE", stage)
            victims[moment] = bench.start(APP, queues=f"q{n}", faults=f"{point}=kill" if point else "")
        for moment, victim in victims.items():
            assert victim.ended() == -9, moment
    return tickets


def _outcome(
    bench: Bench, service: Service, rows: Counter[str], moment: Moment, ticket: Ticket
) -> tuple[str, str, str, str, str, str]:
    record = bench.await_state(ticket.id, State.DONE)
    key = f"{ticket.queue}/{moment.kind.name}/key"
    outside = moment.kind is matrix.no_transaction
    effects = (service.works if outside else rows)[key]
    calls = {1: "once", 2: "twice"}[service.calls[key]] if outside else "-"
    deliveries = {1: "once", 2: "twice"}[record.claims]
    return moment.place, moment.words, deliveries, calls, {1: "once"}.get(effects, f"{effects} times"), record.state


def _written(outcomes: list[tuple[str, str, str, str, str, str]]) -> list[str]:
    """Write the table into the page; answers the lines that were not there before."""
    lines = [
        "| effect in | killed | delivered | service called | effect | job |",
        "| --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(outcome)} |" for outcome in outcomes),
    ]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    new = "\n".join(["", "", *lines, "", ""])
    if new != old:
        PAGE.write_text(f"{before}{BEGIN}{new}{END}{after}")
    return [line for line in lines if line not in old.splitlines()]


def test_no_moment_is_left_out() -> None:
    assert Counter(moment.place for moment in MOMENTS) == {
        "same database": 5,
        "same database, in a group": 4,
        "another database": 5,
        "no transaction": 5,
    }
    assert len({(moment.place, moment.fault) for moment in MOMENTS}) == len(MOMENTS)
