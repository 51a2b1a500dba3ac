"""``tenure status``, ``tenure queue`` and ``tenure kind``."""

from __future__ import annotations

import psycopg
import pytest

from tenure.store.postgres import PostgresStore
from tenure.store.protocol import ListKinds
from tests.cli.conftest import Cli
from tests.store.steps import accept, claim, dead, shift, take


def test_every_queue_is_shown_in_figures(cli: Cli, store: PostgresStore) -> None:
    dead(store, "poison")
    take(store)
    shift(store, 60)  # its lease has ended
    accept(store, 2)
    accept(store, 1, delay=3600.0)
    cli("queue", "set", "q", "--owner", "team", "--paused")
    told = {status["queue"]: status for status in cli("status", "--json").jsons}
    figures = told["q"]
    assert (figures["pending"], figures["scheduled"], figures["running"], figures["overdue"]) == (2, 1, 1, 1)
    assert (figures["dead"], figures["owner"], figures["paused"]) == ({"poison": 1}, "team", True)
    assert figures["lag"] >= 0
    assert told["mail"]["lag"] is None
    header, *rows = cli("status").out.splitlines()
    assert header.split() == [
        *(
            "queue",
            "pending",
            "held",
            "scheduled",
            "gated",
            "suspect",
            "running",
            "overdue",
            "dead",
            "lag",
            "workers",
            "owner",
        )
    ]
    [row] = [row for row in rows if row.startswith("q (paused)")]
    assert "1 poison" in row
    assert row.rstrip().endswith("team")


def test_an_empty_database_has_no_queues(cli: Cli) -> None:
    assert cli("status") == (0, "", "There are no queues yet.\n")
    assert cli("status", "--json") == (0, "", "")
    assert cli("kind", "list").code == 0


def test_settings_of_a_queue_are_changed_one_by_one(cli: Cli) -> None:
    first = cli("queue", "set", "mail", "--owner", "team", "--slo", "30s", "--retention", "0", "--paused", "--json")
    assert first.json.items() >= {"name": "mail", "owner": "team", "slo": 30.0, "paused": True, "retention": 0}.items()
    second = cli("queue", "set", "mail", "--no-paused", "--json")
    assert second.json == {**first.json, "paused": False}
    reset = cli("queue", "set", "mail", "--owner", "none", "--slo", "none", "--retention", "none", "--json")
    assert (
        reset.json.items() >= {"name": "mail", "owner": None, "slo": None, "paused": False, "retention": None}.items()
    )
    shown = cli("queue", "set", "mail", "--slo", "90s").out
    assert "1m 30s" in shown


def test_what_jobs_do_behind_one_of_their_ordering_key_is_set_and_reset(cli: Cli) -> None:
    told = cli(
        "queue", "set", "q", "--order-retry", "skip", "--order-dead", "block", "--order-scheduled", "block", "--json"
    )
    assert [told.json[name] for name in ("order_retry", "order_dead", "order_scheduled")] == ["skip", "block", "block"]
    told = cli("queue", "set", "q", "--order-dead", "none", "--json")
    assert [told.json[name] for name in ("order_retry", "order_dead", "order_scheduled")] == ["skip", "skip", "block"]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--slo", "fast"],
        ["--slo", "9999999d"],
        ["--retention", "-1"],
        ["--retention", "3651"],
        ["--retention", "1.5"],
        ["--retention", "²"],
        ["--order-dead", "wait"],
    ],
)
def test_settings_that_cannot_be_are_usage(cli: Cli, options: list[str]) -> None:
    assert cli("queue", "set", "mail", *options).code == 2
    assert cli("status").out == ""


def test_a_queue_name_that_is_none_is_usage(cli: Cli) -> None:
    for name in ("a b", "", "x" * 101, "'; drop schema tenure cascade; --", "[red]"):
        assert cli("queue", "set", name, "--paused").code == 2


def test_kinds_are_shown_with_what_operators_set(cli: Cli, store: PostgresStore) -> None:
    header, *rows = cli("kind", "list").out.splitlines()
    assert header.split()[:6] == ["kind", "version", "queue", "max_attempts", "lease", "key_ttl"]
    assert [row.split()[:6] for row in rows] == [
        ["mail.send", "1", "mail", "3", "30s", "1h"],
        ["work", "1", "q", "3", "30s", "1h"],
        ["work", "2", "q2", "7", "30s", "1h"],
    ]
    assert "old.mail, mail" in rows[0]
    answer = cli("kind", "set", "work", "--max-attempts", "20", "--lease", "5m", "--key-ttl", "30d")
    assert answer.code == 0
    assert answer.out.count("20 (set; declared") == 2
    assert "5m (set; declared 30s)" in answer.out
    reset = cli("kind", "set", "work", "--lease", "none", "--max-attempts", "none", "--json").jsons
    assert [kind["operator"] for kind in reset] == [{"key_ttl": 2592000.0}] * 2


def test_an_older_name_means_the_kind_it_is_now(cli: Cli, store: PostgresStore) -> None:
    assert cli("kind", "set", "old.mail", "--max-attempts", "1").code == 0
    assert store.run(ListKinds("mail.send"))[0].operator == {"max_attempts": 1}


def test_an_unknown_kind_cannot_be_set(cli: Cli, store: PostgresStore) -> None:
    answer = cli("kind", "set", "wrok", "--lease", "5s")
    assert answer.code == 1
    assert "'work'" in answer.err


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--max-attempts", "0"],
        ["--max-attempts", "many"],
        ["--max-attempts", "40000"],
        ["--lease", "0s"],
        ["--lease", "2d"],
        ["--key-ttl", "-1s"],
    ],
)
def test_operator_values_are_held_to_the_limits_of_declared_ones(
    cli: Cli, store: PostgresStore, options: list[str]
) -> None:
    assert cli("kind", "set", "work", *options).code == 2
    assert all(kind.operator == {} for kind in store.run(ListKinds()))


def test_what_anybody_wrote_is_shown_and_does_nothing(cli: Cli, store: PostgresStore, dsn: str) -> None:
    evil = "[bold red]x[/] \x1b]0;title\x07\x1b[2J\x9b31m \u202eevil\nnext"
    with psycopg.connect(dsn) as conn:
        conn.execute("update tenure.jobs set queue = queue")
        conn.execute("insert into tenure.queues (name, owner) values (%s, %s)", [evil, evil])
        conn.execute(
            "insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, key,"
            " payload) select %s, gen_random_uuid(), %s, 1, 5, 1, now(), now(), %s, jsonb_build_object(%s::text, %s::text)",
            [evil] * 5,
        )
    id = cli("jobs", "list", "--json").json["id"]
    for args in (["status"], ["jobs", "list"], ["jobs", "show", id], ["jobs", "list", "--json"], ["status", "--json"]):
        said = cli(*args)
        assert said.code == 0
        assert "[bold red]x[/]" in said.out
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(said.out)
    assert len(cli("jobs", "list").out.splitlines()) == 2
    assert cli("jobs", "list", "--queue", evil, "--json").json["payload"] == {evil: evil}


# --------------------------------------------------------------------------------------------------------- pause


def test_queues_are_paused_and_go_on(cli: Cli, store: PostgresStore) -> None:
    accept(store)
    assert cli("queue", "pause", "q", "--json").json == {"queue": "q", "answer": "paused"}
    assert claim(store) == []
    again = cli("queue", "pause", "q", "mail")
    assert again.code == 0
    assert [row.split() for row in again.out.splitlines()[1:]] == [["mail", "paused"], ["q", "paused", "already"]]
    assert [row["name"] for row in cli("queue", "list", "--json").jsons if row["paused"]] == ["mail", "q"]
    assert cli("queue", "resume", "--all", "--json").jsons == [
        {"queue": "mail", "answer": "resumed"},
        {"queue": "q", "answer": "resumed"},
        {"queue": "q2", "answer": "not paused already"},
    ]
    assert len(claim(store)) == 1


def test_all_queues_are_those_that_hold_jobs_too(cli: Cli, store: PostgresStore) -> None:
    accept(store, queue="elsewhere")
    told = {one["queue"]: one["answer"] for one in cli("queue", "pause", "--all", "--json").jsons}
    assert told == dict.fromkeys(("elsewhere", "mail", "q", "q2"), "paused")
    assert cli("queue", "pause", "--all").code == 0


def test_a_queue_that_is_not_there_is_a_failure_and_the_others_are_paused(cli: Cli, store: PostgresStore) -> None:
    answer = cli("queue", "pause", "mial", "mail", "--json")
    assert answer.code == 1
    assert answer.jsons == [{"queue": "mail", "answer": "paused"}, {"queue": "mial", "answer": "unknown"}]
    assert "mial" not in cli("queue", "list").out


@pytest.mark.parametrize("words", [[], ["q", "--all"], ["a b"], [""], ["--all", "--all", "q"], ["[red]"]])
def test_pause_needs_names_or_all(cli: Cli, store: PostgresStore, words: list[str]) -> None:
    for command in ("pause", "resume"):
        assert cli("queue", command, *words).code == 2
    assert not any(queue["paused"] for queue in cli("queue", "list", "--json").jsons)


def test_where_there_are_no_queues_none_is_paused(cli: Cli) -> None:
    assert cli("queue", "pause", "--all") == (0, "", "There are no queues yet.\n")
    assert cli("queue", "list") == (0, "", "There are no queues yet.\n")


def test_queues_are_listed_with_their_settings(cli: Cli, store: PostgresStore) -> None:
    cli("queue", "set", "q", "--owner", "team", "--slo", "90s", "--retention", "0", "--paused")
    header, *rows = cli("queue", "list").out.splitlines()
    assert header.split()[:6] == ["queue", "paused", "owner", "slo", "retention", "draining"]
    assert header.split()[-3:] == ["retry", "dead", "scheduled"]
    order = ["block", "skip", "skip"]
    assert [row.split() for row in rows] == [
        ["mail", "no", "no", *order],
        ["q", "yes", "team", "1m", "30s", "0", "no", *order],
        ["q2", "no", "no", *order],
    ]
