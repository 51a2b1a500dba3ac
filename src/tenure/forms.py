"""What the handler of an effect gets as ``tx``: its annotation says.

psycopg's own connection, or SQLAlchemy's connection or session around it; on the event loop for ``async def``, in a thread
for ``def``. Classes are known by their names, so that no library is imported that the handler's module has not imported.
"""

from __future__ import annotations

import typing
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union

from tenure.errors import ConfigError

Alchemy = Literal["connection", "session"]


class Form(NamedTuple):
    """One form of ``tx``.

    Args:
        on_loop: it is used on the event loop; else in a thread.
        alchemy: which of SQLAlchemy's objects it is; None is a psycopg connection.
        cls: the class of a SQLAlchemy session, as annotated.
    """

    on_loop: bool
    alchemy: Alchemy | None = None
    cls: type[Any] | None = None


_KNOWN: dict[str, Form] = {
    "psycopg.AsyncConnection": Form(True),
    "psycopg.Connection": Form(False),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": Form(True, "connection"),
    "sqlalchemy.ext.asyncio.session.AsyncSession": Form(True, "session"),
    "sqlalchemy.engine.base.Connection": Form(False, "connection"),
    "sqlalchemy.orm.session.Session": Form(False, "session"),
}

_ON_LOOP = "psycopg's AsyncConnection, or AsyncConnection or AsyncSession of sqlalchemy.ext.asyncio"
_IN_THREAD = "psycopg's Connection, sqlalchemy's Connection, or Session of sqlalchemy.orm"


def form_of(handler: str, hint: Any, *, is_async: bool) -> Form:
    """The form that an annotation asks for; without one (``Any`` counts as none) it is psycopg's connection.

    Args:
        handler: its name, for messages.
        hint: the resolved annotation of ``tx``.
        is_async: the handler is ``async def``.

    Raises:
        ConfigError: it is no class that an effect can be given, or one for the other sort of handler.
    """
    cls = _class(hint)
    if cls is None:
        return Form(is_async)
    form = _known(cls)
    if form is None:
        raise ConfigError(
            f"{handler} is an effect whose tx is {_shown(cls)}.",
            hint=f"tx can be {_ON_LOOP if is_async else _IN_THREAD}.",
        )
    if form.on_loop != is_async:
        wrong = "async, but its tx is for threads" if is_async else "not async, but its tx is for the event loop"
        raise ConfigError(
            f"{handler} is {wrong} ({_shown(cls)}).",
            hint=f"Write {'def' if is_async else 'async def'}, or take {_ON_LOOP if is_async else _IN_THREAD}.",
        )
    return form


def _class(hint: Any) -> Any:
    """The class in ``C``, ``C[Row]``, ``Annotated[C, ...]`` or ``C | None``; None where nothing is said."""
    origin = typing.get_origin(hint)
    if origin is None:
        return None if hint is Any else hint
    members = [arg for arg in typing.get_args(hint) if arg is not NoneType]
    if origin is Annotated or (origin in (Union, UnionType) and len(members) == 1):
        return _class(members[0])
    return hint if origin in (Union, UnionType) else origin


def _known(cls: Any) -> Form | None:
    """What a class is known as; of SQLAlchemy's sessions a class of somebody's own, derived from one, will do."""
    for place, base in enumerate(getattr(cls, "__mro__", ())):
        form = _KNOWN.get(f"{base.__module__}.{base.__qualname__}")
        if form is not None and form.alchemy == "session":
            return form._replace(cls=cls)
        if form is not None:
            return form if place == 0 else None
    return None


def _shown(cls: Any) -> str:
    return f"{cls.__module__}.{cls.__qualname__}" if isinstance(cls, type) else str(cls)
