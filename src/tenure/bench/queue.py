"""A queue that is measured: in a schema of its own, filled without going through the door.

Jobs are made by the server itself, one statement for any number, so that whoever keeps a worker busy costs little and is
never what limits it. They are the rows that the door would have written.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import Connection

from tenure.bench.apps import QUEUE, TEXT
from tenure.bench.server import Server
from tenure.bench.wishes import Show, nobody_looks
from tenure.store.connections import connect
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Op, SetQueue, T
from tenure.store.statements import in_schema

NOBODY = uuid.UUID(int=0)
"""The worker and the token of jobs that nobody ran."""

_PART = 100_000  # rows a statement: it can be interrupted in between, and told how far it is

# In order of time as those that producers make: their index grows at one end. The n-th of a call has the number n.
_ID = "(lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3)"
_ID += " || '8' || substr(md5(random()::text), 1, 15))::uuid"
_PAYLOAD = "jsonb_build_object('text', %(text)s::text, 'n', n)"

_JOBS = f"""
insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload)
select %(queue)s, {_ID}, 'job', 1, 5, 10, statement_timestamp() + make_interval(secs => %(delay)s), statement_timestamp(),
       {_PAYLOAD}
from generate_series(%(first)s::bigint, %(last)s::bigint) n
"""  # noqa: S608 - constants
_KEYED = f"""
insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload, order_key,
                         gate)
select %(queue)s, {_ID}, 'job', 1, 5, 10, statement_timestamp(), statement_timestamp(), {_PAYLOAD},
       case when n %% %(hot)s = %(hot)s - 1 then 'hot' else 'key' || n %% %(keys)s end, 'order'
from generate_series(%(first)s::bigint, %(last)s::bigint) n
"""  # noqa: S608 - constants
_LIMITED = f"""
insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload, limit_name,
                         limit_key, share, gate)
select %(queue)s, {_ID}, 'job', 1, 5, 10, statement_timestamp(), statement_timestamp(),
       jsonb_build_object('text', %(text)s::text, 'n', -1)
           || case when %(share)s = '' then '{{}}'::jsonb else jsonb_build_object('tenant', %(share)s::text) end,
       %(limit)s, '', %(share)s, 'limit'
from generate_series(%(first)s::bigint, %(last)s::bigint) n
"""  # noqa: S608 - constants
_LOOK = "insert into tenure.limit_looks (limit_name, limit_key, share) values (%(limit)s, '', %(share)s)"
_ARCHIVE = f"""
insert into tenure.archive (queue, id, seq, kind, version, state, priority, attempts, max_attempts, deferrals, claims,
                            releases, redrives, accepted_at, claimed_at, first_claimed_at, ended_at, token, worker, payload)
select %(queue)s, {_ID}, n, 'job', 1, 'done', 5, 1, 10, 0, 1, 0, 0, statement_timestamp(), statement_timestamp(),
       statement_timestamp(), statement_timestamp(), %(nobody)s, %(nobody)s, {_PAYLOAD}
from generate_series(%(first)s::bigint, %(last)s::bigint) n
"""  # noqa: S608 - constants


class Queue:
    """A queue in a schema of its own; made by ``queue_on``.

    Args:
        server: where it is.
        schema: its schema.
        conn: a connection of the command's own.
    """

    def __init__(self, server: Server, schema: str, conn: Connection) -> None:
        self.server = server
        self.schema = schema
        self.conn = conn
        self.store = PostgresStore(server.dsn, schema)

    def run(self, op: Op[T]) -> T:
        """Do an operation."""
        return self.store.run(op)

    def ask(self, query: str, **values: Any) -> Any:
        """The first column of the first row; ``tenure.`` in the query is this schema."""
        row = self.conn.execute(in_schema(query, self.schema).encode(), values or None).fetchone()
        return None if row is None else row[0]

    def say(self, statement: str, **values: Any) -> None:
        """The same without an answer."""
        self.conn.execute(in_schema(statement, self.schema).encode(), values or None)

    def set(self, **values: Any) -> None:
        """Settings of the queue, as ``SetQueue``."""
        self.run(SetQueue(QUEUE, values))

    def fill(
        self,
        jobs: int,
        *,
        delay: float = 0.0,
        keys: int = 0,
        hot: int = 0,
        limit: str = "",
        share: str = "",
        show: Show = nobody_looks,
    ) -> None:
        """So many more jobs are waiting.

        Args:
            delay: seconds until they are due: with it, they are scheduled.
            keys: they have so many ordering keys in turn; 0: none.
            hot: then one in so many has the key that is called hot.
            limit: they wait for a permit of this limit; nobody gives any before it is declared.
            share: in this share of it.
            show: is told how far it is.
        """
        if keys:
            self._made("enqueued", _KEYED, jobs, show, keys=keys, hot=hot)
            return
        if limit:
            self._made("waiting", _LIMITED, jobs, show, limit=limit, share=share)
            self.say(_LOOK, limit=limit, share=share)
            return
        self._made("enqueued" if not delay else "scheduled", _JOBS, jobs, show, delay=delay)

    def archive(self, jobs: int, show: Show = nobody_looks) -> None:
        """So many more jobs have been done."""
        self._made("archived", _ARCHIVE, jobs, show, nobody=NOBODY)

    def _made(self, what: str, statement: str, jobs: int, show: Show, **values: Any) -> None:
        for first in range(0, jobs, _PART):
            last = min(first + _PART, jobs) - 1
            self.say(statement, queue=QUEUE, text=TEXT, first=first, last=last, **values)
            show(what, last + 1, jobs)

    def tidy(self) -> None:
        """What autovacuum and the checkpointer would do at a moment of their own is done now."""
        for table in ("jobs", "archive"):
            self.say(f"vacuum (analyze) tenure.{table}")
        with suppress(psycopg.errors.InsufficientPrivilege):
            self.conn.execute("checkpoint")

    @property
    def empty(self) -> bool:
        """Whether no job is unfinished."""
        return not self.ask("select exists (select from tenure.jobs)")

    @property
    def done(self) -> int:
        """How many jobs the archive has."""
        return int(self.ask("select count(*) from tenure.archive"))

    @property
    def workers(self) -> int:
        """How many workers have said that they are here."""
        return int(self.ask("select count(*) from tenure.workers"))

    def sizes(self) -> dict[str, int]:
        """Bytes of the table of live jobs and of the archive, indexes included, and dead rows of the former."""
        archive = (
            "select coalesce(sum(pg_total_relation_size(relid)), 0)::bigint from pg_partition_tree('tenure.archive')"
        )
        return {
            "jobs_bytes": int(self.ask("select pg_total_relation_size('tenure.jobs')")),
            "archive_bytes": int(self.ask(archive)),
            "dead_rows": int(
                self.ask("select pg_stat_get_dead_tuples('tenure.jobs'::regclass)"),
            ),
        }


@contextmanager
def queue_on(server: Server, **settings: Any) -> Iterator[Queue]:
    """A new queue, for the length of the block.

    Args:
        settings: of the queue, as ``SetQueue``.
    """
    with server.schema() as schema, connect(server.dsn) as conn:
        queue = Queue(server, schema, conn)
        try:
            queue.store.migrate()
            queue.set(**settings)
            yield queue
        finally:
            queue.store.close()
