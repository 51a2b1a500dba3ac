"""``tenure queue set``, ``drain`` and ``move``, and what a producer on the command line is told."""

from __future__ import annotations

import pytest

from tenure.store.postgres import PostgresStore
from tests.cli.conftest import Cli
from tests.store.steps import accept, claim, complete, dead, figures, take


def test_a_bound_is_set_shown_and_taken_back(cli: Cli, store: PostgresStore) -> None:
    told = cli("queue", "set", "q", "--max-depth", "5", "--when-full", "wait", "--wait-limit", "10s", "--json").json
    assert (told["max_depth"], told["when_full"], told["wait_limit"], told["exact"]) == (5, "wait", 10.0, False)
    cli("queue", "set", "q", "--max-bytes", "100000", "--when-full", "shed", "--exact")
    [row] = [row for row in cli("queue", "list").out.splitlines() if row.startswith("q ")]
    assert "5 jobs and 100,000 bytes, exact" in row
    assert "shed oldest" in row
    told = cli("queue", "set", "q", "--max-depth", "none", "--max-bytes", "none", "--json").json
    assert {told[name] for name in ("max_depth", "max_bytes", "when_full", "wait_limit", "shed")} == {None}
    shown = cli("queue", "set", "q", "--max-depth", "5").out
    assert ["max_depth", "5"] in [line.split() for line in shown.splitlines()]


@pytest.mark.parametrize(
    "options",
    [
        ["--max-depth", "0"],
        ["--max-depth", "many"],
        ["--max-depth", "²"],
        ["--max-bytes", "0"],
        ["--when-full", "shed"],
        ["--exact"],
        ["--max-depth", "5", "--when-full", "explode"],
        ["--max-depth", "5", "--shed", "oldest"],
        ["--max-depth", "5", "--wait-limit", "5s"],
        ["--max-depth", "5", "--when-full", "wait", "--wait-limit", "0s"],
        ["--max-depth", "5", "--when-full", "wait", "--wait-limit", "2h"],
    ],
    ids=" ".join,
)
def test_settings_that_contradict_each_other_are_usage(cli: Cli, options: list[str]) -> None:
    answer = cli("queue", "set", "q", *options)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err
    assert cli("queue", "list").out == ""


def test_a_job_for_a_full_queue_is_refused(cli: Cli, store: PostgresStore) -> None:
    cli("queue", "set", "q", "--max-depth", "1")
    accept(store)
    answer = cli("enqueue", "work", "--queue", "q", "--json", "{}")
    assert answer.code == 1
    assert "Queue 'q' is full: it holds 1 job, about 1 wait." in answer.err
    assert "Try again in about" in answer.err


def test_a_queue_is_drained_until_it_is_empty(cli: Cli, store: PostgresStore) -> None:
    leased = take(store)
    assert cli("queue", "drain", "q", "--json").json == {"queue": "q", "answer": "draining"}
    assert cli("queue", "drain", "q", "--json").json == {"queue": "q", "answer": "draining already"}
    answer = cli("queue", "drain", "q", "--wait", "0s", "--json")
    assert (answer.code, answer.json["answer"]) == (1, "1 left")
    assert "being drained" in cli("enqueue", "work", "--queue", "q").err
    complete(store, leased)
    answer = cli("queue", "drain", "q", "--wait", "10s", "--json")
    assert (answer.code, answer.json["answer"]) == (0, "empty")
    assert cli("queue", "resume", "q", "--json").json == {"queue": "q", "answer": "resumed"}
    assert cli("enqueue", "work", "--queue", "q").code == 0


def test_a_queue_that_is_not_there_cannot_be_drained(cli: Cli, store: PostgresStore) -> None:
    answer = cli("queue", "drain", "nowhere", "--json")
    assert (answer.code, answer.json) == (1, {"queue": "nowhere", "answer": "unknown"})
    assert cli("queue", "drain").code == 2


def test_pending_jobs_are_moved(cli: Cli, store: PostgresStore) -> None:
    accept(store, 3)
    accept(store, kind="mail.send")
    claim(store, 1)
    told = cli("queue", "move", "q", "mail", "--kind", "work", "--limit", "1", "--json").json
    assert told == {"from": "q", "to": "mail", "moved": 1, "left": 3}
    assert cli("queue", "move", "q", "mail").out == "2 moved to mail, 1 left in q\n"
    assert figures(store, "mail").pending == 3


@pytest.mark.parametrize(
    ("to", "code", "told"),
    [("nowhere", 2, "There is no queue 'nowhere'"), ("q", 2, "the same queue"), ("a b", 2, "'a b'")],
)
def test_jobs_are_not_moved_to_where_nobody_would_run_them(
    cli: Cli, store: PostgresStore, to: str, code: int, told: str
) -> None:
    accept(store)
    answer = cli("queue", "move", "q", to)
    assert answer.code == code
    assert told in answer.err
    assert figures(store).pending == 1


def test_jobs_are_not_moved_into_a_queue_that_drains(cli: Cli, store: PostgresStore) -> None:
    accept(store)
    cli("queue", "drain", "mail")
    answer = cli("queue", "move", "q", "mail")
    assert (answer.code, figures(store).pending) == (2, 1)
    assert "tenure queue resume mail" in answer.err


def test_what_was_shed_is_counted_and_found(cli: Cli, store: PostgresStore) -> None:
    dead(store)
    cli("queue", "set", "q", "--max-depth", "1", "--when-full", "shed")
    accept(store, priority=9)
    assert cli("enqueue", "work", "--queue", "q", "--priority", "0").code == 0
    [row] = [row for row in cli("status").out.splitlines() if row.startswith("q ")]
    assert "1 permanent, 1 shed" in row
    [letter] = cli("dead", "list", "--reason", "shed", "--json").jsons
    assert letter["reason"] == "shed"
