"""Ordering keys on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.job import NewJob
from tenure.names import uuid7
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.cli.conftest import Cli

QUEUE = "q"


def job(store: PostgresStore, order: str | None = "account-7") -> str:
    new = NewJob(uuid7(), "{}", order_key=order)
    store.run(ops.Accept(QUEUE, "work", 1, "work", 3, 60.0, 10_000, [new]))
    return str(new.id)


def dead(store: PostgresStore) -> str:
    id, token = job(store), uuid7()
    store.run(ops.Promote(QUEUE))
    [taken] = store.run(ops.Claim(QUEUE, [ops.Known("work", 1, 30.0)], 1, token, uuid7()))
    store.run(ops.Bury(QUEUE, [ops.Given(taken.id, token, "permanent", "{}")]))
    return id


def test_jobs_that_wait_for_their_turn_say_so(cli: Cli, store: PostgresStore) -> None:
    first, second = job(store), job(store)
    store.run(ops.Promote(QUEUE))
    header, *rows = cli("jobs", "list", "--order", "account-7").out.splitlines()
    assert header.split()[-1] == "order"
    told = {row.split()[0]: row for row in rows}
    assert "gate: order" in told[second]
    assert "gate" not in told[first]
    assert all(row.rstrip().endswith("account-7") for row in rows)
    assert "it waits for others of its ordering key" in cli("jobs", "show", second).out
    assert cli("jobs", "list", "--order", "account-8").out == ""


def test_a_list_without_ordering_keys_has_no_column_for_them(cli: Cli, store: PostgresStore) -> None:
    job(store, None)
    assert "order" not in cli("jobs", "list").out.splitlines()[0]


def test_a_dead_letter_that_others_have_passed_is_redriven_if_that_is_meant(cli: Cli, store: PostgresStore) -> None:
    id = dead(store)
    refused = cli("dead", "redrive", id)
    assert refused.code == 1
    assert "out of order" in refused.err
    assert "--out-of-order" in refused.err
    assert cli("dead", "redrive", id, "--out-of-order").code == 0


def test_one_that_they_wait_for_is_redriven_as_any_other(cli: Cli, store: PostgresStore) -> None:
    cli("queue", "set", QUEUE, "--order-dead", "block")
    id = dead(store)
    assert "jobs behind it wait" in cli("dead", "show", id).out
    assert cli("dead", "redrive", id).code == 0


@pytest.mark.parametrize("order", ["", "x" * 501])
def test_what_can_be_no_ordering_key_is_refused(cli: Cli, order: str) -> None:
    refused = cli("enqueue", "send", "--order", order)
    assert refused.code != 0
    assert "ordering key" in refused.err


def test_lines_of_a_file_have_ordering_keys(cli: Cli, store: PostgresStore, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"kind": "send", "args": {}, "order": "a"}\n{"kind": "send", "args": {}, "order": 7}\n')
    told = cli("enqueue", "--from", str(file))
    assert "order is not text" in told.err
