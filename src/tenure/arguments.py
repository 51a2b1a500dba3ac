"""A handler's signature as the contract for its payload.

The same check runs twice: when a job is enqueued, so that nobody accepts what cannot run, and before the handler, because
the payload may have been accepted by older code. It reads the JSON text itself, so what passes the first time passes the
second. Parameters the worker fills in are no part of it: one annotated ``Job``, and ``tx`` of an effect.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.errors import PydanticUserError

from tenure.errors import ConfigError, InvalidArguments
from tenure.forms import Form, form_of
from tenure.job import Job

_MOST_ERRORS = 5


class Arguments:
    """What a handler takes from its payload.

    Args:
        handler: the function; its annotations are the types.
        effect: its first parameter is the transaction.

    ``tx`` is the name of the transaction's parameter, and ``form`` what the handler gets there; None without an effect.

    Raises:
        ConfigError: the signature cannot be filled from a JSON object, or ``tx`` is annotated with what it cannot be.
    """

    def __init__(self, handler: Callable[..., Any], *, effect: bool) -> None:
        self._name = handler.__name__
        hints = hints_of(handler)
        parameters = list(inspect.signature(handler).parameters.values())
        self.tx: str | None = _transaction(handler, parameters) if effect else None
        self.form: Form | None = _form(handler, hints) if effect else None
        self.job = next((p.name for p in parameters if is_job(hints.get(p.name))), None)
        fields: dict[str, Any] = {}
        for parameter in parameters:
            if hints.get(parameter.name) == list[Job]:
                raise ConfigError(
                    f"{self._name} asks for several jobs ({parameter.name}: list[Job]), and is called for each.",
                    hint=f"Write {parameter.name}: Job, or give it batch=.",
                )
            if parameter.name not in (self.tx, self.job):
                fields[parameter.name] = _field(handler, parameter, hints)
        self.names = tuple(fields)
        self._model = _model(handler, fields)

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the payload."""
        return self._model.model_json_schema()

    def check(self, payload: str) -> None:
        """See that a payload (JSON text) fits.

        Raises:
            InvalidArguments: it does not; the message names what is wrong, never the values.
        """
        try:
            self._model.__pydantic_validator__.validate_json(payload)
        except ValidationError as error:
            raise self._misfit(error) from None

    def parse(self, payload: str) -> dict[str, Any]:
        """The keyword arguments that a payload (JSON text) stands for.

        Raises:
            InvalidArguments: as ``check``.
        """
        try:
            parsed = self._model.model_validate_json(payload)
        except ValidationError as error:
            raise self._misfit(error) from None
        return dict(parsed.__dict__)

    def _misfit(self, error: ValidationError, below: int = 0) -> InvalidArguments:
        return InvalidArguments(f"The arguments do not fit {self._name}: {_told(error, below)}.")


def is_job(hint: Any) -> bool:
    """``Job``, or ``Job | None`` of a handler that is also called by hand."""
    return hint is Job or (typing.get_origin(hint) in (typing.Union, types.UnionType) and Job in typing.get_args(hint))


def hints_of(handler: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a handler, resolved.

    Raises:
        ConfigError: they cannot be.
    """
    try:
        return typing.get_type_hints(handler, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigError(
            f"The annotations of {handler.__name__} cannot be resolved: {error}.",
            hint="Import the names they use where the module can see them, not under TYPE_CHECKING.",
        ) from None


def _transaction(handler: Callable[..., Any], parameters: list[inspect.Parameter]) -> str:
    if not parameters or parameters[0].name != "tx":
        raise ConfigError(f"{handler.__name__} is an effect, but its first parameter is not tx.", hint="def f(tx, ...)")
    return "tx"


def _form(handler: Callable[..., Any], hints: dict[str, Any]) -> Form:
    is_async = inspect.iscoroutinefunction(handler)
    return form_of(handler.__name__, hints.get("tx", Any), is_async=is_async)


def _field(handler: Callable[..., Any], parameter: inspect.Parameter, hints: dict[str, Any]) -> tuple[Any, Any]:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise ConfigError(
            f"{handler.__name__} takes {parameter}, which a JSON object cannot fill.",
            hint="Give every argument a name of its own.",
        )
    default = ... if parameter.default is parameter.empty else parameter.default
    return hints.get(parameter.name, Any), default


def _model(handler: Callable[..., Any], fields: dict[str, Any]) -> type[BaseModel]:
    try:
        return create_model(
            handler.__name__,
            __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False, protected_namespaces=()),
            **fields,
        )
    except (PydanticUserError, NameError, TypeError) as error:
        raise ConfigError(
            f"The parameters of {handler.__name__} cannot be filled from JSON: {str(error).splitlines()[0]}.",
            hint="Use types pydantic knows; names must not begin with an underscore.",
        ) from None


def _told(error: ValidationError, below: int) -> str:
    """Where and what is wrong, without the values: they may be secrets.

    Args:
        below: levels around the payload, of which nothing is said.
    """
    found = error.errors(include_url=False, include_input=False, include_context=False)
    parts = [f"{'.'.join(map(str, e['loc'][below:])) or 'payload'}: {e['msg']}" for e in found[:_MOST_ERRORS]]
    if len(found) > _MOST_ERRORS:
        parts.append(f"and {len(found) - _MOST_ERRORS} more")
    return "; ".join(parts)
