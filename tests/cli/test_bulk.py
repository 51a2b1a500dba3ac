"""``tenure enqueue --from``: the good lines are accepted, the bad ones reported by number, and nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tenure.chaos.proxy import Proxy
from tenure.cli import bulk
from tenure.errors import StoreUnavailable
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Accept
from tests.cli.conftest import Cli, tenure


@pytest.fixture(autouse=True)
def kinds(store: PostgresStore) -> None:
    """The kinds are registered."""


def jsonl(lines: Iterable[dict[str, Any] | str]) -> str:
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)


def stored(dsn: str) -> list[tuple[str, str]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute("select kind, payload::text from tenure.jobs order by seq").fetchall()


def test_good_lines_are_accepted_and_bad_ones_reported(cli: Cli, dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text(
        jsonl(
            [
                {"kind": "work", "args": {"n": 1}, "key": "a"},
                "not json",
                {"kind": "mail.send", "args": {"order_id": "x"}},
                "",
                {"kind": "nobody"},
                {"args": {}},
                {"kind": "work", "args": {"n": 1}, "key": "a"},
                {"kind": "work", "args": {"n": 2}, "key": "a"},
                {"kind": "old.mail", "args": {"order_id": 1}},
            ]
        )
    )
    answer = cli("enqueue", "--from", file)
    assert answer.code == 1
    assert answer.out == "2 new, 1 same, 5 refused\n"
    assert re.findall(r"^line (\d+):", answer.err, re.MULTILINE) == ["2", "3", "5", "6", "8"]
    assert "held by job" in answer.err
    assert stored(dsn) == [("work", '{"n": 1}'), ("mail.send", '{"order_id": 1}')]


def test_all_good_is_zero(cli: Cli, dsn: str) -> None:
    text = jsonl([{"args": {"n": n}} for n in range(2500)])
    answer = cli("enqueue", "work", "--from", "-", "--as-json", input=text)
    assert (answer.code, answer.err) == (0, "")
    assert answer.json == {"new": 2500, "same": 0, "refused": 0}
    assert [json.loads(payload)["n"] for _, payload in stored(dsn)] == list(range(2500))
    assert cli("enqueue", "--from", "-", input="").code == 0


def test_what_the_command_line_says_holds_where_a_line_says_nothing(cli: Cli, dsn: str) -> None:
    text = jsonl([{}, {"queue": "z"}, {"kind": "mail.send", "args": {"order_id": 1}}])
    answer = cli("enqueue", "work", "--from", "-", "--queue", "y", "--kind-version", "1", input=text)
    assert answer.code == 0
    with psycopg.connect(dsn) as conn:
        found = conn.execute("select kind, version, queue from tenure.jobs order by seq").fetchall()
    assert sorted(found) == [("mail.send", 1, "y"), ("work", 1, "y"), ("work", 1, "z")]


def test_numbers_are_stored_as_they_were_written(cli: Cli, dsn: str) -> None:
    cli("enqueue", "work", "--from", "-", input='{"args": {"a": 1.10, "b": 0.1000000000000000055511151231257827}}\n')
    assert stored(dsn) == [("work", '{"a": 1.10, "b": 0.1000000000000000055511151231257827}')]


def test_bad_lines_can_be_read_by_programs(cli: Cli) -> None:
    text = jsonl([{"key": "k"}, {"key": "k", "args": {"n": 1}}, "x"])
    answer = cli("enqueue", "work", "--from", "-", "--as-json", input=text)
    told = [json.loads(line) for line in answer.err.splitlines()]
    assert [(line["line"], line["error"]) for line in told] == [(2, "Conflict"), (3, "InvalidPayload")]
    assert told[0]["held"] != told[0]["given"]
    assert answer.json == {"new": 1, "same": 0, "refused": 2}


def test_a_payload_that_is_too_large_is_a_bad_line(cli: Cli) -> None:
    answer = cli("enqueue", "work", "--from", "-", input=jsonl([{"args": {"a": "x" * 300_000}}, {}]))
    assert (answer.code, answer.out) == (1, "1 new, 0 same, 1 refused\n")
    assert "line 1: The payload of work has more stored text than" in answer.err


def test_only_the_first_bad_lines_are_shown(cli: Cli) -> None:
    answer = cli("enqueue", "work", "--from", "-", input=jsonl(["x"] * 50 + [{}]))
    assert (answer.code, answer.out) == (1, "1 new, 0 same, 50 refused\n")
    assert len(re.findall("^line", answer.err, re.MULTILINE)) == bulk.MOST_SHOWN


def test_values_of_bad_lines_are_not_repeated(cli: Cli) -> None:
    answer = cli("enqueue", "--from", "-", input=jsonl([{"kind": "mail.send", "args": {"order_id": "hunter2"}}]))
    assert answer.code == 1
    assert "hunter2" not in answer.out + answer.err


def test_an_answer_that_is_lost_is_found_out(dsn: str) -> None:
    with Proxy(dsn) as proxy:
        cut = proxy.cut_after(lambda sql: b"on conflict (queue, key) do nothing" in sql)
        answer = tenure("enqueue", "work", "--from", "-", dsn=proxy.dsn(), input=jsonl([{"key": "a"}] * 3))
        cut.wait()
    assert (answer.code, answer.out) == (0, "1 new, 2 same, 0 refused\n")


def test_a_database_that_goes_away_leaves_a_known_line(dsn: str) -> None:
    with Proxy(dsn) as proxy:
        cut = proxy.cut_after(lambda sql: b"on conflict (queue, key) do nothing" in sql)
        for nth in range(1, 100):  # nor can it be asked what became of that
            proxy.cut_before(b"begin isolation", nth)
        answer = tenure("enqueue", "work", "--from", "-", dsn=proxy.dsn(), input=jsonl([{"key": "a"}] * 3))
        cut.wait()
    assert answer.code == 5
    assert "some of lines 1 to 3 may be accepted" in answer.err
    assert "Traceback" not in answer.err
    again = tenure("enqueue", "work", "--from", "-", dsn=dsn, input=jsonl([{"key": "a"}] * 3))
    assert (again.code, again.out) == (0, "0 new, 3 same, 0 refused\n")


def test_blocks_are_bounded_by_lines_and_by_bytes(cli: Cli, monkeypatch: pytest.MonkeyPatch, dsn: str) -> None:
    sizes: list[int] = []
    plain = PostgresStore.run

    def run(self: PostgresStore, op: Any, conn: Any = None) -> Any:
        if isinstance(op, Accept):
            sizes.append(len(op.jobs))
        return plain(self, op, conn)

    monkeypatch.setattr(PostgresStore, "run", run)
    monkeypatch.setattr(bulk, "BLOCK", 4)
    monkeypatch.setattr(bulk, "BLOCK_BYTES", 1000)
    large = {"args": {"text": "x" * 600}}
    answer = cli("enqueue", "work", "--from", "-", input=jsonl([{}] * 9 + [large] * 5))
    assert answer.out == "14 new, 0 same, 0 refused\n"
    assert sizes == [4, 4, 3, 2, 1]


def test_when_the_database_cannot_be_reached_any_more_the_last_settled_line_is_told(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = PostgresStore.run
    left = [2]

    def run(self: PostgresStore, op: Any, conn: Any = None) -> Any:
        if isinstance(op, Accept):
            left[0] -= 1
            if left[0] < 0:
                raise StoreUnavailable("The database went away.")
        return plain(self, op, conn)

    monkeypatch.setattr(PostgresStore, "run", run)
    monkeypatch.setattr(bulk, "BLOCK", 2)
    answer = cli("enqueue", "work", "--from", "-", input=jsonl([{}] * 9))
    assert (answer.code, answer.out) == (3, "")
    assert "up to line 4 everything is settled, some of lines 5 to 6 may be accepted" in answer.err
