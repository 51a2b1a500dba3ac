"""Large tables, statements as the store runs them, and the plans PostgreSQL really used (``auto_explain``).

The plans are taken in six situations: before the tables were ever analyzed, after, and when that was while they were empty;
with plans made for the values at hand (custom) and with plans that serve all values (generic). The worst case comes first:
a generic plan that was made while the tables were empty and is used on when they are large.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import Connection

from tenure.job import NewJob
from tenure.store import protocol as ops
from tenure.store.connections import connect
from tenure.store.postgres import PostgresStore
from tests.conftest import Server

QUEUE = "q"
BATCH = 100
MANY = 50_000
RUNNING = 1_000
TOKEN = UUID(int=7)
KNOWN = [ops.Known("work", 1, 30.0), ops.Known("work", 2, 30.0)]

STATISTICS = ("never analyzed", "analyzed", "analyzed while empty")
MODES = ("custom", "generic")
SITUATIONS = [f"{mode}, {statistics}" for statistics in STATISTICS for mode in MODES]

FILL = f"""
    insert into tenure.jobs (queue, id, kind, version, state, priority, max_attempts, available_at, accepted_at,
                             expires_at, key, payload)
    select 'q', gen_random_uuid(), 'work', 1, 'pending', case when n % 10 = 0 then 3 else 5 end, 10,
           now() - interval '1 hour' + n * interval '1 ms', now(), case when n % 50 = 0 then now() + interval '1 day' end,
           case when n % 2 = 0 then 'k' || n end, jsonb_build_object('text', repeat('x', 100))
    from generate_series(1, {MANY}) n;

    insert into tenure.jobs (queue, id, kind, version, state, priority, max_attempts, available_at, accepted_at, payload)
    select 'q', gen_random_uuid(), 'work', 1, 'pending', case when n % 10 = 0 then 3 else 5 end, 10,
           now() + interval '1 hour' + n * interval '1 ms', now(), jsonb_build_object('text', repeat('x', 100))
    from generate_series(1, {MANY}) n;

    insert into tenure.jobs (queue, id, kind, version, state, priority, attempts, max_attempts, available_at, accepted_at,
                             claimed_at, lease_until, token, payload)
    select 'q', gen_random_uuid(), 'work', 1, 'running', 5, 1, 10, now(), now(), now(),
           now() + case when n <= {BATCH} then interval '-1 s' else interval '1 hour' end, '{TOKEN}', '{{}}'
    from generate_series(1, {RUNNING}) n;

    insert into tenure.jobs (queue, id, kind, version, state, priority, attempts, max_attempts, available_at, accepted_at,
                             suspect, payload)
    select 'q', gen_random_uuid(), 'work', 1, 'pending', 5, 1, 10, now(), now(), true, '{{}}'
    from generate_series(1, {2 * BATCH}) n;

    insert into tenure.jobs (queue, id, kind, version, state, priority, attempts, max_attempts, available_at, accepted_at,
                             expires_at, payload)
    select 'q', gen_random_uuid(), 'work', 1, 'pending', 5, 1, 10, now(), now(), now(), '{{}}'
    from generate_series(1, {BATCH}) n;

    insert into tenure.keys (queue, key, kind, fingerprint, job_id, ttl, state, token, expires_at)
    select 'q', 'k' || n, 'work', sha256('x'), gen_random_uuid(), '1 day',
           case when n % 2 = 1 then 'done'::tenure.job_state end, case when n % 2 = 1 then gen_random_uuid() end,
           case when n % 2 = 1 then now() + n * interval '1 hour' end
    from generate_series(1, {MANY}) n;

    insert into tenure.dead (queue, id, seq, kind, version, state, priority, attempts, max_attempts, deferrals, claims,
                             releases, redrives, accepted_at, ended_at, reason, payload)
    select 'q', gen_random_uuid(), n, 'work', 1, 'dead', 5, 1, 10, 0, 1, 0, 0, now(), now(), 'permanent', '{{}}'
    from generate_series(1, {MANY // 5}) n;

    insert into tenure.archive (queue, id, seq, kind, version, state, priority, attempts, max_attempts, deferrals, claims,
                                releases, redrives, accepted_at, ended_at, token, payload)
    select 'q', gen_random_uuid(), n, 'work', 1, 'done', 5, 1, 10, 0, 1, 0, 0, now(), now(), gen_random_uuid(), '{{}}'
    from generate_series(1, {MANY}) n;

    insert into tenure.dedup (queue, dedup_key, job_id, expires_at)
    select 'q', 'q/work/k' || n, gen_random_uuid(), case when n % 4 = 0 then now() + n * interval '1 hour' end
    from generate_series(1, {MANY}) n;
"""  # noqa: S608 - constants


@dataclass(frozen=True)
class Scan:
    """One scan of a table: how it found its rows, and how many it read, those it threw away included."""

    node: str
    table: str
    index: str
    condition: str
    rows: float


@dataclass(frozen=True)
class Plan:
    """What PostgreSQL did for one statement.

    Args:
        scans: of tables, as far as they were executed.
        buffers: pages touched.
    """

    scans: list[Scan]
    buffers: int

    def of(self, table: str) -> list[Scan]:
        """The scans of one table."""
        return [scan for scan in self.scans if scan.table == table]


@dataclass(frozen=True)
class Bounded:
    """An operation on a queue with a bound; what its functions say is explained with it.

    Args:
        setting: of the queue's row.
        depth: what its estimate says; it is not due to be counted.
    """

    op: ops.Op[Any]
    setting: str
    depth: int

    def prepare(self, conn: Connection) -> None:
        """Set the bound, in the transaction that is open."""
        conn.pgconn.exec_(f"update tenure.queues set {self.setting} where name = 'q'".encode())  # noqa: S608 - constants
        soon = int((time.time() + 240) * 1_000_000)  # a moment that is further ahead is of a clock that has gone back
        for register, value in (("depth", self.depth), ("next", soon)):
            conn.pgconn.exec_(f"select setval('tenure.bound_{_number(conn)}_{register}', {value})".encode())


ROOMY = "max_depth = 1000000, when_full = 'reject'"
SHEDDING = "max_depth = {}, when_full = 'shed', shed = '{}'"


def _number(conn: Connection) -> int:
    [(number,)] = conn.execute("select number from tenure.queues where name = 'q'")
    found: int = number
    return found


def statements(conn: Connection) -> dict[str, ops.Op[Any] | Bounded]:
    """Each statement that runs for every job or many times a second, on rows there are."""
    settled = [row[0] for row in conn.execute(_LEASED)] or [uuid4() for _ in range(BATCH)]
    return {
        "claim": ops.Claim(QUEUE, KNOWN, BATCH, uuid4(), uuid4()),
        "claim one": ops.Claim(QUEUE, KNOWN, 1, uuid4(), uuid4()),
        "claim ahead": ops.Claim(QUEUE, KNOWN, BATCH, uuid4(), uuid4(), ahead=True),
        "claim on": ops.Claim(QUEUE, KNOWN, BATCH, uuid4(), uuid4(), _halfway(conn)),
        "oldest": ops.Oldest(QUEUE, KNOWN),
        "claim_suspects": ops.ClaimSuspects(QUEUE, KNOWN, 4, uuid4(), uuid4()),
        "adopt": ops.Adopt(QUEUE, uuid4()),
        "extend": ops.Extend(QUEUE, [ops.Held(id, TOKEN, 30.0) for id in settled]),
        "complete": ops.Complete(QUEUE, [ops.Completion(id, TOKEN, '"x"') for id in settled]),
        "complete one": ops.Complete(QUEUE, [ops.Completion(settled[0], TOKEN, '"x"')]),
        "retry": ops.Retry(QUEUE, [ops.Failed(id, TOKEN, 1.0, "{}") for id in settled]),
        "throttle": ops.Throttle(QUEUE, [ops.Deferred(id, TOKEN, 1.0, "{}") for id in settled]),
        "release": ops.Release(QUEUE, [ops.Unrun(id, TOKEN) for id in settled]),
        "bury": ops.Bury(QUEUE, [ops.Given(id, TOKEN, "permanent", "{}") for id in settled]),
        "settled": ops.Settled(QUEUE, [ops.Unrun(id, TOKEN) for id in settled]),
        "cancel": ops.Cancel(QUEUE, settled),
        "sweep": ops.Sweep(QUEUE),
        "sweep on": ops.Sweep(QUEUE, low=datetime.now(UTC) - timedelta(minutes=1)),
        "next_expiry": ops.NextExpiry(QUEUE),
        "expire": ops.Expire(QUEUE),
        "prune": ops.Prune(BATCH),
        "accept": _accept(None for _ in range(BATCH)),
        "accept keyed": _accept(f"new{n}" for n in range(BATCH)),
        "accept repeated": _accept(f"k{n}" for n in range(1, BATCH + 1)),
        "accept one": _accept(["new"]),
        "accept_one": _accept([None]),
        "accept bounded": Bounded(_accept(None for _ in range(BATCH)), ROOMY, 0),
        "accept keyed bounded": Bounded(_accept(f"new{n}" for n in range(BATCH)), ROOMY, 0),
        "accept repeated bounded": Bounded(_accept(f"k{n}" for n in range(1, BATCH + 1)), ROOMY, 0),
        "accept_one bounded": Bounded(_accept([None]), ROOMY, 0),
        "accept_one refused": Bounded(_accept([None]), "max_depth = 1, when_full = 'reject'", 1),
        "accept_one shedding": Bounded(_accept([None], priority=0), SHEDDING.format(1, "oldest"), 1),
        "accept_one shedding newest": Bounded(_accept([None], priority=0), SHEDDING.format(1, "newest"), 1),
        "accept shedding": Bounded(
            _accept((None for _ in range(BATCH)), priority=0), SHEDDING.format(BATCH, "oldest"), BATCH
        ),
        "move": ops.Move(QUEUE, "other", limit=BATCH),
        "move on": ops.Move(QUEUE, "other", None, 5, datetime.now(UTC) - timedelta(minutes=1), 1, limit=BATCH),
        "move_suspects": ops.MoveSuspects(QUEUE, "other", limit=BATCH),
        "look_up": ops.LookUp(QUEUE, settled[:1]),
        "look_up anywhere": ops.LookUp(None, settled[:3]),
        "look_up_key": ops.LookUpKey(QUEUE, "k1"),
        "dedup": ops.Dedup(QUEUE, "q/work/new", "", uuid4(), None),
        "keep": ops.Keep(QUEUE, "q/work/k1", "", '"x"'),
        "kept": ops.Kept(QUEUE, "q/work/k1", ""),
        "follow": ops.Follow(QUEUE, settled[:3]),
        "replace": ops.Replace(QUEUE, "work", 1, "work", [_job(f"k{n}") for n in range(1, BATCH + 1)]),
    }


STATEMENTS = (
    "claim",
    "claim one",
    "claim ahead",
    "claim on",
    "oldest",
    "claim_suspects",
    "adopt",
    "extend",
    "complete",
    "complete one",
    "retry",
    "throttle",
    "release",
    "bury",
    "settled",
    "cancel",
    "sweep",
    "sweep on",
    "next_expiry",
    "expire",
    "prune",
    "accept",
    "accept keyed",
    "accept repeated",
    "accept one",
    "accept_one",
    "accept bounded",
    "accept keyed bounded",
    "accept repeated bounded",
    "accept_one bounded",
    "accept_one refused",
    "accept_one shedding",
    "accept_one shedding newest",
    "accept shedding",
    "move",
    "move on",
    "move_suspects",
    "look_up",
    "look_up anywhere",
    "look_up_key",
    "dedup",
    "keep",
    "kept",
    "follow",
    "replace",
)

_LEASED = f"""
    select id from tenure.jobs where state = 'running' and lease_until > now() order by id limit {BATCH}
"""  # noqa: S608 - constants


def _halfway(conn: Connection) -> list[ops.Low]:
    """Hints that lie in the middle of what is due."""
    lows = list(ops.EVERYTHING)
    for priority, due in ((3, MANY // 10), (5, MANY)):
        query = (
            "select available_at, seq from tenure.jobs where queue = 'q' and state = 'pending' and priority = %s"
            " and not suspect and available_at <= now() order by available_at, seq offset %s limit 1"
        )
        if row := conn.execute(query, (priority, due // 2)).fetchone():
            lows[priority] = ops.Low(*row)
    return lows


def _accept(keys: Iterable[str | None], priority: int = 5) -> ops.Accept:
    return ops.Accept(QUEUE, "work", 1, "work", 10, 60.0, 10_000, [_job(key, priority) for key in keys])


def _job(key: str | None, priority: int = 5) -> NewJob:
    return NewJob(uuid4(), '{"a": 1}', key=key, priority=priority)


class Explained:
    """A session in which every statement of the store is explained while it runs."""

    def __init__(self, dsn: str, mode: str) -> None:
        self._store = PostgresStore(dsn)
        self._told: list[str] = []
        self.conn = connect(dsn, patience=60.0, prepare_threshold=0)
        self.conn.add_notice_handler(lambda notice: self._told.append(notice.message_primary or ""))
        self.conn.execute("load 'auto_explain'")
        for name, value in _EXPLAIN.items():
            self.conn.execute(f"set auto_explain.{name} = {value}")
        self.conn.execute(f"set plan_cache_mode = force_{mode}_plan")

    def run(self, op: ops.Op[Any] | Bounded) -> Plan:
        """Run an operation and undo it; answers how it was done."""
        if isinstance(op, Bounded):
            self._run(
                op
            )  # its functions are compiled once in a session, and what they name is looked up in the catalog
        return self._run(op)

    def _run(self, op: ops.Op[Any] | Bounded) -> Plan:
        self.conn.pgconn.exec_(b"begin")  # not psycopg's own: after a rollback of its it prepares all statements anew
        bounded, op = (op, op.op) if isinstance(op, Bounded) else (None, op)
        if bounded is not None:
            bounded.prepare(self.conn)
        self._told.clear()
        self._store.run(op, self.conn)
        self.conn.pgconn.exec_(b"rollback")
        told = [_parsed(message) for message in self._told]
        said = [plan for plan in told if plan["Query Text"].startswith("--")]
        [outer] = [_plan(plan["Plan"]) for plan in said]
        inner = [] if bounded is None else [_plan(plan["Plan"]) for plan in told if plan not in said]
        return Plan([scan for plan in (outer, *inner) for scan in plan.scans], outer.buffers)

    def run_all(self) -> dict[str, Plan]:
        self.conn.execute("discard plans")  # as connections of ours do now and then
        return {name: self.run(op) for name, op in statements(self.conn).items()}

    def close(self) -> None:
        self.conn.close()


_EXPLAIN = {
    "log_min_duration": 0,
    "log_analyze": "on",
    "log_buffers": "on",
    "log_format": "json",
    "log_level": "notice",
    "log_nested_statements": "on",
}


def _parsed(message: str) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(message.partition("plan:")[2])
    return plan


def _plan(root: dict[str, Any]) -> Plan:
    scans = [scan for node, table in _nodes(root, "") if (scan := _scan(node, table)) and node["Actual Loops"]]
    return Plan(scans, root["Shared Hit Blocks"] + root["Shared Read Blocks"])


def _nodes(node: dict[str, Any], table: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Every node, with the table it reads: a bitmap index scan says it one level up."""
    table = node.get("Relation Name", table)
    yield node, table
    for child in node.get("Plans", []):
        yield from _nodes(child, table)


def _scan(node: dict[str, Any], table: str) -> Scan | None:
    if not node["Node Type"].endswith("Scan") or node["Node Type"] in ("CTE Scan", "Function Scan", "Subquery Scan"):
        return None
    thrown_away = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    rows = (node["Actual Rows"] + thrown_away) * node["Actual Loops"]
    condition = node.get("Index Cond") or node.get("Recheck Cond") or ""
    return Scan(node["Node Type"], table, node.get("Index Name", ""), condition, rows)


def plans(server: Server, shared: Path, name: str) -> dict[str, dict[str, Plan]]:
    """All plans on one server, by situation and statement; taken once for all workers of the test run."""
    kept = shared / f"plans-{name}.json"
    with (shared / f"plans-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            taken = _taken(server)
            kept.write_text(json.dumps(taken, default=vars))
    return {
        situation: {
            statement: Plan([Scan(**scan) for scan in plan["scans"]], plan["buffers"])
            for statement, plan in found.items()
        }
        for situation, found in json.loads(kept.read_text()).items()
    }


def _taken(server: Server) -> dict[str, dict[str, Plan]]:
    dsn = server.fresh()
    try:
        with psycopg.connect(dsn, autocommit=True) as conn:
            _never_analyze(conn)
            sessions = {mode: Explained(dsn, mode) for mode in MODES}
            conn.execute("insert into tenure.queues (name) values ('q')")
            conn.execute("select tenure.bind(number) from tenure.queues")
            sessions["generic"].run_all()
            conn.execute(FILL)
            found = {f"{mode}, never analyzed": sessions[mode].run_all() for mode in MODES}
            conn.execute("analyze")
            found |= {f"{mode}, analyzed": sessions[mode].run_all() for mode in MODES}
            _emptied(conn)
            conn.execute(FILL)
            for session in sessions.values():
                session.run_all()  # a vacuum has sessions read the catalogue anew, which is not what is counted here
            found |= {f"{mode}, analyzed while empty": sessions[mode].run_all() for mode in MODES}
            for session in sessions.values():
                session.close()
    finally:
        server.drop(dsn)
    return found


def _never_analyze(conn: Connection) -> None:
    """Keep the daemon from analyzing the tables before we look."""
    tables = conn.execute(
        "select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = 'tenure' and c.relkind = 'r'"
    ).fetchall()
    for (table,) in tables:
        conn.execute(f"alter table {table} set (autovacuum_enabled = off)")


def _emptied(conn: Connection) -> None:
    """As a queue is at most moments when autovacuum comes: nothing is in it, and its tables and indexes are still large."""
    for table in ("jobs", "keys", "dead", "archive", "dedup"):
        conn.execute(f"delete from tenure.{table}")  # noqa: S608 - a constant
        conn.execute(f"vacuum (analyze, truncate off) tenure.{table}")
