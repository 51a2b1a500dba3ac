"""The signature of a handler that gets many jobs in one call: a list of items, one for each job.

An item is a dataclass, a ``TypedDict`` or a pydantic model, and its fields are the arguments of one job: that is what
producers write, what is checked at the door, and what the schema says. Beside it the handler may take ``list[Job]``.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from tenure.arguments import Arguments, hints_of, is_job
from tenure.errors import ConfigError
from tenure.job import Job
from tenure.policy import Duration, duration

LARGEST = 10_000
"""Most jobs in a batch."""

LONGEST = 60.0
"""Longest linger, seconds."""

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_LIKE = "async def send(mails: list[Mail]), or with jobs: list[Job] as well"


class Items(Arguments):
    """What a handler of a batch kind takes.

    Args:
        handler: the function.
        size: most jobs in a batch, 1 to 10,000.
        linger: how long a batch that is not full waits for company, up to 1 minute; None is not at all.
        kind: whose handler it is.

    ``param`` is the name of the parameter that gets the items, and ``job`` that of the one that gets their jobs.

    Raises:
        ConfigError: a value is out of range, or the signature is no batch handler's.
    """

    def __init__(self, handler: Callable[..., Any], size: int, linger: Duration | None, kind: str) -> None:
        self.size = _checked_size(kind, size)
        self.linger = _checked_linger(kind, linger)
        self.tx = self.form = None
        self._name = handler.__name__
        hints = hints_of(handler)
        parameters = list(inspect.signature(handler).parameters.values())
        self.job = next((p.name for p in parameters if _is_jobs(hints.get(p.name))), None)
        others = [p for p in parameters if p.name != self.job]
        if wrong := _wrong(others, hints):
            raise ConfigError(
                f"{self._name} takes batches, but {wrong}.",
                hint=f"Write {_LIKE}. The fields of Mail are the arguments of one job.",
            )
        if not _may_answer(hints.get("return", Any)):
            raise ConfigError(
                f"{self._name} takes batches, but is to return {inspect.formatannotation(hints['return'])}.",
                hint="Return None, where all jobs are done, or a list with a result or an exception for each job.",
            )
        [items] = others
        self.param = items.name
        self._adapter, self._schema = _adapter(self._name, _item(hints[self.param]))
        self.names = tuple(self._schema.get("properties", {}))

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of one job's payload."""
        return self._schema

    def check(self, payload: str) -> None:
        """See that the payload of one job fits.

        Raises:
            InvalidArguments: it does not.
        """
        self._parsed([payload])

    def parse(self, payload: str) -> dict[str, Any]:
        """The keyword arguments of a batch of one.

        Raises:
            InvalidArguments: the payload does not fit.
        """
        return {self.param: self._parsed([payload])}

    def parse_all(self, payloads: Sequence[str]) -> tuple[list[Any], dict[int, BaseException]]:
        """The items of those payloads that fit, and what is wrong with each of the others, by its place."""
        try:
            return self._parsed(payloads), {}
        except BaseException:  # a validator of the item's own may raise anything
            items, refused = [], dict[int, BaseException]()
        for place, payload in enumerate(payloads):
            try:
                items += self._parsed([payload])
            except BaseException as error:
                refused[place] = error
        return items, refused

    def _parsed(self, payloads: Sequence[str]) -> list[Any]:
        try:
            items: list[Any] = self._adapter.validate_json(f"[{','.join(payloads)}]")
        except ValidationError as error:
            raise self._misfit(error, below=1) from None
        return items


def _checked_size(kind: str, size: object) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST:
        raise ConfigError(f"batch of {kind} is {size!r}, but must be a whole number from 1 to {LARGEST}.")
    return size


def _checked_linger(kind: str, linger: Duration | None) -> float:
    try:
        seconds = 0.0 if linger is None else duration(linger)
    except ConfigError as error:
        raise ConfigError(f"linger of {kind}: {error.what}", hint=error.hint) from None
    if seconds > LONGEST:
        raise ConfigError(f"linger of {kind} is {linger!r}, but must be at most {LONGEST:g}s.")
    return seconds


def _wrong(parameters: list[inspect.Parameter], hints: dict[str, Any]) -> str | None:
    """What keeps these parameters, beside that of the jobs, from being one list of items; None where nothing does."""
    for parameter in parameters:
        if parameter.kind not in _NAMED:
            return f"its parameter {parameter.replace(annotation=parameter.empty)} cannot be given by name"
        if is_job(hint := hints.get(parameter.name)) and not _is_jobs(hint):
            return f"its parameter {parameter.name} is one Job, and there are many: jobs: list[Job]"
    if not parameters:
        return "no parameter gets the items"
    items = next((p for p in parameters if _item(hints.get(p.name)) is not None), parameters[0])
    if items.name not in hints:
        return f"its parameter {items.name} has no annotation"
    if typing.get_origin(hint := hints[items.name]) is not list:
        return f"its parameter {items.name} is {inspect.formatannotation(hint)}, and not a list of items"
    if _item(hint) is None:
        [item] = typing.get_args(hint)
        found = inspect.formatannotation(item)
        return f"the items of {items.name} are of type {found}, which is no dataclass, TypedDict or model"
    if len(parameters) > 1:
        extra = next(p for p in parameters if p is not items)
        return f"nothing fills its parameter {extra.name}: all arguments of a job are fields of its item"
    return None


def _may_answer(hint: Any) -> bool:
    """Whether a handler that is annotated to return this may answer what a batch is to answer; what nobody can tell may."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(map(_may_answer, typing.get_args(hint)))
    if typing.get_origin(hint) is typing.Annotated:
        return _may_answer(typing.get_args(hint)[0])
    cls = typing.get_origin(hint) or hint
    if cls is Any or not isinstance(cls, type):
        return True
    try:
        return any(issubclass(answer, cls) for answer in (list, tuple, types.NoneType))
    except TypeError:  # a protocol
        return True


def _is_jobs(hint: Any) -> bool:
    """``list[Job]``, or ``list[Job] | None`` of a handler that is also called by hand."""
    return hint == list[Job] or list[Job] in typing.get_args(hint)


def _item(hint: Any) -> Any:
    """X of ``list[X]``, if X can be the arguments of a job; else None."""
    if typing.get_origin(hint) is not list:
        return None
    [item] = typing.get_args(hint)
    is_record = dataclasses.is_dataclass(item) or hasattr(item, "__required_keys__")  # the latter is a TypedDict
    return item if isinstance(item, type) and (is_record or issubclass(item, BaseModel)) else None


def _adapter(name: str, item: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """What reads a list of items, and the schema of one."""
    try:
        # A model has a config of its own; of the others, unknown names are refused, as those of a signature are.
        adapter = TypeAdapter[Any](list[item], config=ConfigDict(extra="forbid", arbitrary_types_allowed=False))
        schema = adapter.json_schema()
    except (PydanticUserError, NameError, TypeError) as error:
        raise ConfigError(
            f"The items of {name} cannot be filled from JSON: {str(error).splitlines()[0]}",
            hint="Use fields of types pydantic knows.",
        ) from None
    shared = schema.get("$defs", {})
    one = shared[schema["items"]["$ref"].rpartition("/")[2]] if "$ref" in schema["items"] else schema["items"]
    return adapter, {**one, "$defs": shared} if "$ref" in repr(one) else one
