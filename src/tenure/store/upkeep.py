"""Upkeep of the archive: partitions are made days ahead and dropped when no queue wants them any more.

Making and dropping are the owner's right, so two functions of the schema do it, which workers may call (migration 0004).
Dropping a partition needs a short exclusive lock on the archive. It is tried with a lock timeout of a moment, so an
hour-long report delays the drop, and nothing else; next time it is tried again.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from psycopg import Connection

from tenure.store.statements import in_schema

AHEAD = 7
"""Days for which partitions are made in advance."""

RETENTION = 7
"""Days ended jobs are kept where the queue says nothing."""

_BATCH = 5000


def upkeep(conn: Connection, schema: str) -> list[str]:
    """Make the partitions that will be needed, drop those that are past; answers what was done.

    Each step is a transaction of its own, so that no lock is held for longer than one of them takes.

    Args:
        conn: an autocommit connection of a worker's role, or of the schema's owner.
    """
    there = _partitions(conn, schema)
    today = _today(conn)
    wanted = {today + timedelta(days=n) for n in range(AHEAD + 1)}
    kept = _longest_retention(conn, schema)
    past = {day for day in there if day < today - timedelta(days=kept)}
    done = [f"made {_partition(day)}" for day in sorted(wanted - there) if _did(conn, schema, "make_partition", day)]
    done += [f"dropped {_partition(day)}" for day in sorted(past) if _did(conn, schema, "drop_partition", day)]
    _forget(conn, schema, kept)
    conn.execute(
        in_schema("delete from tenure.workers where seen_at < clock_timestamp() - %s", schema),
        [timedelta(days=RETENTION)],
    )
    return done


def _forget(conn: Connection, schema: str, kept: int) -> None:
    """What goes with no partition: old rows of the default one, and in small batches those of queues that keep less."""
    conn.execute(
        in_schema(
            "delete from tenure.archive_default where ended_at < clock_timestamp() - make_interval(days => %s)", schema
        ),
        [kept],
    )
    shorter = conn.execute(
        in_schema("select name, coalesce(retention, %s)::int from tenure.queues", schema), [RETENTION]
    ).fetchall()
    for queue, days in shorter:
        while days < kept and _forgotten(conn, schema, queue, days) == _BATCH:
            pass


def _forgotten(conn: Connection, schema: str, queue: str, days: int) -> int:
    return conn.execute(
        in_schema(
            "delete from tenure.archive a where a.queue = %(queue)s and a.id = any(array(select o.id from tenure.archive o"
            " where o.queue = %(queue)s and o.ended_at < clock_timestamp() - make_interval(days => %(days)s)"
            " limit %(limit)s))",
            schema,
        ),
        {"queue": queue, "days": days, "limit": _BATCH},
    ).rowcount


def _partition(day: date) -> str:
    return f"archive_{day:%Y%m%d}"


def _partitions(conn: Connection, schema: str) -> set[date]:
    rows = conn.execute(
        "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = %s::regclass",
        [f'"{schema}".archive'],
    ).fetchall()
    return {datetime.strptime(name[8:], "%Y%m%d").replace(tzinfo=UTC).date() for (name,) in rows if name[8:].isdigit()}


def _today(conn: Connection) -> date:
    row = conn.execute("select (clock_timestamp() at time zone 'UTC')::date").fetchone()
    if row is None:
        raise AssertionError("a select without a row")
    today: date = row[0]
    return today


def _longest_retention(conn: Connection, schema: str) -> int:
    row = conn.execute(
        in_schema("select coalesce(max(coalesce(retention, %s)), 0)::int from tenure.queues", schema), [RETENTION]
    ).fetchone()
    return max(row[0] if row else 0, RETENTION)


def _did(conn: Connection, schema: str, function: str, day: date) -> bool:
    """Have a function of the schema do it with the owner's rights; False when it cannot be done now: nothing is changed."""
    return conn.execute(in_schema(f"select tenure.{function}(%s)", schema), [day]).fetchone() == (True,)
