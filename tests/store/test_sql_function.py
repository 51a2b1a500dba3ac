"""The door for those who speak SQL: ``tenure.enqueue`` and ``tenure.enqueue_many`` answer as Python does."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection, pq, sql
from psycopg.rows import namedtuple_row

from tenure.job import NewJob
from tenure.registered import find
from tenure.store import protocol as ops
from tenure.store.grants import Grants
from tenure.store.postgres import PostgresStore
from tenure.store.statements import FUNCTIONS, function, in_schema
from tests.conftest import Server
from tests.docs.pages import ROOT
from tests.races.sessions import PATIENCE, Sessions
from tests.store.steps import complete, look, look_up_key, new, shift
from tests.support.roles import a_role

QUEUE = "q"
KIND = "work"
LIMIT = 256 * 1024
CASES = (Path(__file__).parents[1] / "cases" / "fingerprints.jsonl").read_text("utf-8").splitlines()
REFERENCE = ROOT / "docs/reference/sql.md"
DOORS = ("enqueue", "enqueue_many")
"""The functions that others call; the rest are ours."""

POLICY = {"max_attempts": 3, "key_ttl": 3600.0}


class Told(NamedTuple):
    """An answer, as both doors give it."""

    id: UUID | None
    answer: str
    state: str | None
    result: Any


def row(name: str = KIND, version: int = 1, **changes: Any) -> ops.KindRow:
    return ops.KindRow(name, version, QUEUE, [], False, POLICY, {}, {"type": "object"})._replace(**changes)


def register(store: PostgresStore, *rows: ops.KindRow) -> None:
    store.run(ops.RegisterKinds(rows or [row()]))


@pytest.fixture
def door(postgres: PostgresStore) -> Iterator[Connection[Any]]:
    """A connection in autocommit, on a database that knows one kind."""
    register(postgres)
    with psycopg.connect(postgres.dsn, autocommit=True, row_factory=namedtuple_row) as conn:
        yield conn


@pytest.fixture
def sessions(postgres: PostgresStore) -> Iterator[Sessions]:
    register(postgres)
    sessions = Sessions(postgres)
    yield sessions
    sessions.close()


def call(conn: Connection[Any], **values: Any) -> Told:
    """Call ``tenure.enqueue`` with these values, bound and by name."""
    named = [sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in values]
    row = conn.execute(sql.SQL("select * from tenure.enqueue({})").format(sql.SQL(", ").join(named)), values).fetchone()
    assert row is not None
    return Told(*row)


def one(conn: Connection[Any], payload: Any = None, kind: str = KIND, **options: Any) -> Told:
    """Enqueue a job of our kind."""
    return call(conn, kind=kind, payload=json.dumps(payload or {}), **options)


def many(conn: Connection[Any], *jobs: dict[str, Any], kind: str = KIND, queue: str | None = None) -> list[Told]:
    """Call ``tenure.enqueue_many``; sees that the rows come in order."""
    rows = conn.execute("select * from tenure.enqueue_many(%s, %s, %s)", [kind, json.dumps(jobs), queue]).fetchall()
    assert [row[0] for row in rows] == list(range(1, len(jobs) + 1))
    return [Told(*row[1:]) for row in rows]


def python(store: PostgresStore, *jobs: NewJob, queue: str = QUEUE, kind: str = KIND) -> list[Told]:
    """Offer jobs at Python's door, as the kind that the database knows."""
    op = find(store.run(ops.ListKinds()), kind).accept(jobs, max_bytes=LIMIT, queue=queue)
    return [
        Told(told.id, told.answer, told.state.value, None if told.result is None else json.loads(told.result))
        for told in store.run(op)
    ]


def claim(store: PostgresStore, queue: str = QUEUE, kind: str = KIND, version: int = 1) -> list[Any]:
    """The jobs that are due, claimed, with their tokens."""
    from tests.store.steps import claim

    return claim(store, queue=queue, known=[ops.Known(kind, version, 30.0)])


# ------------------------------------------------------------------------------------------------- what is accepted


def test_a_job_that_sql_enqueued_is_claimed_and_completed(door: Connection[Any], postgres: PostgresStore) -> None:
    told = one(door, {"to": "a@example.org"})
    assert (told.answer, told.state, told.result) == ("new", "pending", None)
    [leased] = claim(postgres)
    assert (leased.id, leased.job.arguments, leased.job.kind) == (told.id, {"to": "a@example.org"}, KIND)
    assert (leased.job.priority, leased.job.max_attempts, leased.job.key) == (5, 3, None)
    assert complete(postgres, leased) == "settled"


def test_the_shortest_call_has_no_arguments(door: Connection[Any], postgres: PostgresStore) -> None:
    told = door.execute("select * from tenure.enqueue('work')").fetchone()
    assert told is not None
    assert told._fields == ("id", "answer", "state", "result")
    assert look(postgres, told.id).payload == "{}"
    assert [told.answer for told in many(door, {})] == ["new"]


def test_options_are_kept(door: Connection[Any], postgres: PostgresStore) -> None:
    expires = datetime.now(UTC) + timedelta(days=1)
    told = one(
        door,
        {"order_id": 42},
        key="order-42",
        delay=timedelta(minutes=5),
        priority=3,
        queue="other",
        expires_at=expires,
        headers='{"trace": "x"}',
    )
    assert told.id is not None
    record = postgres.run(ops.LookUp("other", [told.id]))[told.id]
    assert record.available_at is not None
    assert (record.key, record.priority, record.headers) == ("order-42", 3, '{"trace": "x"}')
    assert record.expires_at == expires
    assert record.available_at - record.accepted_at == timedelta(minutes=5)


def test_members_of_many_are_the_same_options(door: Connection[Any], postgres: PostgresStore) -> None:
    at, expires = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) + timedelta(days=1)
    job = {
        "payload": {"n": 1},
        "key": "a",
        "delay": None,
        "at": at.isoformat(),
        "priority": 0,
        "expires_at": expires.isoformat(),
        "headers": {"trace": "x"},
        "replace": False,
    }
    waits: list[dict[str, Any]] = [{"delay": 90}, {"delay": "90s"}, {"delay": 0.5}, {"delay": "1m 30.5s"}]
    tickets = many(door, job, *waits, queue="other")
    assert {told.answer for told in tickets} == {"new"}
    found = postgres.run(ops.LookUp("other", [told.id for told in tickets if told.id]))
    first, *others = [found[told.id] for told in tickets if told.id]
    assert (first.key, first.priority, first.headers) == ("a", 0, '{"trace": "x"}')
    assert (first.available_at, first.expires_at) == (at, expires)
    spent = [(record.available_at or record.accepted_at) - record.accepted_at for record in others]
    assert [waited.total_seconds() for waited in spent] == [90, 90, 0.5, 90.5]


def test_a_moment_in_the_past_means_now(door: Connection[Any], postgres: PostgresStore) -> None:
    told = one(door, at=datetime(2001, 1, 1, tzinfo=UTC))
    assert [leased.id for leased in claim(postgres)] == [told.id]


def test_no_jobs_are_no_rows(door: Connection[Any]) -> None:
    assert many(door) == []
    query = "select * from tenure.enqueue_many('work', (select jsonb_agg('{}'::jsonb) where false))"
    assert door.execute(query).fetchall() == []


def test_ids_are_of_version_7_and_of_now(door: Connection[Any]) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    jobs: list[dict[str, Any]] = [{}] * 50
    ids = [told.id for told in many(door, *jobs) if told.id]
    assert len(set(ids)) == 50
    assert {(id.version, id.variant) for id in ids} == {(7, "specified in RFC 4122")}
    stamps = [datetime.fromtimestamp((id.int >> 80) / 1000, UTC) for id in ids]
    assert before < min(stamps) <= max(stamps) < datetime.now(UTC) + timedelta(seconds=1)


# ------------------------------------------------------------------------------------------------ the same answers


def test_the_answers_are_those_of_python(door: Connection[Any], postgres: PostgresStore) -> None:
    """One sequence through both doors, each into a queue of its own; ids are compared by where they came first."""
    seen: dict[str, list[UUID | None]] = {"sql": [], "py": []}

    def both(*jobs: dict[str, Any]) -> list[Told]:
        made = [new(job.get("payload"), **{name: job[name] for name in job if name != "payload"}) for job in jobs]
        answers = {"sql": many(door, *jobs, queue="sql"), "py": python(postgres, *made, queue="py")}
        alike = []
        for queue, told in answers.items():
            stored = [one if one.answer != "too_large" else Told(None, one.answer, None, None) for one in told]
            seen[queue] += [one.id for one in stored]
            alike.append([(seen[queue].index(one.id), *one[1:]) for one in stored])
        assert alike[0] == alike[1]
        return answers["sql"]

    def answer(*jobs: dict[str, Any]) -> list[str]:
        return [told.answer for told in both(*jobs)]

    first, other = {"payload": {"x": 1}, "key": "a"}, {"payload": {"x": 2}, "key": "a"}
    large = {"payload": {"x": "a" * LIMIT}, "key": "large"}
    assert answer(first) == ["new"]
    assert answer(first) == ["same"]
    assert answer(other) == ["conflict"]
    assert answer(large) == ["too_large"]
    assert answer({**large, "payload": {}}) == ["new"]
    assert answer({**other, "replace": True}) == ["replaced"]
    assert answer(other, first) == ["same", "conflict"]
    bulk = [{"payload": {"x": n}, "key": key} for n, key in [(1, "b"), (1, "b"), (2, "b"), (2, "c")]]
    assert answer(*bulk, {}, {}) == ["new", "same", "conflict", "new", "new", "new"]
    assert answer({**bulk[2], "replace": True}, bulk[0]) == ["replaced", "same"]  # held by x: 1 when both were asked
    for queue in seen:
        for leased in claim(postgres, queue):
            item = ops.Completion(leased.id, leased.token, '{"total": 3}')
            postgres.run(ops.Complete(queue, [item]))
    assert [(told.answer, told.state, told.result) for told in both(other)] == [("same", "done", {"total": 3})]
    assert answer(first) == ["conflict"]
    assert answer({**other, "replace": True}) == ["conflict"]
    shift(postgres, POLICY["key_ttl"] + 1)
    assert answer(first) == ["new"]


@pytest.mark.parametrize("case", [*map(json.loads, CASES)], ids=lambda case: f"{case['a']} {case['b']}")
@pytest.mark.parametrize("sql_first", [True, False], ids=["sql first", "python first"])
def test_fingerprints_are_those_of_python(
    door: Connection[Any], postgres: PostgresStore, case: dict[str, Any], sql_first: bool
) -> None:
    """Payloads travel as they were written, not through this test's JSON."""

    def in_sql(payload: str) -> str:
        return call(door, kind=KIND, payload=payload, key="a").answer

    def in_python(payload: str) -> str:
        return python(postgres, new(payload, key="a"))[0].answer

    assert (in_sql if sql_first else in_python)(case["a"]) == "new"
    assert (in_python if sql_first else in_sql)(case["b"]) == ("same" if case["same"] else "conflict")


def test_a_held_job_is_replaced_until_it_was_claimed(door: Connection[Any], postgres: PostgresStore) -> None:
    first = one(door, {"x": 1}, key="a")
    later = one(door, {"x": 2}, key="a", delay=timedelta(hours=1), replace=True)
    assert (later.id, later.answer, later.state) == (first.id, "replaced", "pending")
    assert claim(postgres) == []
    assert one(door, {"x": 3}, key="a", replace=True).answer == "replaced"
    [leased] = claim(postgres)
    assert leased.job.payload == '{"x": 3}'
    assert one(door, {"x": 3}, key="a", replace=True).answer == "conflict"


# ----------------------------------------------------------------------------------------------------------- kinds


RENAMED = [row("a"), row("b", aliases=["a"])]


@pytest.mark.parametrize(
    "rows",
    [
        [row("a", 1), row("a", 3, queue="newest"), row("a", 2), row("b", 9)],
        RENAMED,
        [row("b", aliases=["x", "a"])],
        [row("a", aliases=["b"]), row("b", aliases=["a"])],
        [row("a", 2, aliases=["b"]), *RENAMED],
        [row("a"), row("b", aliases=["a"]), row("c", 2, aliases=["a", "b"])],
        [row("a", policy={})],
        [row("a", policy={"max_attempts": 7, "key_ttl": 1.5, "lease": 9})],
    ],
)
def test_the_kind_is_the_one_that_runs_jobs_of_this_name_now(postgres: PostgresStore, rows: list[ops.KindRow]) -> None:
    register(postgres, *rows)
    known = postgres.run(ops.ListKinds())
    expected = find(known, "a").accept([new({"x": 1}, key="a")], max_bytes=LIMIT)
    with psycopg.connect(postgres.dsn, autocommit=True) as conn:
        one(conn, {"x": 1}, kind="a", key="a")
        query = (
            "select j.queue, j.kind, version, max_attempts, extract(epoch from ttl)"
            " from tenure.jobs j join tenure.keys k on job_id = id"
        )
        stored = conn.execute(query).fetchall()
    assert stored == [(expected.queue, expected.kind, expected.version, expected.max_attempts, expected.key_ttl)]
    assert [told.answer for told in postgres.run(expected)] == ["same"]


def test_what_an_operator_has_set_wins(door: Connection[Any], postgres: PostgresStore) -> None:
    postgres.run(ops.SetKind(KIND, {"max_attempts": 1, "key_ttl": 60}))
    told = one(door, key="a")
    [leased] = claim(postgres)
    assert (leased.id, leased.job.max_attempts) == (told.id, 1)
    complete(postgres, leased)
    shift(postgres, 61)
    assert look_up_key(postgres, "a") is None


# ---------------------------------------------------------------------------------------------------- transactions


def test_a_job_goes_with_the_callers_transaction(door: Connection[Any]) -> None:
    with door.transaction(force_rollback=True):
        assert one(door, key="a").answer == "new"
        assert one(door, key="a").answer == "same"
    assert door.execute("select count(*) from tenure.jobs").fetchone() == (0,)
    with door.transaction():
        assert one(door, key="a").answer == "new"
    assert door.execute("select count(*) from tenure.jobs").fetchone() == (1,)


def test_a_conflict_leaves_the_callers_transaction_usable(door: Connection[Any]) -> None:
    one(door, {"x": 1}, key="a")
    with door.transaction():
        assert one(door, key="b").answer == "new"
        assert one(door, {"x": 2}, key="a").answer == "conflict"
        assert door.info.transaction_status == pq.TransactionStatus.INTRANS
        assert one(door, key="c").answer == "new"
    keys = door.execute("select key from tenure.jobs order by key").fetchall()
    assert keys == [("a",), ("b",), ("c",)]


def test_a_key_that_is_being_committed_is_waited_for_and_seen(sessions: Sessions) -> None:
    first, second = sessions.pair()
    first.begin()
    held = one(first.conn, {"x": 1}, key="b")
    jobs: list[dict[str, Any]] = [{"payload": {"x": n}, "key": key} for n, key in [(1, "a"), (1, "b"), (2, "b")]]
    waiting = second.start(lambda: many(second.conn, *jobs, {"payload": {"x": 9}}))
    sessions.await_blocked(second, by=first)
    first.commit()
    told = waiting.result(PATIENCE)
    assert [one.answer for one in told] == ["new", "same", "conflict", "new"]
    assert told[1].id == told[2].id == held.id
    assert sessions.one("select count(*) from tenure.jobs") == 3


def test_a_key_that_is_rolled_back_is_taken(sessions: Sessions) -> None:
    first, second = sessions.pair()
    first.begin()
    one(first.conn, {"x": 1}, key="a")
    waiting = second.start(lambda: one(second.conn, {"x": 2}, key="a"))
    sessions.await_blocked(second, by=first)
    first.rollback()
    assert waiting.result(PATIENCE).answer == "new"


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_serialization_failure_passes_through(sessions: Sessions, isolation: str) -> None:
    session = sessions.open()
    session.begin(isolation)
    session.conn.execute("select count(*) from tenure.keys")  # the snapshot is taken
    with psycopg.connect(sessions.store.dsn, autocommit=True) as other:
        one(other, key="a")
    with pytest.raises(psycopg.errors.SerializationFailure):
        one(session.conn, key="a")
    session.rollback()
    session.begin(isolation)
    assert one(session.conn, key="a").answer == "same"
    assert one(session.conn, {"x": 2}, key="a").answer == "conflict"
    assert one(session.conn, key="b").answer == "new"
    session.commit()


def test_of_fifty_callers_at_once_one_gets_a_new_job(postgres: PostgresStore) -> None:
    register(postgres)
    together = Barrier(50)

    def call(number: int) -> Told:
        with psycopg.connect(postgres.dsn, autocommit=True) as conn:
            together.wait(PATIENCE)
            if number % 2:
                return one(conn, {"x": 1}, key="a")
            return many(conn, {"payload": {"x": 1}, "key": "a"})[0]

    with ThreadPoolExecutor(50) as threads:
        told = list(threads.map(call, range(50)))
    assert Counter(one.answer for one in told) == {"new": 1, "same": 49}
    assert len({one.id for one in told}) == 1
    assert len(claim(postgres)) == 1


def test_a_prepared_statement_does_it_again_and_again(door: Connection[Any]) -> None:
    door.execute("prepare enqueue as select * from tenure.enqueue('work', $1, $2)")
    answers = [door.execute(f"""execute enqueue('{{"n": {n}}}', 'k{n % 8}')""").fetchone() for n in range(16)]
    assert [told.answer for told in answers if told] == ["new"] * 8 + ["conflict"] * 8


def test_a_trigger_may_call_it(door: Connection[Any]) -> None:
    with door.transaction(force_rollback=True):
        door.execute("create table orders (id int primary key)")
        door.execute(
            "create function enqueue_order() returns trigger language plpgsql as $$ begin"
            " perform tenure.enqueue('work', jsonb_build_object('order_id', new.id), key => 'order-' || new.id);"
            " return new; end $$"
        )
        door.execute("create trigger enqueue after insert on orders for each row execute function enqueue_order()")
        door.execute("insert into orders select generate_series(1, 3)")
        keys = door.execute("select key, payload from tenure.jobs order by key").fetchall()
        assert keys == [(f"order-{n}", {"order_id": n}) for n in (1, 2, 3)]


# -------------------------------------------------------------------------------------------------------- refusals


LONG = "a" * 501
TOO_LATE = "2100-01-01T00:00:00Z"

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("payload is no JSON object", {"payload": "[1]"}),
    ("payload is no JSON object", {"payload": '"x"'}),
    ("payload is no JSON object", {"payload": "null"}),
    ("payload is no JSON object", {"payload": None}),
    ("key is no text of 1 to 500 bytes", {"key": ""}),
    ("key is no text of 1 to 500 bytes", {"key": LONG}),
    ("key is no text of 1 to 500 bytes", {"key": "é" * 251}),
    ("priority is no whole number from 0 to 9", {"priority": -1}),
    ("priority is no whole number from 0 to 9", {"priority": 10}),
    ("delay is no time from 0 to 3650 days", {"delay": "-1 second"}),
    ("delay is no time from 0 to 3650 days", {"delay": "3651 days"}),
    ("cannot have both a delay and a moment", {"delay": "1 second", "at": "2030-01-01 00:00:00+00"}),
    ("at is no moment", {"at": "1999-12-31 23:59:59+00"}),
    ("at is no moment", {"at": "infinity"}),
    ("at is no moment", {"at": "0044-03-15 00:00:00+00 BC"}),
    ("at is no moment", {"at": TOO_LATE}),
    ("expires_at is no moment", {"expires_at": "-infinity"}),
    ("expires_at is no moment", {"expires_at": TOO_LATE}),
    ("headers are no JSON object", {"headers": "[]"}),
    ("headers are no JSON object", {"headers": json.dumps({"x": "a" * 16384})}),
    ("without a key replaces nothing", {"replace": True}),
    ("cannot be the name of a queue", {"queue": ""}),
    ("cannot be the name of a queue", {"queue": "a b"}),
    ("cannot be the name of a queue", {"queue": "a\n"}),
    ("cannot be the name of a queue", {"queue": "a" * 101}),
]


@pytest.mark.parametrize(("says", "options"), REFUSED, ids=lambda value: str(value)[:60])
def test_a_mistake_in_the_call_is_an_error_with_a_hint(
    door: Connection[Any], says: str, options: dict[str, Any]
) -> None:
    with pytest.raises(psycopg.DatabaseError, match=says) as caught:
        call(door, kind=KIND, **options)
    assert caught.value.sqlstate == "TN002"
    assert caught.value.diag.message_hint
    assert door.execute("select count(*) from tenure.jobs").fetchone() == (0,)


MISTAKES: list[tuple[str, Any]] = [
    ("It is no object", 5),
    ("It is no object", None),
    ("It is no object", [{}]),
    ("a member that is not known", {"order_id": 42}),
    ("a member that is not known", {"payload": {}, "Key": "a"}),
    ("a member that is not known", {"queue": "other"}),
    ("payload is no JSON object", {"payload": None}),
    ("payload is no JSON object", {"payload": "{}"}),
    ("key is no text", {"key": 5}),
    ("key is no text", {"key": {}}),
    ("key is no text", {"key": LONG}),
    ("priority is no whole number", {"priority": 5.5}),
    ("priority is no whole number", {"priority": 5.0}),
    ("priority is no whole number", {"priority": "5"}),
    ("priority is no whole number", {"priority": 10**30}),
    ("delay is no time", {"delay": True}),
    ("delay is no time", {"delay": -0.001}),
    ("delay is no time", {"delay": 10**400}),
    ("delay is no time", {"delay": "-5 minutes"}),
    ('[Ii]nvalid input syntax for type interval: "soon"', {"delay": "soon"}),
    ("cannot have both", {"delay": 1, "at": "2030-01-01T00:00:00Z"}),
    ("at is no moment", {"at": 1893456000}),
    ("at is no moment", {"at": "2030-01-01T00:00:00"}),
    ("at is no moment", {"at": "2030-01-01"}),
    ("at is no moment", {"at": "tomorrow"}),
    ("at is no moment", {"at": "now"}),
    ("at is no moment", {"at": "01/02/2030 00:00:00Z"}),
    ("out of range", {"at": "2030-13-01T00:00:00Z"}),
    ("out of range", {"expires_at": "2030-01-01T25:00:00Z"}),
    ("out of range", {"at": "2030-01-01T00:00:00+99:00"}),
    ("expires_at is no moment", {"expires_at": "never"}),
    ("headers are no JSON object", {"headers": "{}"}),
    ("replace is neither", {"replace": "yes", "key": "a"}),
    ("without a key", {"replace": True}),
]


@pytest.mark.parametrize(("says", "job"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_in_one_of_many_refuses_all_and_says_which(door: Connection[Any], says: str, job: Any) -> None:
    with pytest.raises(psycopg.DatabaseError, match=says) as caught:
        many(door, {"key": "fine"}, job)
    assert caught.value.sqlstate == "TN002"
    assert caught.value.diag.message_hint
    assert "syntax" in says or "range" in says or "Job 2: " in str(caught.value)
    assert door.execute("select count(*) from tenure.jobs").fetchone() == (0,)


@pytest.mark.parametrize("jobs", ["{}", "null", "5"])
def test_what_is_no_array_is_refused(door: Connection[Any], jobs: str) -> None:
    with pytest.raises(psycopg.DatabaseError, match="no JSON array") as caught:
        door.execute("select * from tenure.enqueue_many('work', %s)", [jobs])
    assert caught.value.sqlstate == "TN002"


@pytest.mark.parametrize("kind", ["mail", "", "'; drop schema tenure cascade; --", "a" * 1000, None])
def test_an_unknown_kind_is_a_mistake_and_not_a_conflict(door: Connection[Any], kind: str | None) -> None:
    for query in ("select tenure.enqueue(%s)", "select tenure.enqueue_many(%s, '[]')"):
        with pytest.raises(psycopg.DatabaseError, match="Nobody registered a kind") as caught:
            door.execute(query, [kind])
        assert caught.value.sqlstate == "TN001"
        assert "a conflict is an answer" in str(caught.value.diag.message_hint)


def test_after_a_mistake_a_savepoint_saves_the_transaction(door: Connection[Any]) -> None:
    with door.transaction():
        one(door, key="a")
        with pytest.raises(psycopg.DatabaseError), door.transaction():
            one(door, priority=11)
        one(door, key="b")
    assert door.execute("select count(*) from tenure.jobs").fetchone() == (2,)


# ------------------------------------------------------------------------------------------------ whoever calls it


HOSTILE = [
    "'",
    '"',
    "\\",
    "%s",
    "%(key)s",
    "$1",
    "'; drop schema tenure cascade; --",
    "$body$",
    "{accept}",
    "\x01",
    "😀",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_values_are_values(door: Connection[Any], postgres: PostgresStore, text: str) -> None:
    told = one(door, {text: text}, key=text, headers=json.dumps({text: text}))
    assert told.id is not None
    record = look(postgres, told.id)
    assert (record.key, json.loads(record.payload)) == (text, {text: text})
    assert one(door, {text: text}, key=text).answer == "same"
    assert many(door, {"payload": {text: text}, "key": text})[0].answer == "same"


def test_the_callers_settings_change_nothing(door: Connection[Any], postgres: PostgresStore) -> None:
    with door.transaction(force_rollback=True):
        door.execute("create schema decoy")
        for table in ("jobs", "keys", "kinds"):
            door.execute(f"create table decoy.{table} (id int)")
        door.execute(
            "create function decoy.jsonb_typeof(jsonb) returns text language sql as $$ select 'decoy' $$;"
            "create function decoy.octet_length(text) returns int language sql as $$ select 1000000 $$"
        )
        for setting in (
            "search_path = decoy, pg_catalog",
            "datestyle = 'German, DMY'",
            "intervalstyle = 'iso_8601'",
            "timezone = 'Pacific/Auckland'",
            "bytea_output = 'escape'",
            "extra_float_digits = -15",
            "plpgsql.variable_conflict = 'error'",
        ):
            door.execute(f"set local {setting}")
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2, hours=1)
        first = one(door, {"x": 1}, key="a", at=at)
        assert first.answer == "new"
        same = {"payload": {"x": 1}, "key": "a"}
        assert [told.answer for told in many(door, same, {"delay": "5 minutes"})] == ["same", "new"]
        stored = door.execute(
            "select available_at = %s as then, available_at - accepted_at = '5 minutes' as later from tenure.jobs"
            " order by seq",
            [at],
        )
        assert stored.fetchall() == [(True, False), (False, True)]


def test_texts_with_old_backslashes_are_read_alike(door: Connection[Any]) -> None:
    door.execute("set standard_conforming_strings = off; set escape_string_warning = off")
    assert one(door, {"x": 1}, key="a", delay=timedelta(seconds=1)).answer == "new"
    assert one(door, {"x": 1}, key="a").answer == "same"


@pytest.fixture
def producer(door: Connection[Any], postgres: PostgresStore) -> Iterator[Connection[Any]]:
    """The same door, in a producer's role."""
    with a_role(postgres.dsn) as role:
        postgres.grant(Grants(producers=[role]))
        door.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        yield door
        door.execute("reset role")


def test_a_role_with_these_rights_enqueues_and_no_more(producer: Connection[Any], postgres: PostgresStore) -> None:
    assert one(producer, {"x": 1}, key="a").answer == "new"
    assert one(producer, {"x": 2}, key="a", replace=True).answer == "replaced"
    assert [told.answer for told in many(producer, {"key": "a"}, {"key": "b"})] == ["conflict", "new"]
    for leased in claim(postgres):
        complete(postgres, leased)
    shift(postgres, POLICY["key_ttl"] + 1)
    assert one(producer, {"x": 3}, key="a").answer == "new"
    for forbidden in (
        "select payload from tenure.jobs",
        "delete from tenure.jobs",
        "update tenure.jobs set state = 'pending'",
        "select from tenure.dead",
        "update tenure.kinds set queue = 'x'",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            producer.execute(forbidden)


def test_the_rights_are_the_callers(door: Connection[Any]) -> None:
    role = f"stranger_{door.info.backend_pid}"
    with door.transaction(force_rollback=True):
        door.execute(f"create role {role}; grant usage on schema tenure to {role}; set local role {role}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            one(door)


# ------------------------------------------------------------------------------------------------ made by migrate


@pytest.fixture
def fresh(server: Server) -> Iterator[PostgresStore]:
    """A store on a database that tests may change the schema of."""
    dsn = server.fresh()
    store = PostgresStore(dsn)
    register(store)
    yield store
    store.close()
    server.drop(dsn)


def made(store: PostgresStore) -> list[tuple[Any, ...]]:
    """Those of the functions that are there: name, the transaction that made them, and their bodies."""
    with psycopg.connect(store.dsn) as conn:
        return conn.execute(
            "select proname, p.xmin::text, prosrc from pg_proc p join pg_namespace n on n.oid = pronamespace"
            " where nspname = %s and proname = any(%s) order by proname desc",
            [store.schema, list(FUNCTIONS)],
        ).fetchall()


def run(store: PostgresStore, statement: str) -> None:
    with psycopg.connect(store.dsn, autocommit=True) as conn:
        conn.execute(statement)


def answer(store: PostgresStore) -> str:
    with psycopg.connect(store.dsn, autocommit=True) as conn:
        return one(conn).answer


def test_migrate_again_leaves_the_functions_as_they_are(fresh: PostgresStore) -> None:
    before = made(fresh)
    assert [name for name, *_ in before] == sorted(FUNCTIONS, reverse=True)
    assert fresh.migrate() == []
    assert made(fresh) == before
    assert answer(fresh) == "new"


def test_migrate_brings_back_what_was_dropped_or_changed(fresh: PostgresStore) -> None:
    bodies = [body for *_, body in made(fresh)]
    run(fresh, "drop function tenure.enqueue")
    run(fresh, function("enqueue_many", "tenure").text.replace("262144", "1"))
    assert fresh.migrate() == []
    assert answer(fresh) == "new"
    run(
        fresh,
        "create or replace function tenure.enqueue_many(kind text, jobs jsonb, queue text default null)"
        " returns table (n integer, id uuid, answer text, state text, result jsonb) language sql as"
        " $$ select 1, null::uuid, 'changed', null, null::jsonb $$",
    )
    assert answer(fresh) == "changed"
    fresh.migrate()
    assert answer(fresh) == "new"
    assert [body for *_, body in made(fresh)] == bodies


def test_a_statement_that_was_prepared_before_works_after_migrate(fresh: PostgresStore) -> None:
    with psycopg.connect(fresh.dsn, autocommit=True) as conn:
        conn.execute("prepare enqueue as select answer from tenure.enqueue('work')")
        assert conn.execute("execute enqueue").fetchone() == ("new",)
        run(fresh, function("enqueue_many", "tenure").text)
        assert conn.execute("execute enqueue").fetchone() == ("new",)


def test_older_code_leaves_the_functions_of_newer_code_alone(fresh: PostgresStore) -> None:
    run(fresh, "insert into tenure.migrations (number, name, compatible) values (9999, 'later', true)")
    run(fresh, "".join(f"drop function tenure.{name};" for name in FUNCTIONS))
    fresh.migrate()
    assert made(fresh) == []


@pytest.mark.parametrize("schema", ["other", "order", "a" * 63])
def test_another_schema_has_functions_of_its_own(fresh: PostgresStore, schema: str) -> None:
    other = PostgresStore(fresh.dsn, schema)
    other.migrate()
    register(other)
    run(fresh, "drop schema tenure cascade")
    with psycopg.connect(fresh.dsn, autocommit=True) as conn:
        query = in_schema("select answer from tenure.enqueue('work', key => 'a')", schema)
        assert [conn.execute(query).fetchone() for _ in range(2)] == [("new",), ("same",)]
    other.close()


def test_the_functions_are_those_that_are_promised(fresh: PostgresStore) -> None:
    """Their signatures are a promise: what is here may grow at its end, in a migration that drops the old one."""
    assert signatures(fresh) == {
        "enqueue": "kind text, payload jsonb DEFAULT '{}'::jsonb, key text DEFAULT NULL::text, delay interval DEFAULT"
        " NULL::interval, priority integer DEFAULT NULL::integer, queue text DEFAULT NULL::text, at timestamp with time"
        " zone DEFAULT NULL::timestamp with time zone, expires_at timestamp with time zone DEFAULT NULL::timestamp with"
        " time zone, headers jsonb DEFAULT NULL::jsonb, replace boolean DEFAULT NULL::boolean, order_key text DEFAULT"
        " NULL::text"
        " -> TABLE(id uuid, answer text, state text, result jsonb)",
        "enqueue_many": "kind text, jobs jsonb, queue text DEFAULT NULL::text"
        " -> TABLE(n integer, id uuid, answer text, state text, result jsonb)",
    }


def signatures(store: PostgresStore) -> dict[str, str]:
    """Arguments and columns of each function that is for others to call."""
    with psycopg.connect(store.dsn) as conn:
        found: list[tuple[str, str]] = conn.execute(
            "select proname, pg_get_function_arguments(p.oid) || ' -> ' || pg_get_function_result(p.oid)"
            " from pg_proc p join pg_namespace n on n.oid = pronamespace where nspname = 'tenure' and proname = any(%s)",
            [list(DOORS)],
        ).fetchall()
    return dict(found)


def test_every_argument_column_and_error_is_explained(fresh: PostgresStore) -> None:
    text = REFERENCE.read_text("utf-8")
    shown = {
        heading: re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE)
        for heading, body in re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE)
    }
    columns: list[str] = []
    for name, signature in signatures(fresh).items():
        arguments, _, table = signature.partition(" -> TABLE")
        assert shown[f"tenure.{name}"] == re.findall(r"(?:^|, )(\w+)", arguments)
        columns = max(columns, re.findall(r"(\w+) \w+[,)]", table), key=len)
    answers = ["new", "same", "replaced", "conflict", "too_large"]
    assert shown["Answers"] == [*columns, *answers]
    assert shown["Errors"] == ["TN001", "TN002", "TN003", "40001"]
