"""``tenure kind pause``, ``tenure kind resume`` and ``tenure breaker``."""

from __future__ import annotations

from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.cli.conftest import Cli
from tests.store.steps import accept


def test_kinds_are_paused_and_resumed(cli: Cli, store: PostgresStore) -> None:
    accept(store)
    told = cli("kind", "pause", "work", "old.mail", "--reason", "why not", "--json")
    assert told.code == 0
    assert told.jsons == [{"kind": "mail.send", "answer": "paused"}, {"kind": "work", "answer": "paused"}]
    assert cli("kind", "pause", "work", "--json").json == {"kind": "work", "answer": "paused already"}
    [mail, *work] = cli("kind", "list", "--json").jsons
    assert [(hold["cause"], hold["reason"]) for hold in mail["held"]] == [("paused", "why not")]
    assert "@" in mail["held"][0]["who"]
    assert [len(kind["held"]) for kind in work] == [1, 1]
    assert "paused" in cli("kind", "list").out
    assert [line["held"] for line in cli("status", "--json").jsons if line["queue"] == "q"] == [1]
    told = cli("kind", "resume", "work", "mail.send", "--json")
    assert told.jsons == [{"kind": "mail.send", "answer": "resumed"}, {"kind": "work", "answer": "resumed"}]
    assert cli("kind", "resume", "work").out.split()[-2:] == ["not", "held"]
    assert [kind["held"] for kind in cli("kind", "list", "--json").jsons] == [[], [], []]


def test_a_throttle_is_shown_and_ended(cli: Cli, store: PostgresStore) -> None:
    store.run(ops.ThrottleKinds([ops.Slowed("work", 90)]))
    assert "throttled, for 1m" in cli("kind", "list").out
    assert cli("kind", "resume", "work", "--json").json == {"kind": "work", "answer": "resumed"}


def test_a_kind_that_nobody_knows_is_not_paused(cli: Cli, store: PostgresStore) -> None:
    answer = cli("kind", "pause", "work", "wrok")
    assert answer.code == 1
    assert "'work'" in answer.err
    assert store.run(ops.ListHolds()) == []


def test_breakers_are_listed_opened_and_closed(cli: Cli, store: PostgresStore) -> None:
    assert "No downstreams" in cli("breaker", "list").err
    store.run(ops.RegisterBreakers([ops.Declared("psp", {"calls": 20})]))
    told = cli("breaker", "list", "--json").json
    assert (told["name"], told["state"], told["policy"]) == ("psp", "closed", {"calls": 20})
    answer = cli("breaker", "open", "psp", "nobody", "--reason", "maintenance", "--json")
    assert answer.code == 1
    assert answer.jsons == [{"downstream": "psp", "answer": "open"}, {"downstream": "nobody", "answer": "unknown"}]
    header, row = cli("breaker", "list").out.splitlines()
    assert header.split()[:2] == ["downstream", "state"]
    assert row.split()[:2] == ["psp", "open"]
    assert "maintenance" in row
    assert cli("breaker", "open", "psp", "--json").json == {"downstream": "psp", "answer": "open already"}
    assert cli("breaker", "close", "psp", "--json").json == {"downstream": "psp", "answer": "closed"}
    assert cli("breaker", "close", "psp").out.split()[-2:] == ["closed", "already"]
