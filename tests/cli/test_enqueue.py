"""``tenure enqueue KIND``: checked by what the database knows of the kind, stored as it was written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from tenure import Tenure
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Known, RegisterKinds, SetKind
from tests.cli.conftest import KINDS, Answer, Cli
from tests.store.steps import claim, look

SECRET = "hunter2"  # noqa: S105


def enqueue(cli: Cli, *args: object, input: str | bytes | None = None) -> Answer:
    return cli("enqueue", *args, "--as-json", input=input)


def error(answer: Answer) -> dict[str, str]:
    """The error, told as JSON."""
    assert answer.out == ""
    told: dict[str, str] = json.loads(answer.err)
    return told


def row(dsn: str, id: str) -> dict[str, object]:
    with psycopg.connect(dsn) as conn:
        found = conn.execute("select to_jsonb(j) from tenure.jobs j where id = %s", [id]).fetchone()
    assert found is not None
    told: dict[str, object] = found[0]
    return told


@pytest.fixture(autouse=True)
def kinds(store: PostgresStore) -> None:
    """The kinds are registered."""


def test_a_job_goes_to_the_queue_of_its_kind(cli: Cli, dsn: str) -> None:
    answer = enqueue(cli, "mail.send", "--json", '{"order_id": 42}')
    assert answer.code == 0
    assert answer.json == {"id": answer.json["id"], "answer": "new", "state": "pending", "queue": "mail"}
    stored = row(dsn, answer.json["id"])
    assert (stored["kind"], stored["version"], stored["max_attempts"], stored["priority"]) == ("mail.send", 1, 3, 5)


@dataclass
class Mail:
    to: str


def test_a_job_of_a_batch_kind_has_the_fields_of_an_item_as_its_arguments(
    cli: Cli, dsn: str, store: PostgresStore
) -> None:
    app = Tenure(dsn)

    @app.job(batch=10)
    async def bulk(mails: list[Mail]) -> None: ...

    store.run(RegisterKinds(app.rows()))
    assert row(dsn, enqueue(cli, "bulk", "--json", '{"to": "a"}').json["id"])["payload"] == {"to": "a"}
    refused = enqueue(cli, "bulk", "--json", '[{"to": "a"}]')
    assert refused.code == 1
    refused = enqueue(cli, "bulk", "--json", '{"from": "a"}')
    assert error(refused)["hint"] == "It takes to."


def test_people_get_a_table(cli: Cli) -> None:
    answer = cli("enqueue", "work")
    header, line = (text.split() for text in answer.out.splitlines())
    assert header == ["id", "answer", "state", "queue"]
    assert line[1:] == ["new", "pending", "q2"]
    assert UUID(line[0]).version == 7


def test_the_text_of_the_arguments_is_stored_as_it_is(cli: Cli, dsn: str) -> None:
    payload = '{"a": 1.10, "b": 12345678901234567890123456789, "c": 0.1000000000000000055511151231257827, "d": 1e2}'
    id = enqueue(cli, "work", "--json", payload).json["id"]
    with psycopg.connect(dsn) as conn:
        [(same, text)] = conn.execute(
            "select payload = %s::jsonb, payload::text from tenure.jobs where id = %s", [payload, id]
        ).fetchall()
    assert same
    assert '"a": 1.10' in text


def test_options_are_stored(cli: Cli, dsn: str) -> None:
    day = datetime.now(UTC).date() + timedelta(days=100)
    options = ["--key", "k", "--at", f"{day}T12:00:00+02:00", "--priority", 0, "--queue", "other"]
    id = enqueue(cli, "work", *options, "--expires", f"{day}T23:00:00Z", "--headers", '{"trace": 1.0}').json["id"]
    stored = row(dsn, id)
    assert (stored["key"], stored["priority"], stored["queue"], stored["headers"]) == ("k", 0, "other", {"trace": 1.0})
    assert datetime.fromisoformat(str(stored["available_at"])) == datetime(day.year, day.month, day.day, 10, tzinfo=UTC)
    assert datetime.fromisoformat(str(stored["expires_at"])) == datetime(day.year, day.month, day.day, 23, tzinfo=UTC)


def test_delay_and_expiry_count_from_now(cli: Cli, dsn: str) -> None:
    stored = row(dsn, enqueue(cli, "work", "--delay", "1h", "--expires", "2h").json["id"])
    accepted = datetime.fromisoformat(str(stored["accepted_at"]))
    assert datetime.fromisoformat(str(stored["available_at"])) == accepted + timedelta(hours=1)
    assert datetime.fromisoformat(str(stored["expires_at"])) == accepted + timedelta(hours=2)


def test_the_newest_version_unless_another_is_named(cli: Cli, dsn: str) -> None:
    assert row(dsn, enqueue(cli, "work").json["id"])["version"] == 2
    old = row(dsn, enqueue(cli, "work", "--kind-version", 1).json["id"])
    assert (old["version"], old["queue"], old["max_attempts"]) == (1, "q", 3)


def test_operator_values_win(cli: Cli, dsn: str, store: PostgresStore) -> None:
    store.run(SetKind("work", {"max_attempts": 99}))
    assert row(dsn, enqueue(cli, "work").json["id"])["max_attempts"] == 99


def test_an_older_name_is_stored_under_the_new_one_with_the_same_fingerprint(cli: Cli, dsn: str) -> None:
    args = ["--json", '{"order_id": 1}', "--key", "k"]
    first = enqueue(cli, "old.mail", *args)
    again = enqueue(cli, "mail.send", *args)
    assert row(dsn, first.json["id"])["kind"] == "mail.send"
    assert again.json == {**first.json, "answer": "same"}
    with psycopg.connect(dsn) as conn:
        [(fingerprint,)] = conn.execute("select encode(fingerprint, 'hex') from tenure.keys").fetchall()
        [(expected,)] = conn.execute(
            "select encode(sha256(convert_to(E'old.mail\\n{\"order_id\": 1}', 'UTF8')), 'hex')"
        ).fetchall()
    assert fingerprint == expected


def test_other_content_under_the_same_key_is_a_conflict_with_both_fingerprints(cli: Cli, store: PostgresStore) -> None:
    first = enqueue(cli, "work", "--key", "k", "--json", '{"a": 1}')
    second = enqueue(cli, "work", "--key", "k", "--json", '{"a": 1.0}')
    told = error(second)
    assert second.code == 1
    assert told["error"] == "Conflict"
    assert told["job_id"] == first.json["id"]
    assert len(told["held"]) == len(told["given"]) == 64
    assert told["held"] != told["given"]
    said = cli("enqueue", "work", "--key", "k")
    assert said.code == 1
    assert told["held"][:12] in said.err
    assert "Nothing was stored." in said.err


def test_a_large_payload_is_read_from_stdin(cli: Cli) -> None:
    assert enqueue(cli, "work", "--json", "-", input=json.dumps({"text": "x" * 200_000})).code == 0
    refused = enqueue(cli, "work", "--json", "-", input=json.dumps({"text": "x" * 270_000}))
    assert (refused.code, error(refused)["error"]) == (1, "PayloadTooLarge")


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ('{"a": NaN}', "NaN"),
        ('{"a": "\\u0000"}', "NUL"),
        ('{"a": "\\ud800"}', "lone surrogate"),
        ('{"a": 1, "a": 2}', "duplicate"),
        ("[1]", "array"),
        ("", "not JSON"),
        ('{"a": 1e999}', "range"),
        ("[" * 100_000, "deep"),
    ],
)
def test_what_cannot_be_kept_is_refused(cli: Cli, dsn: str, payload: str, says: str) -> None:
    answer = enqueue(cli, "work", "--json", payload)
    assert answer.code == 1
    assert error(answer)["error"] == "InvalidPayload"
    assert says in error(answer)["what"]
    assert error(answer)["kept"] == "Nothing was stored."
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select from tenure.jobs").fetchall() == []


def test_bytes_that_are_no_text_are_refused(cli: Cli) -> None:
    answer = enqueue(cli, "work", "--json", "-", input=b'{"a": "\xff"}')
    assert (answer.code, error(answer)["error"]) == (1, "InvalidPayload")


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({"order_id": SECRET}, 'order_id: type must be "integer"'),
        ({"order_id": 1, "note": SECRET}, "note: maxLength must be 5"),
        ({"note": "x"}, "'order_id' is a required property"),
        ({"order_id": 1, "extra": SECRET}, "'extra' was unexpected"),
    ],
)
def test_what_does_not_fit_is_refused_without_repeating_the_values(
    cli: Cli, payload: dict[str, object], says: str
) -> None:
    answer = enqueue(cli, "mail.send", "--json", json.dumps(payload))
    assert (answer.code, error(answer)["error"]) == (1, "InvalidArguments")
    assert says in error(answer)["what"]
    assert SECRET not in answer.err


def test_an_unknown_kind_gets_near_names(cli: Cli) -> None:
    answer = enqueue(cli, "mail.sent")
    assert answer.code == 1
    assert error(answer)["error"] == "UnknownKind"
    assert "'mail.send'" in error(answer)["hint"]
    assert "tenure migrate module:app" in error(answer)["hint"]
    assert error(enqueue(cli, "work", "--kind-version", 9))["hint"] == "Registered: 1, 2."


def test_a_registered_schema_that_is_none_is_told(cli: Cli, store: PostgresStore) -> None:
    broken = KINDS[1]._replace(name="broken", arguments={"type": 7})
    remote = KINDS[1]._replace(name="remote", arguments={"$ref": "http://127.0.0.1:1/schema.json"})
    store.run(RegisterKinds([broken, remote]))
    for name in ("broken", "remote"):
        answer = enqueue(cli, name)
        assert (answer.code, error(answer)["error"]) == (2, "ConfigError")


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["work", "--priority", "10"],
        ["work", "--queue", "no such/queue"],
        ["work", "--delay", "soon"],
        ["work", "--delay", "99999999d"],
        ["work", "--at", "tomorrow"],
        ["work", "--expires", "2030-99-01"],
        ["work", "--from", "/no/such/file"],
        ["work", "--from", "-", "--key", "k"],
    ],
)
def test_options_that_cannot_be_are_usage(cli: Cli, options: list[str]) -> None:
    answer = cli("enqueue", *options)
    assert (answer.code, answer.out) == (2, "")


@pytest.mark.parametrize(
    "options",
    [
        ["--at", "2030-01-01T00:00:00"],
        ["--at", "2030-01-01T00:00:00Z", "--delay", "1s"],
        ["--key", ""],
        ["--key", "k" * 501],
        ["--headers", "[]"],
        ["--headers", '{"a": NaN}'],
        ["--headers", f'{{"a": "{"x" * 16384}"}}'],
        ["--at", "1999-12-31T23:59:59Z"],
        ["--at", "9999-12-31T23:59:59-14:00"],
        ["--expires", "0001-01-01T00:00:00+14:00"],
        ["--expires", "9999-12-31T23:59:59-14:00"],
    ],
)
def test_options_that_do_not_do_are_refused(cli: Cli, options: list[str]) -> None:
    answer = enqueue(cli, "work", *options)
    assert answer.code == 1
    assert error(answer)["kept"] == "Nothing was stored."


def test_a_moment_in_the_past_means_now(cli: Cli, store: PostgresStore) -> None:
    id = UUID(enqueue(cli, "work", "--at", "2001-01-01T00:00:00Z", "--queue", "q").json["id"])
    record = look(store, id)
    assert record.available_at == record.accepted_at


def test_replace_changes_the_keys_job_until_it_was_claimed(cli: Cli, dsn: str) -> None:
    held = enqueue(cli, "mail.send", "--json", '{"order_id": 1}', "--key", "k").json
    changed = enqueue(cli, "mail.send", "--json", '{"order_id": 2}', "--key", "k", "--replace", "--delay", "1h").json
    assert (changed["id"], changed["answer"]) == (held["id"], "replaced")
    assert row(dsn, held["id"])["payload"] == {"order_id": 2}
    lines = '{"kind": "mail.send", "args": {"order_id": 3}, "key": "k", "replace": true}'
    assert cli("enqueue", "--from", "-", input=lines).code == 0
    assert row(dsn, held["id"])["payload"] == {"order_id": 3}
    refused = enqueue(cli, "mail.send", "--json", '{"order_id": 2}', "--replace")
    assert (refused.code, "without a key replaces nothing" in error(refused)["what"]) == (1, True)


def test_a_claimed_job_is_not_replaced(cli: Cli, store: PostgresStore) -> None:
    enqueue(cli, "work", "--key", "k")
    claim(store, queue="q2", known=[Known("work", 2, 30.0)])
    refused = enqueue(cli, "work", "--key", "k", "--replace")
    assert (refused.code, "can no longer be replaced" in error(refused)["what"]) == (1, True)
