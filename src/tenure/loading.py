"""Finds the application that ``module:app`` names, the way people know it from other servers and workers.

The current directory comes first on the import path. Whatever goes wrong is a ``ConfigError`` that says what and where;
an error that the module itself raises while it is imported is told in its own words and kept as the cause.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from functools import reduce
from types import ModuleType

from tenure.app import Tenure
from tenure.errors import ConfigError, TenureError


def load(target: str) -> Tenure:
    """Import the module and take the app out of it.

    Args:
        target: ``package.module:attribute``; the attribute may have dots.

    Raises:
        ConfigError: no such module or attribute, it is no ``Tenure``, or the module cannot be imported.
    """
    module, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise ConfigError(f"{target!r} names no app.", hint=f"Write module:app, as in {_guess(module, attribute)}.")
    found = _imported(module)
    try:
        app = reduce(getattr, attribute.split("."), found)
    except AttributeError:
        raise ConfigError(f"Module {module} has no {attribute!r}.", hint=_apps(found)) from None
    if not isinstance(app, Tenure):
        raise ConfigError(f"{target} is not a Tenure but a {type(app).__name__}.", hint=_apps(found))
    return app


def _imported(module: str) -> ModuleType:
    _look_here_first()
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and _is_part(error.name, module):
            raise ConfigError(
                f"There is no module {error.name!r}.",
                hint="Run the command in the directory that holds it, or install its package.",
            ) from None
        said = error.what if isinstance(error, TenureError) else f"{type(error).__name__}: {error}"
        hint = error.hint if isinstance(error, TenureError) else ""
        raise ConfigError(f"Module {module} cannot be imported: {said} ({_place(error)})", hint=hint) from error


def _look_here_first() -> None:
    try:
        here = os.getcwd()  # noqa: PTH109  (import paths are text)
    except FileNotFoundError:
        return
    if here not in sys.path:
        sys.path.insert(0, here)


def _is_part(name: str | None, module: str) -> bool:
    """The module itself or a package above it, and not something it imports."""
    return name is not None and f"{module}.".startswith(f"{name}.")


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}"


def _apps(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Tenure)]
    return f"It has {', '.join(f'{module.__name__}:{name}' for name in names)}." if names else "Write app = Tenure()."


def _guess(module: str, attribute: str) -> str:
    dotted = module.removesuffix(".py").replace("/", ".").strip(".")
    named = all(part.isidentifier() for part in dotted.split("."))
    return f"{dotted if named else 'shop.jobs'}:{attribute if attribute.isidentifier() else 'app'}"
