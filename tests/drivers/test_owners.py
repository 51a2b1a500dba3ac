"""What the owner of a connection has set for its own ends does not break us, and is as it was afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import psycopg2.extensions
import psycopg2.extras
import pytest
import sqlalchemy as sa
from psycopg import rows
from psycopg.adapt import Dumper, Loader
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tenure import Conflict
from tenure.kind import Kind
from tenure.ticket import Ticket
from tests.drivers.callers import async_engine, asyncpg_args, engine
from tests.drivers.conftest import Watch

LATE = datetime.now(UTC) + timedelta(days=30)


def enqueue_all(work: Kind, conn: Any) -> None:
    """Every answer is what it is on a connection that nobody has touched."""
    new = work.enqueue_sync(1, key="a", at=LATE, expires=LATE + timedelta(days=1), conn=conn)
    replaced = work.enqueue_sync(2, key="a", replace=True, at=LATE, headers={"by": "é"}, conn=conn)
    many = work.enqueue_many_sync([work.request(2, key="a"), work.request(1, key="a")], conn=conn)
    with pytest.raises(Conflict):
        work.enqueue_sync(3, key="a", conn=conn)
    _right([new, replaced, *many])


async def aenqueue_all(work: Kind, conn: Any) -> None:
    """The same on an event loop."""
    new = await work.enqueue(1, key="a", at=LATE, expires=LATE + timedelta(days=1), conn=conn)
    replaced = await work.enqueue(2, key="a", replace=True, at=LATE, headers={"by": "é"}, conn=conn)
    many = await work.enqueue_many([work.request(2, key="a"), work.request(1, key="a")], conn=conn)
    with pytest.raises(Conflict):
        await work.enqueue(3, key="a", conn=conn)
    _right([new, replaced, *many])


def _right(tickets: list[Ticket]) -> None:
    assert [ticket.answer for ticket in tickets] == ["new", "replaced", "same", "conflict"]
    assert {ticket.id for ticket in tickets} == {tickets[0].id}
    assert {type(ticket.id) for ticket in tickets} == {UUID}


@pytest.fixture(autouse=True)
def one_job_is_stored(watch: Watch) -> Iterator[None]:
    yield
    [(payload, headers, at, expires)] = watch.conn.execute(
        "select payload::text, headers::text, available_at, expires_at from tenure.jobs"
    )
    assert (json.loads(payload), json.loads(headers)) == ({"n": 2}, {"by": "é"})
    assert (at, expires) == (LATE, None)


# ------------------------------------------------------------------------------------------------------------- psycopg


class AsBytes(Loader):
    def load(self, data: Any) -> bytes:
        return bytes(data)


class Shouted(Dumper):
    """A UUID or a time as nobody but its owner's own types would read it."""

    def dump(self, obj: Any) -> bytes:
        return b"not for you"


def spoil(conn: Any) -> None:
    """Teach a psycopg connection other types."""
    for name in ("text", "uuid", "bool", "int2", "int4", "int8", "jsonb", "timestamptz"):
        conn.adapters.register_loader(name, AsBytes)
    for cls in (UUID, datetime):
        conn.adapters.register_dumper(cls, Shouted)


@pytest.mark.parametrize(
    "settings",
    [
        {"row_factory": rows.dict_row},
        {"row_factory": rows.scalar_row},
        {"cursor_factory": psycopg.ClientCursor},
        {"cursor_factory": psycopg.RawCursor},
        {"prepare_threshold": 0},
        {"prepare_threshold": None},
    ],
    ids=["dicts", "scalars", "client-side-binding", "raw-queries", "prepares-at-once", "never-prepares"],
)
def test_the_settings_of_a_psycopg_connection(work: Kind, dsn: str, settings: dict[str, Any]) -> None:
    with psycopg.connect(dsn, **settings) as conn:
        enqueue_all(work, conn)


def test_the_types_of_a_psycopg_connection(work: Kind, dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        spoil(conn)
        enqueue_all(work, conn)
        assert conn.execute("select 'as before'::text").fetchone() == (b"as before",)


def test_the_settings_and_types_of_an_async_psycopg_connection(work: Kind, dsn: str) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, row_factory=rows.dict_row) as conn:
            spoil(conn)
            await aenqueue_all(work, conn)
            cursor = await conn.execute("select 'as before'::text as text")
            assert await cursor.fetchone() == {"text": b"as before"}

    asyncio.run(main())


def test_a_psycopg_pipeline(work: Kind, dsn: str) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            async with conn.pipeline():
                await conn.execute("insert into notes values ('sent')")
                await aenqueue_all(work, conn)
                await conn.execute("insert into notes values ('sent, too')")
            await conn.rollback()
        with psycopg.connect(dsn) as conn2, conn2.pipeline():
            enqueue_all(work, conn2)

    asyncio.run(main())


# ------------------------------------------------------------------------------------------------------------- asyncpg


async def codecs(conn: Any) -> None:
    """An owner's own types: as text, as bytes, and encoders that take nothing but them."""
    for name in ("json", "jsonb"):
        await conn.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    await conn.set_type_codec(
        "uuid", schema="pg_catalog", format="text", encoder=lambda own: own.its_own_way(), decoder=str
    )
    await conn.set_type_codec(
        "timestamptz", schema="pg_catalog", format="text", encoder=lambda own: own.its_own_way(), decoder=str
    )


def test_the_codecs_of_an_asyncpg_connection(work: Kind, dsn: str) -> None:
    async def main() -> None:
        conn = await asyncpg.connect(**asyncpg_args(dsn))
        await codecs(conn)
        async with conn.transaction():
            await aenqueue_all(work, conn)
        assert await conn.fetchval("select '00000000-0000-0000-0000-000000000001'::uuid") == str(UUID(int=1))
        await conn.close()

    asyncio.run(main())


def test_an_asyncpg_connection_that_gets_uuids_as_bytes(work: Kind, dsn: str) -> None:
    async def main() -> None:
        conn = await asyncpg.connect(**asyncpg_args(dsn))
        await conn.set_type_codec("uuid", schema="pg_catalog", format="binary", encoder=bytes, decoder=bytes)
        async with conn.transaction():
            await aenqueue_all(work, conn)
        await conn.close()

    asyncio.run(main())


def test_an_asyncpg_connection_with_records_of_its_own_and_no_statement_cache(work: Kind, dsn: str) -> None:
    class Dotted(asyncpg.Record):  # type: ignore[misc]  # asyncpg has no types
        def __getattr__(self, name: str) -> Any:
            return self[name]

    async def main() -> None:
        conn = await asyncpg.connect(**asyncpg_args(dsn), record_class=Dotted, statement_cache_size=0)
        async with conn.transaction():
            await aenqueue_all(work, conn)
        await conn.close()

    asyncio.run(main())


def test_an_asyncpg_connection_in_the_middle_of_a_cursor(work: Kind, dsn: str) -> None:
    async def main() -> None:
        conn = await asyncpg.connect(**asyncpg_args(dsn))
        async with conn.transaction():
            cursor = await conn.cursor("select generate_series(1, 100)")
            assert len(await cursor.fetch(10)) == 10
            await aenqueue_all(work, conn)
            assert len(await cursor.fetch(100)) == 90
        await conn.close()

    asyncio.run(main())


# ---------------------------------------------------------------------------------------------------------- SQLAlchemy


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("options", [{"stream_results": True}, {"yield_per": 1}], ids=["streams", "yields"])
def test_a_sqlalchemy_engine_that_reads_with_server_side_cursors(
    work: Kind, dsn: str, driver: str, options: dict[str, Any]
) -> None:
    with Session(engine(dsn, driver).execution_options(**options)) as session, session.begin():
        enqueue_all(work, session)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_an_asynchronous_sqlalchemy_engine_that_reads_with_server_side_cursors(
    work: Kind, dsn: str, driver: str
) -> None:
    async def main() -> None:
        made = async_engine(dsn, driver).execution_options(stream_results=True, yield_per=1)
        async with AsyncSession(made) as session, session.begin():
            await aenqueue_all(work, session)

    asyncio.run(main())


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_sqlalchemy_engine_with_types_of_its_own(work: Kind, dsn: str, driver: str) -> None:
    made = engine(dsn, driver, json_serializer=repr, json_deserializer=repr)
    sa.event.listen(made, "connect", _uuids_as_text_psycopg if driver == "psycopg" else _uuids_as_text_psycopg2)
    with Session(made) as session, session.begin():
        enqueue_all(work, session)


def _uuids_as_text_psycopg(conn: Any, _: object) -> None:
    conn.adapters.register_loader("uuid", psycopg.types.string.TextLoader)
    for cls in (UUID, datetime):
        conn.adapters.register_dumper(cls, Shouted)


def _uuids_as_text_psycopg2(conn: Any, _: object) -> None:
    as_text = psycopg2.extensions.new_type((2950,), "UUID", lambda value, _: value)
    psycopg2.extensions.register_type(as_text, conn)


def test_a_sqlalchemy_engine_whose_asyncpg_has_codecs(work: Kind, dsn: str) -> None:
    async def main() -> None:
        made = async_engine(dsn, json_serializer=repr, json_deserializer=repr)
        sa.event.listen(made.sync_engine, "connect", lambda conn, _: conn.run_async(codecs))
        async with AsyncSession(made) as session, session.begin():
            await aenqueue_all(work, session)

    asyncio.run(main())


class Base(DeclarativeBase):
    pass


class Note(Base):
    __tablename__ = "notes"
    note: Mapped[str] = mapped_column(primary_key=True)


def test_what_a_sqlalchemy_session_has_not_flushed_is_part_of_the_same_transaction(
    work: Kind, dsn: str, watch: Watch
) -> None:
    with Session(engine(dsn)) as session:
        session.add(Note(note="mine"))
        enqueue_all(work, session)
        assert session.new, "a flush is the session's business"
        session.commit()
    assert watch.notes == ["mine"]


def test_enqueueing_while_a_sqlalchemy_session_flushes(work: Kind, dsn: str, watch: Watch) -> None:
    with Session(engine(dsn)) as session:
        sa.event.listen(session, "after_flush", lambda session, _: enqueue_all(work, session))
        session.add(Note(note="mine"))
        session.commit()
    assert watch.notes == ["mine"]


def test_enqueue_sync_inside_run_sync_of_an_async_session(work: Kind, dsn: str, watch: Watch) -> None:
    async def main() -> None:
        async with AsyncSession(async_engine(dsn)) as session:
            session.add(Note(note="mine"))
            await session.run_sync(lambda session: enqueue_all(work, session))
            assert watch.jobs == []
            await session.commit()

    asyncio.run(main())
    assert watch.notes == ["mine"]


def test_a_sqlalchemy_session_that_failed_to_flush_says_so_itself(work: Kind, dsn: str) -> None:
    with Session(engine(dsn)) as session:
        session.execute(sa.text("alter table notes add primary key (note)"))
        session.add(Note(note="mine"))
        session.flush()
        session.expunge_all()
        session.add(Note(note="mine"))
        with pytest.raises(sa.exc.IntegrityError):
            session.flush()
        with pytest.raises(sa.exc.PendingRollbackError):
            work.enqueue_sync(1, conn=session)
        session.rollback()
        enqueue_all(work, session)
        session.commit()
