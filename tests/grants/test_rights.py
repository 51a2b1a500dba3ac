"""Who may say which statement of the store, table by table and file by file: measured, not read from the grants."""

from __future__ import annotations

import re
from importlib.resources import files

import psycopg
import pytest
from psycopg import Connection, sql

from tenure.errors import ServerUnsuitable
from tenure.store import protocol as ops
from tenure.store.statements import statement
from tests.grants.conftest import Cast

ALL = frozenset(
    file.name[:-4] for file in files("tenure.store").joinpath("sql").iterdir() if file.name.endswith(".sql")
)
OPERATORS = {"set_queue", "set_kind", "set_limit", "pause_queues", "drain_queues", "pause_kinds"}
"""What people set: the owner's to say."""

ENQUEUES = {"accept", "accept_one", "accept_copy", "accept_copy_ordered", "accept_terms", "replace", "ring"}
FINDS_OUT = {"follow", "look_up_key", "list_kinds", "list_migrations"}
ASKS_NO_TABLE = {"now", "go_on_call", "ring"}
LOOKS = {"adopt", "follow", "kept", "list_dead", "list_jobs", "list_kinds", "look_up", "look_up_key", "next_expiry"}
LOOKS |= {"list_migrations", "list_queues", "list_holds", "list_breakers", "oldest", "settled", "status", "waiting"}
LOOKS |= {"list_limits"}

MAY = {
    "owner": ALL,
    "worker": ALL - OPERATORS,
    "producer": ENQUEUES | FINDS_OUT | ASKS_NO_TABLE,
    "viewer": LOOKS | ASKS_NO_TABLE,
    "stranger": ASKS_NO_TABLE,
}


def refused(conn: Connection, text: str) -> bool:
    """Whether the server refuses a statement for want of a right; nothing is carried out."""
    try:
        with conn.transaction(force_rollback=True):
            if re.search(r"^copy\b", text, re.MULTILINE):
                with conn.cursor().copy(text.encode()):
                    pass
            else:  # EXPLAIN looks at the rights of all that the statement would do
                conn.execute(b"explain " + re.sub(r"%\(\w+\)s", "null", text).encode())
    except psycopg.errors.InsufficientPrivilege:
        return True
    except psycopg.errors.BadCopyFileFormat:  # we have sent nothing: it was ready to read
        return False
    return False


@pytest.mark.parametrize("part", MAY)
def test_each_part_may_say_its_statements_and_no_others(cast: Cast, part: str) -> None:
    conn = cast.conn(part)
    assert {name for name in ALL if not refused(conn, statement(name, "tenure"))} == MAY[part]


def writes(name: str) -> bool:
    """Whether a statement changes rows, or locks them."""
    code = re.sub(r"--.*", "", statement(name, "tenure"))
    return re.search(r"\b(insert into|update|delete from|copy)\b", code) is not None


def test_no_statement_that_a_viewer_may_say_writes() -> None:
    assert {name for name in MAY["viewer"] if writes(name)} == set()
    assert len([name for name in ALL if writes(name)]) > 25


def tables(cast: Cast) -> list[str]:
    """All tables of the schema, partitions included."""
    found = cast.admin.execute(
        "select relname from pg_class where relnamespace = 'tenure'::regnamespace and relkind in ('r', 'p')"
    )
    names = [row[0] for row in found]
    assert {"jobs", "archive", "archive_default", "dead", "keys", "dedup", "queues", "kinds", "workers"} < set(names)
    return names


CHANGES = (
    "insert into {} default values",
    "update {} set {} = null",
    "delete from {}",
    "select from {} for update",
    "truncate {}",
    "drop table {}",
    "alter table {} add column more int",
    "create index on {} ({})",
)


def test_a_viewer_and_a_stranger_change_no_table(cast: Cast) -> None:
    column = "select attname from pg_attribute where attrelid = %s::regclass and attnum = 1"
    for part in ("viewer", "stranger"):
        conn, admin = cast.conn(part), cast.admin
        for table in tables(cast):
            [(first,)] = admin.execute(column, [f"tenure.{table}"])
            for change in CHANGES:
                names = [sql.Identifier("tenure", table), sql.Identifier(first)][: change.count("{}")]
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(sql.SQL(change).format(*names))


def test_a_viewer_reads_every_table(cast: Cast) -> None:
    conn = cast.conn("viewer")
    for table in tables(cast):
        if not table.startswith("archive_"):  # partitions are read through their table
            conn.execute(sql.SQL("select * from {}").format(sql.Identifier("tenure", table)))


FORBIDDEN = {
    "worker": [
        "create table tenure.mine (id int)",
        "create function tenure.mine() returns int language sql return 1",
        "alter table tenure.jobs add column more int",
        "drop table tenure.archive_default",
        "truncate tenure.jobs",
        "create schema mine",
        "alter function tenure.drop_partition(date) reset search_path",
        "update tenure.queues set retention = 0",
        "update tenure.queues set paused = false",
        "update tenure.queues set max_depth = null",
        "insert into tenure.holds (kind, cause) values ('work', 'paused')",
        "delete from tenure.holds",
        "select tenure.bind(1)",
        "select tenure.shed('q', 1, 0, 0::smallint, false)",
        "update tenure.origin set system = 0",
        "update tenure.kinds set operator = '{}'",
        "update tenure.limits set operator = '{}'",
        "update tenure.archive set state = 'done'",
        "delete from tenure.queues",
        "insert into tenure.migrations (number, name, compatible) values (9999, 'x', true)",
        "select * from elsewhere.secrets",
    ],
    "producer": [
        "select payload from tenure.jobs",
        "select headers from tenure.jobs",
        "select history from tenure.jobs",
        "select token from tenure.jobs",
        "select * from tenure.jobs",
        "select from tenure.archive",
        "select from tenure.archive_default",
        "select from tenure.dead",
        "select result from tenure.dedup",
        "select token from tenure.keys",
        "select from tenure.workers",
        "delete from tenure.jobs",
        "select from tenure.limits",
        "select from tenure.limit_looks",
        "select * from tenure.promote_limits(1, false)",
        "update tenure.jobs set gate = null",
        "update tenure.jobs set state = 'pending'",
        "update tenure.jobs set priority = 0",
        "update tenure.jobs set cancel = true",
        "update tenure.jobs set token = gen_random_uuid()",
        "update tenure.keys set job_id = gen_random_uuid()",
        "update tenure.keys set expires_at = now()",
        "update tenure.dedup set expires_at = now()",
        "insert into tenure.jobs (state) values ('running')",
        "insert into tenure.jobs (suspect) values (true)",
        "insert into tenure.dedup default values",
        "insert into tenure.kinds default values",
        "update tenure.kinds set queue = 'x'",
        "select tenure.make_partition(current_date)",
        "select tenure.drop_partition(current_date)",
        "select tenure.shed('q', 1, 0, 0::smallint, false)",
        "select tenure.measure('q')",
        "create table tenure.mine (id int)",
        "select * from elsewhere.secrets",
    ],
    "viewer": [
        "select tenure.admit('q', 1, 1, 0::smallint)",
        "select tenure.make_partition(current_date)",
        "select tenure.drop_partition(current_date)",
        "create table tenure.mine (id int)",
        "select * from elsewhere.secrets",
    ],
    "stranger": ["select * from tenure.follow('{}')", "select from tenure.migrations"],
}


@pytest.mark.parametrize("part", FORBIDDEN)
def test_what_is_not_its_part_is_refused(cast: Cast, part: str) -> None:
    cast.admin.execute("create schema elsewhere; create table elsewhere.secrets (word text)")
    conn = cast.conn(part)
    for text in FORBIDDEN[part]:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(text.encode())


@pytest.mark.parametrize(
    ("part", "op"),
    [
        ("producer", ops.ListJobs()),
        ("producer", ops.Status()),
        ("producer", ops.Upkeep()),
        ("viewer", ops.SetQueue("q", {"paused": True})),
        ("viewer", ops.Upkeep()),
        ("worker", ops.SetQueue("q", {"retention": 0})),
        ("worker", ops.PauseQueues(None, paused=False)),
        ("worker", ops.DrainQueues(None)),
        ("viewer", ops.PauseIfRestored()),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_right_that_is_missing_is_told_in_our_words(cast: Cast, part: str, op: ops.Op[object]) -> None:
    with pytest.raises(ServerUnsuitable, match=r"may not do that: permission denied for .*tenure grants"):
        cast.store(part).run(op)
