"""``effects``: how fast jobs are done whose effect, dedup row and completion are one commit each.

The floor is pgbench, which says the same statements in the same transactions, with as many clients as a worker has effects
at once: what is missing to it is what the worker itself costs.
"""

from __future__ import annotations

import re
from functools import partial

from psycopg import sql

from tenure.bench import apps, floor
from tenure.bench.apps import QUEUE, TEXT, postings
from tenure.bench.drain import drained, middle
from tenure.bench.measure import ratio
from tenure.bench.queue import NOBODY, Queue, queue_on
from tenure.bench.report import Report, percent, whole
from tenure.bench.server import Server
from tenure.bench.wishes import Wishes
from tenure.store.statements import statement

CLIENTS = 10
"""Effects that a worker has open at the same time."""

_TABLE = "create table {postings} (n bigint not null, text text not null)"
_SPAN = 10_000_000  # numbers that each client has for itself

# Jobs that are running, under a token that is no secret: pgbench completes them by their number.
_RUNNING = """
insert into tenure.jobs (queue, id, kind, version, state, priority, attempts, claims, max_attempts, available_at,
                         accepted_at, claimed_at, first_claimed_at, lease_until, token, worker, payload)
select %(queue)s, lpad(to_hex(client * %(span)s + n), 32, '0')::uuid, 'job', 1, 'running', 5, 1, 1, 10, now(), now(), now(),
       now(), now() + interval '1 hour', %(nobody)s, %(nobody)s, jsonb_build_object('text', %(text)s::text, 'n', n)
from generate_series(0, %(clients)s::bigint - 1) client, generate_series(0, %(each)s::bigint - 1) n
"""
_SCRIPT = """
\\set n :client_id * {span} + :i
\\set i :i + 1
begin;
set local idle_in_transaction_session_timeout = {idle};
{dedup};
select pg_current_xact_id()::text;
insert into {postings} (n, text) values (:n, {text});
select pg_current_xact_id()::text;
{complete};
commit;
"""
_ID = "lpad(to_hex(:n::bigint), 32, '0')"


def effects(server: Server, wishes: Wishes) -> Report:
    """Effects of one row each through one worker."""
    with (
        floor.around(server, wishes.show, partial(_floor, server, wishes.jobs)) as found,
        queue_on(server) as queue,
    ):
        queue.conn.execute(sql.SQL(_TABLE).format(postings=postings(queue.schema)))
        rounds = [
            drained(queue, "effects", wishes.jobs, wishes.show, what=f"round {number} of {wishes.rounds}")
            for number in range(1, wishes.rounds + 1)
        ]
        rows = queue.ask("select count(*) from tenure.postings")
    typical = middle(rounds)
    named = [*((str(number), one) for number, one in enumerate(rounds, 1)), ("median", typical)]
    return Report(
        ("round", "jobs/s", "of the floor", "server CPU µs", "worker CPU µs", "WAL bytes"),
        [
            (
                name,
                whole(one.jobs_per_s),
                percent(ratio(one.jobs_per_s, found.jobs_per_s)),
                *one.cost,
            )
            for name, one in named
        ],
        wishes.jobs,
        typical.jobs_per_s,
        floor=found,
        cost=typical.cost,
        shortest=typical.seconds,
        more={"clients": CLIENTS, "effects": rows, "rounds": [whole(one.jobs_per_s) for one in rounds]},
        notes=[f"The floor says the statements of an effect in one transaction, with {CLIENTS} clients."],
    )


def _floor(server: Server, jobs: int) -> float:
    """Transactions a second of pgbench."""
    each = max(1, jobs // CLIENTS)
    with queue_on(server) as queue:
        queue.conn.execute(sql.SQL(_TABLE).format(postings=postings(queue.schema)))
        queue.say(_RUNNING, queue=QUEUE, text=TEXT, nobody=NOBODY, clients=CLIENTS, each=each, span=_SPAN)
        queue.tidy()
        figure = floor.pgbench(server, _script(queue), times=each, clients=CLIENTS, variables={"i": 0})
        if not queue.empty:
            raise AssertionError("pgbench did not complete its jobs")
    return figure


def _script(queue: Queue) -> str:
    """The statements of an effect as pgbench says them, with the number of the job in place of its values."""
    text = sql.Literal(TEXT).as_string()
    [kind] = apps.effects.kinds.values()
    dedup = {
        "queue": f"'{QUEUE}'",
        "dedup_key": f"'id/' || {_ID}",
        "step": "''",
        "job_id": f"{_ID}::uuid",
        "ttl": f"{kind.policy.key_ttl}",
    }
    complete = {
        "queue": f"'{QUEUE}'",
        "id": f"array[{_ID}]",
        "token": f"array['{NOBODY}']",
        "result": "array['null']",
        "front": "null",
    }
    return _SCRIPT.format(
        span=_SPAN,
        idle=int(kind.policy.lease * 1000),
        dedup=_said("dedup", queue.schema, dedup),
        postings=postings(queue.schema).as_string(),
        text=text,
        complete=_said("complete", queue.schema, complete),
    )


def _said(name: str, schema: str, values: dict[str, str]) -> str:
    """One of Tenure's statements, without its comments, with these values."""
    plain = re.sub(r"--.*", "", statement(name, schema))
    return re.sub(r"%\((\w+)\)s", lambda match: values[match[1]], plain).strip()
