"""One effect in each form that ``tx`` can have: it writes a row, and then does what the test wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tenure import Job, Tenure
from tenure.kind import Kind

TABLE = "create table written (what text primary key, attempt int)"
WRITE = "insert into written (what, attempt) values (%s, %s)"
CORE = text("insert into written (what, attempt) values (:what, :attempt)")

Then = Callable[[Job], Any]
"""What a handler does after it has written; its answer is the handler's."""

Form = Callable[..., Kind]
"""``form(app, then, **options)`` registers a kind ``write`` with the argument ``what``."""


class Base(DeclarativeBase):
    """The models of these tests."""


class Written(Base):
    """A row of the table."""

    __tablename__ = "written"

    what: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int]


def nothing(_: Job) -> None:
    """Come to an end."""


def psycopg_async(app: Tenure, then: Then = nothing, **options: Any) -> Kind:
    @app.job(effect=True, **options)
    async def write(tx: psycopg.AsyncConnection, job: Job, what: str) -> Any:
        await tx.execute(WRITE, [what, job.attempt])
        return then(job)

    return write


def psycopg_sync(app: Tenure, then: Then = nothing, **options: Any) -> Kind:
    @app.job(effect=True, **options)
    def write(tx: psycopg.Connection, job: Job, what: str) -> Any:
        tx.execute(WRITE, [what, job.attempt])
        return then(job)

    return write


def core(app: Tenure, then: Then = nothing, **options: Any) -> Kind:
    @app.job(effect=True, **options)
    def write(tx: Connection, job: Job, what: str) -> Any:
        tx.execute(CORE, {"what": what, "attempt": job.attempt})
        return then(job)

    return write


def session(app: Tenure, then: Then = nothing, **options: Any) -> Kind:
    """Its row is not sent before the handler has ended."""

    @app.job(effect=True, **options)
    def write(tx: Session, job: Job, what: str) -> Any:
        tx.add(Written(what=what, attempt=job.attempt))
        return then(job)

    return write


def async_core(app: Tenure, then: Then = nothing, **options: Any) -> Kind:
    @app.job(effect=True, **options)
    async def write(tx: AsyncConnection, job: Job, what: str) -> Any:
        await tx.execute(CORE, {"what": what, "attempt": job.attempt})
        return then(job)

    return write


def async_session(app: Tenure, then: Then = nothing, **options: Any) -> Kind:
    """Its row is not sent before the handler has ended."""

    @app.job(effect=True, **options)
    async def write(tx: AsyncSession, job: Job, what: str) -> Any:
        tx.add(Written(what=what, attempt=job.attempt))
        return then(job)

    return write


IN_THREADS: list[Form] = [psycopg_sync, core, session]
FORMS: list[Form] = [psycopg_async, *IN_THREADS, async_core, async_session]


def written(database: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """The rows there are, seen from outside."""
    return database.execute("select what, attempt from written order by 1, 2").fetchall()
