"""A repr ends up in logs and in reports of errors: it says which job it is, and nothing of what the job carries.

Every value that is built of fields is looked at, also one that is written tomorrow.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import tenure
from tenure import Tenure
from tenure.job import Job
from tenure.store.protocol import Accept
from tenure.worker import Options
from tests.security.canaries import CARD, KEY, PASSWORD, TRACE, found
from tests.store.steps import look, new, take

CARRIED = frozenset({"payload", "headers", "history", "result", "result_text", "failure", "dsn", "values", "handler"})
"""Names of fields that hold what is somebody else's: payloads, results, and passwords within a DSN."""

HARMLESS = {
    "tenure.bench.process": "the handler is a name of a sort",
    "tenure.chaos.told": "results in the checker are numbers of claims",
    "tenure.embedded.manage": "the socket of an embedded server needs no password",
    "tenure.store.memory_rows": "rows of a test's own memory, in the test's own process",
    "tenure.store.protocol.SetKind": "what an operator sets is a number",
    "tenure.store.protocol.SetQueue": "what an operator sets is a setting",
}
"""Classes, modules and packages that are not looked at, and why."""


def modules() -> Iterator[Any]:
    """Every module of the package that can be imported without being run."""
    for module in pkgutil.walk_packages(tenure.__path__, "tenure."):
        if not module.name.endswith("__main__"):
            yield importlib.import_module(module.name)


def fields_of(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass or named tuple; none of anything else."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return tuple(getattr(cls, "_fields", ()))


def carriers() -> dict[str, type]:
    """Every class of values that carries something, by its full name."""
    classes = {
        f"{module.__name__}.{name}": cls
        for module in modules()
        for name, cls in inspect.getmembers(module, inspect.isclass)
        if cls.__module__ == module.__name__ and CARRIED & set(fields_of(cls))
    }
    return {name: cls for name, cls in classes.items() if not any(f"{name}.".startswith(f"{it}.") for it in HARMLESS)}


def filled(cls: type) -> Any:
    """An instance whose fields carry a secret where they may carry one, and nothing elsewhere."""
    values = {name: CARD if name in CARRIED else None for name in fields_of(cls)}
    if issubclass(cls, tuple):
        return tuple.__new__(cls, values.values())
    made = cls.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def test_a_repr_shows_nothing_of_what_a_value_carries() -> None:
    every = carriers()
    expected = {"tenure.job.Job", "tenure.job.Record", "tenure.job.NewJob", "tenure.ticket.Ticket"}
    assert expected | {"tenure.worker.options.Options", "tenure.worker.outcome.Outcome"} <= every.keys()
    assert {name: repr(filled(cls)) for name, cls in every.items() if found(repr(filled(cls)))} == {}


def test_a_value_without_a_repr_of_its_own_would_be_seen() -> None:
    assert found(tuple.__repr__(filled(Job))) == [CARD]


def test_a_job_says_which_it_is(dsn: str) -> None:
    with Tenure(dsn) as app:
        leased = take(app.store, payload={"card": CARD}, key=KEY, headers=f'{{"trace": "{TRACE}"}}')
        record = look(app.store, leased.id)
        for shown in (repr(leased.job), repr(record)):
            assert str(leased.id) in shown
            assert "payload=…, " in shown
            assert found(shown, known=(KEY,)) == []
        assert leased.job.arguments == {"card": CARD}


def test_an_app_and_what_it_says_hide_what_is_in_them(dsn: str) -> None:
    with Tenure(f"{dsn} password={PASSWORD}") as app:

        @app.job()
        async def charge(card: str) -> None: ...

        app.migrate()
        ticket = charge.enqueue_sync(card=CARD, key=KEY)
        request = charge.request(card=CARD)
        operation = Accept("q", "charge", 1, "charge", 1, 60.0, 1000, [new({"card": CARD})])
        options = Options(dsn=app.dsn)
        for value in (app, app.store, charge, ticket, request, operation, options):
            assert found(repr(value) + str(value), known=(KEY,)) == [], type(value)
