"""What the annotation of ``tx`` asks for, and what it cannot ask for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Optional

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import DictRow
from sqlalchemy.ext import asyncio as sqlalchemy_async
from sqlalchemy.orm import Session, scoped_session

from tenure import ConfigError, Tenure
from tenure.forms import Form, form_of


class Mine(Session):
    """A session of somebody's own."""


class MineAsync(sqlalchemy_async.AsyncSession):
    """And one for the event loop."""


class MyConnection(psycopg.Connection[Any]):
    """A connection that no effect could be given."""


@pytest.mark.parametrize(
    ("hint", "is_async", "form"),
    [
        (Any, True, Form(True)),
        (Any, False, Form(False)),
        (psycopg.AsyncConnection, True, Form(True)),
        (psycopg.AsyncConnection[DictRow], True, Form(True)),
        (psycopg.Connection, False, Form(False)),
        (psycopg.Connection[Any], False, Form(False)),
        (psycopg.Connection | None, False, Form(False)),
        (Optional[psycopg.Connection[Any]], False, Form(False)),  # noqa: UP045 - as older code writes it
        (Annotated[psycopg.Connection, "whatever"], False, Form(False)),
        (sqlalchemy.Connection, False, Form(False, "connection")),
        (sqlalchemy_async.AsyncConnection, True, Form(True, "connection")),
        (Session, False, Form(False, "session", Session)),
        (Mine, False, Form(False, "session", Mine)),
        (sqlalchemy_async.AsyncSession, True, Form(True, "session", sqlalchemy_async.AsyncSession)),
        (MineAsync, True, Form(True, "session", MineAsync)),
    ],
    ids=str,
)
def test_the_annotation_chooses(hint: Any, is_async: bool, form: Form) -> None:
    assert form_of("work", hint, is_async=is_async) == form


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "hint",
    [
        int,
        "psycopg",
        MyConnection,
        scoped_session[Session],
        psycopg.Connection | psycopg.AsyncConnection,
        Callable,
    ],
    ids=str,
)
def test_what_no_effect_can_be_given_is_refused(hint: Any, is_async: bool) -> None:
    with pytest.raises(ConfigError, match=r"work is an effect whose tx is .* tx can be psycopg's"):
        form_of("work", hint, is_async=is_async)


@pytest.mark.parametrize(
    "hint", [psycopg.AsyncConnection, sqlalchemy_async.AsyncConnection, sqlalchemy_async.AsyncSession]
)
def test_a_synchronous_handler_cannot_have_an_asynchronous_one(app: Tenure, hint: Any) -> None:
    def work(tx: Any) -> None: ...

    work.__annotations__["tx"] = hint
    with pytest.raises(ConfigError, match=r"work is not async, but its tx is for the event loop.*Write async def"):
        app.job(effect=True)(work)


@pytest.mark.parametrize("hint", [psycopg.Connection, sqlalchemy.Connection, Session])
def test_an_asynchronous_handler_cannot_have_a_synchronous_one(app: Tenure, hint: Any) -> None:
    async def work(tx: Any) -> None: ...

    work.__annotations__["tx"] = hint
    with pytest.raises(ConfigError, match=r"work is async, but its tx is for threads.*Write def"):
        app.job(effect=True)(work)


def test_where_a_handler_runs_follows_from_the_handler(app: Tenure) -> None:
    @app.job(effect=True)
    def in_thread(tx: Session) -> None: ...

    @app.job(effect=True)
    async def on_loop(tx: psycopg.AsyncConnection) -> None: ...

    @app.job(effect=True, cpu=True)
    def in_child(tx: psycopg.Connection) -> None: ...

    assert [kind.runs for kind in (in_thread, on_loop, in_child)] == ["thread", "loop", "child"]


def test_tx_is_no_part_of_the_payload(app: Tenure) -> None:
    @app.job(effect=True)
    def work(tx: Session, order_id: int) -> None: ...

    assert list(work.arguments.schema["properties"]) == ["order_id"]
    assert inspect.signature(work.handler).parameters["tx"].annotation == "Session"


@pytest.fixture
def app() -> Tenure:
    return Tenure("dbname=nowhere")
