"""``tenure dead``: looked at, redriven, discarded: by id, by filter, or expressly all."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tenure.cli import choice
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import KindRow, Known, ListDead, ListKinds, Redrive, RegisterKinds, Revived
from tests.cli.conftest import Cli
from tests.store.steps import accept, bury, claim, dead, look


def failure(type: str) -> str:
    return json.dumps({"type": type, "message": "m"})


def age(dsn: str, id: UUID, seconds: float) -> None:
    """Let a dead letter be so old."""
    with psycopg.connect(dsn) as conn:
        conn.execute("update tenure.dead set ended_at = now() - make_interval(secs => %s) where id = %s", [seconds, id])


@pytest.fixture
def letters(store: PostgresStore, dsn: str) -> dict[str, UUID]:
    """Dead letters that differ, the oldest first."""
    found = {
        "old": dead(store, "exhausted", failure("TimeoutError"), payload={"order_id": 1}),
        "poison": dead(store, "poison", failure("ChildDied"), payload={"order_id": "x"}),
        "young": dead(store, "permanent", failure("ValueError"), payload={"order_id": 3}, key="k"),
    }
    age(dsn, found["old"], 7200)
    age(dsn, found["poison"], 600)
    return found


def listed(cli: Cli, *filters: object) -> list[str]:
    return [letter["id"] for letter in cli("dead", "list", *filters, "--json").jsons]


def test_the_list_is_oldest_first_and_filtered(cli: Cli, letters: dict[str, UUID]) -> None:
    old, poison, young = map(str, letters.values())
    assert listed(cli) == [old, poison, young]
    assert listed(cli, "--reason", "poison") == [poison]
    assert listed(cli, "--error", "TimeoutError") == [old]
    assert listed(cli, "--older-than", "5m") == [old, poison]
    assert listed(cli, "--older-than", "5m", "--younger-than", "1h") == [poison]
    assert listed(cli, "--queue", "q", "--kind", "work") == [old, poison, young]
    assert listed(cli, "--queue", "other") == listed(cli, "--kind", "other") == []


def test_the_list_is_a_table_that_names_the_next_page(cli: Cli, letters: dict[str, UUID]) -> None:
    seen: list[str] = []
    more: list[str] = []
    while True:
        answer = cli("dead", "list", "--limit", 1, *more)
        if not answer.out:
            break
        header, row = answer.out.splitlines()
        assert header.split() == ["id", "queue", "kind", "reason", "error", "attempts", "redrives", "died"]
        seen.append(row.split()[0])
        more = answer.err.removeprefix("More: ").split()
    assert seen == list(map(str, letters.values()))
    assert cli("dead", "list", "--after", "x").code == 2


def test_one_is_shown_with_its_history(cli: Cli, letters: dict[str, UUID], store: PostgresStore) -> None:
    assert "TimeoutError: m" in cli("dead", "show", letters["old"]).out
    assert cli("dead", "show", letters["old"], "--json").json["reason"] == "exhausted"
    [alive] = accept(store)
    answer = cli("dead", "show", alive)
    assert (answer.code, answer.err) == (1, f"Job {alive} is pending, no dead letter.\n")
    assert cli("dead", "show", uuid4()).code == 1


def test_a_few_are_redriven_by_id(cli: Cli, store: PostgresStore, letters: dict[str, UUID]) -> None:
    answer = cli("dead", "redrive", letters["old"], letters["young"])
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "2 redriven."
    record = look(store, letters["old"])
    assert (record.state, record.attempts, record.redrives) == ("pending", 0, 1)
    assert listed(cli) == [str(letters["poison"])]


def test_those_that_fit_a_filter_are_redriven(cli: Cli, letters: dict[str, UUID]) -> None:
    answer = cli("dead", "redrive", "--error", "TimeoutError", "--json")
    assert answer.json == {
        "redriven": 1,
        "refused": 0,
        "missed": 0,
        "dry_run": False,
        "jobs": [{"queue": "q", "kind": "work", "reason": "exhausted", "jobs": 1}],
    }
    assert listed(cli) == [str(letters["poison"]), str(letters["young"])]
    assert cli("dead", "redrive", "--error", "TimeoutError", "--json").json["redriven"] == 0


def test_all_takes_an_express_word(cli: Cli, letters: dict[str, UUID]) -> None:
    for action in ("redrive", "discard"):
        answer = cli("dead", action)
        assert answer.code == 2
        assert "--all" in answer.err
        assert cli("dead", action, letters["old"], "--all").code == 2
        assert cli("dead", action, letters["old"], "--queue", "q").code == 2
        assert cli("dead", action, "--all", "--queue", "q").code == 2
    assert len(listed(cli)) == 3
    assert cli("dead", "redrive", "--all", "--json").json["redriven"] == 3
    assert listed(cli) == []


def test_a_dry_run_says_what_would_be_and_changes_nothing(cli: Cli, letters: dict[str, UUID]) -> None:
    for action, done in (("redrive", "redriven"), ("discard", "discarded")):
        answer = cli("dead", action, "--all", "--dry-run")
        assert answer.code == 0
        rows = sorted(line.split() for line in answer.out.splitlines()[1:-1])
        assert rows == [["q", "work", reason, "1"] for reason in ("exhausted", "permanent", "poison")]
        assert answer.out.splitlines()[-1] == f"3 would be {done}."
        assert cli("dead", action, letters["old"], "--dry-run", "--json").json[done] == 1
    assert len(listed(cli)) == 3


def test_discarded_ones_end_cancelled(cli: Cli, store: PostgresStore, letters: dict[str, UUID]) -> None:
    assert cli("dead", "discard", "--older-than", "1h").out.endswith("1 discarded.\n")
    assert cli("dead", "discard", letters["poison"], "--json").json["discarded"] == 1
    assert listed(cli) == [str(letters["young"])]
    assert look(store, letters["old"]).reason == "discarded"


def test_what_is_no_dead_letter_is_told_and_the_others_go_on(
    cli: Cli, store: PostgresStore, letters: dict[str, UUID]
) -> None:
    [alive] = accept(store)
    unknown = uuid4()
    answer = cli("dead", "redrive", alive, unknown, letters["old"])
    assert answer.code == 1
    assert answer.out.endswith("1 redriven, 2 refused.\n")
    assert f"Job {alive} is pending" in answer.err
    assert f"There is no job {unknown}" in answer.err
    told = [json.loads(line) for line in cli("dead", "discard", alive, unknown, "--json").err.splitlines()]
    assert {line["id"] for line in told} == {str(alive), str(unknown)}


def test_a_rate_spreads_them_over_time(cli: Cli, store: PostgresStore, dsn: str) -> None:
    for _ in range(4):
        dead(store)
    assert cli("dead", "redrive", "--all", "--rate", "0.1").code == 0
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("select available_at from tenure.jobs order by available_at").fetchall()
    first, *others = [row[0] for row in rows]
    assert [round((at - first).total_seconds()) for at in others] == [10, 20, 30]


def test_pages_are_redriven_to_the_end(
    cli: Cli, store: PostgresStore, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "PAGE", 3)
    ids = [dead(store) for _ in range(10)]
    with psycopg.connect(dsn) as conn:  # all at the same moment: the id decides
        conn.execute("update tenure.dead set ended_at = now()")
    assert cli("dead", "redrive", "--queue", "q", "--rate", "1000", "--json").json["redriven"] == 10
    assert all(look(store, id).state == "pending" for id in ids)


def test_those_that_die_again_meanwhile_do_not_come_back(
    cli: Cli, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "PAGE", 2)
    ids = [dead(store) for _ in range(6)]
    plain = PostgresStore.run

    def run(self: PostgresStore, op: Any, conn: Any = None) -> Any:
        answer = plain(self, op, conn)
        if isinstance(op, Redrive):  # a worker that buries them at once
            for leased in claim(store):
                bury(store, leased)
        return answer

    monkeypatch.setattr(PostgresStore, "run", run)
    assert cli("dead", "redrive", "--all", "--json").json["redriven"] == 6
    assert all(look(store, id).redrives == 1 for id in ids)
    assert len(listed(cli)) == 6


def test_what_somebody_else_took_is_told(cli: Cli, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [dead(store) for _ in range(2)]
    plain = PostgresStore.run

    def run(self: PostgresStore, op: Any, conn: Any = None) -> Any:
        if isinstance(op, Redrive) and len(op.items) == 2:
            plain(store, Redrive("q", [Revived(ids[0])]))
        return plain(self, op, conn)

    monkeypatch.setattr(PostgresStore, "run", run)
    answer = cli("dead", "redrive", "--all")
    assert answer.code == 1
    assert answer.out.endswith("1 redriven, 1 in other hands meanwhile.\n")


def test_a_payload_is_replaced_for_one(cli: Cli, store: PostgresStore, letters: dict[str, UUID]) -> None:
    answer = cli("dead", "redrive", letters["young"], "--payload", '{"order_id": 4.50}')
    assert answer.code == 0
    assert look(store, letters["young"]).payload == '{"order_id": 4.50}'
    assert "stays unique by its original key" in answer.err
    assert "'k'" in answer.err
    many = cli("dead", "redrive", letters["old"], letters["poison"], "--payload", "{}")
    assert many.code == 2
    assert cli("dead", "redrive", "--all", "--payload", "{}").code == 2
    assert cli("dead", "redrive", letters["old"], letters["old"], "--payload", "{}").code == 0


def test_of_a_kind_with_natural_keys_it_says_that_the_key_is_made_anew(
    cli: Cli, store: PostgresStore, letters: dict[str, UUID]
) -> None:
    store.run(RegisterKinds([row._replace(policy={**row.policy, "dedup": True}) for row in store.run(ListKinds())]))
    answer = cli("dead", "redrive", letters["young"], "--payload", '{"order_id": 4}')
    assert answer.code == 0
    assert "the natural key that work makes of its arguments" in answer.err
    assert "If these make another key, it is another effect" in answer.err
    assert "original key" not in answer.err


@pytest.mark.parametrize(
    ("payload", "says"),
    [('{"a": NaN}', "NaN"), ("[]", "array"), ('{"a": "' + "x" * 270_000 + '"}', "262144 bytes"), ("x", "not JSON")],
)
def test_a_payload_that_cannot_be_kept_is_refused(cli: Cli, letters: dict[str, UUID], payload: str, says: str) -> None:
    answer = cli("dead", "redrive", letters["old"], "--payload", payload)
    assert answer.code == 1
    assert says in answer.err
    assert str(letters["old"]) in listed(cli)


def test_they_are_run_as_another_kind_if_they_fit(cli: Cli, store: PostgresStore, letters: dict[str, UUID]) -> None:
    answer = cli("dead", "redrive", "--all", "--as-kind", "old.mail")
    assert answer.code == 1
    assert answer.out.endswith("2 redriven, 1 refused.\n")
    assert re.match(rf"{letters['poison']}: .*order_id: type must be", answer.err)
    assert (look(store, letters["old"]).kind, look(store, letters["old"]).version) == ("mail.send", 1)
    assert listed(cli) == [str(letters["poison"])]
    mended = cli("dead", "redrive", letters["poison"], "--as-kind", "mail.send", "--payload", '{"order_id": 2}')
    assert mended.code == 0
    with psycopg.connect(store.dsn) as conn:  # the effect's dedup key names the kind it was accepted for
        assert conn.execute("select distinct kind, key_kind from tenure.jobs").fetchall() == [("mail.send", "work")]


ONCE = KindRow("pay", 1, "q", [], False, {"once_ttl": 30 * 86_400.0}, {}, {"type": "object"})


@pytest.fixture
def payments(store: PostgresStore, dsn: str) -> dict[str, UUID]:
    """Dead letters whose effects are in another database: one first claimed too long ago, one in time, one never."""
    store.run(RegisterKinds([ONCE]))
    found = dict(zip(("late", "in time", "shed"), accept(store, 3, kind="pay"), strict=True))
    for leased in claim(store, known=[Known("pay", 1, 30.0)]):
        bury(store, leased)
    with psycopg.connect(dsn) as conn:
        for name, since in (("late", "30 days"), ("in time", "29 days 23 hours")):
            conn.execute(
                "update tenure.dead set first_claimed_at = now() - %s::interval where id = %s", [since, found[name]]
            )
        conn.execute("update tenure.dead set first_claimed_at = null where id = %s", [found["shed"]])
    return found


def test_one_that_may_duplicate_an_effect_elsewhere_is_refused_and_the_others_go_on(
    cli: Cli, store: PostgresStore, payments: dict[str, UUID]
) -> None:
    for dry_run in (["--dry-run"], []):
        answer = cli("dead", "redrive", "--all", *dry_run)
        assert answer.code == 1
        assert answer.out.splitlines()[-1] == f"2 {'would be ' if dry_run else ''}redriven, 1 refused."
        assert re.match(rf"{payments['late']}: It was first claimed 30d ago.* for 30d", answer.err)
        assert "--may-duplicate" in answer.err
    assert listed(cli) == [str(payments["late"])]
    assert look(store, payments["in time"]).first_claimed_at is not None


def test_one_that_may_duplicate_is_redriven_when_told_so_and_its_time_starts_anew(
    cli: Cli, store: PostgresStore, payments: dict[str, UUID]
) -> None:
    assert cli("dead", "redrive", payments["late"]).code == 1
    answer = cli("dead", "redrive", payments["late"], "--may-duplicate", "--json")
    assert (answer.code, answer.json["redriven"]) == (0, 1)
    record = look(store, payments["late"])
    assert (record.state, record.first_claimed_at) == ("pending", None)


def test_the_kind_that_will_run_it_says_how_long_its_effects_are_remembered(
    cli: Cli, store: PostgresStore, payments: dict[str, UUID], letters: dict[str, UUID], dsn: str
) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("update tenure.dead set first_claimed_at = now() - interval '1 year'")
    assert cli("dead", "redrive", letters["old"], "--as-kind", "pay").code == 1
    assert cli("dead", "redrive", letters["old"]).code == 0
    assert cli("dead", "redrive", payments["late"], "--as-kind", "work").code == 0
    with psycopg.connect(dsn) as conn:
        conn.execute("delete from tenure.kinds where name = 'pay'")
    assert cli("dead", "redrive", payments["in time"]).code == 0


def test_an_unknown_kind_is_refused_before_anything_is_moved(cli: Cli, letters: dict[str, UUID]) -> None:
    answer = cli("dead", "redrive", "--all", "--as-kind", "mail.sent")
    assert answer.code == 1
    assert "'mail.send'" in answer.err
    assert len(listed(cli)) == 3


@pytest.mark.parametrize(
    "options",
    [
        ["--all", "--rate", "0"],
        ["--older-than", "old"],
        ["--younger-than", "99999999d"],
        ["--reason", "bad"],
        ["not-an-id"],
    ],
)
def test_options_that_cannot_be_are_usage(cli: Cli, options: list[str]) -> None:
    assert cli("dead", "redrive", *options).code == 2


def test_filters_are_values_and_nothing_else(cli: Cli, letters: dict[str, UUID]) -> None:
    for filter in ("--queue", "--kind", "--error"):
        for value in ("' or true --", "'; delete from tenure.dead; --", "%", "%(queue)s"):
            assert cli("dead", "discard", filter, value, "--json").json["discarded"] == 0
    assert len(listed(cli)) == 3


def test_the_cursor_is_exact_to_the_microsecond(store: PostgresStore, letters: dict[str, UUID]) -> None:
    first = store.run(ListDead())[0]
    at, _, id = choice.cursor(first).partition("/")
    assert (datetime.fromisoformat(at), UUID(id)) == (first.ended_at, first.id)
