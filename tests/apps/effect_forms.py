"""Effects in each form of ``tx``, here and in child processes: one row of ``written`` for each that was committed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tenure import Backoff, Job, Tenure
from tenure.kind import Kind

app = Tenure()

LEASE = "1s"
QUICK = Backoff("20ms", "40ms")

TABLE = "create table written (id int generated always as identity primary key, what text not null, claim int not null)"
_WRITE = "insert into written (what, claim) values (%s, %s)"
_CORE = text("insert into written (what, claim) values (:what, :claim)")


class Base(DeclarativeBase):
    """The models."""


class Written(Base):
    """A row; nothing keeps it from being written twice."""

    __tablename__ = "written"

    id: Mapped[int] = mapped_column(primary_key=True)
    what: Mapped[str]
    claim: Mapped[int]


def _in_thread(tx: psycopg.Connection, job: Job, what: str) -> int:
    tx.execute(_WRITE, [what, job.claims])
    return os.getpid()


def _in_core(tx: Connection, job: Job, what: str) -> int:
    tx.execute(_CORE, {"what": what, "claim": job.claims})
    return os.getpid()


def _in_session(tx: Session, job: Job, what: str) -> int:
    tx.add(Written(what=what, claim=job.claims))
    return os.getpid()


async def _in_async_core(tx: AsyncConnection, job: Job, what: str) -> int:
    await tx.execute(_CORE, {"what": what, "claim": job.claims})
    return os.getpid()


async def _in_async_session(tx: AsyncSession, job: Job, what: str) -> int:
    tx.add(Written(what=what, claim=job.claims))
    return os.getpid()


_HANDLERS: dict[str, Callable[..., Any]] = {
    "thread": _in_thread,
    "core": _in_core,
    "session": _in_session,
    "async_core": _in_async_core,
    "async_session": _in_async_session,
}

HERE: dict[str, Kind] = {
    name: app.job(name=name, effect=True, lease=LEASE, backoff=QUICK)(handler) for name, handler in _HANDLERS.items()
}
IN_CHILDREN: list[Kind] = [
    app.job(name=f"{name}.child", effect=True, cpu=True, lease="5s", backoff=QUICK)(handler)
    for name, handler in _HANDLERS.items()
]
