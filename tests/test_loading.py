"""``module:app`` names an app, or the error says what is wrong with it and where."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tenure.app import Tenure
from tenure.errors import ConfigError
from tenure.loading import load

APP = "from tenure import Tenure\napp = Tenure()\nclass Inner: app = Tenure()\nnumber = 7\n"


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A name that no module has yet; the current directory is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"shop_{uuid4().hex}"
    yield name
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def refused(target: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(target)
    return caught.value


def test_an_app_of_the_current_directory(name: str) -> None:
    Path(f"{name}.py").write_text(APP)
    app = load(f"{name}:app")
    assert isinstance(app, Tenure)
    assert load(f"{name}:app") is app
    assert load(f"{name}:Inner.app") is not app
    assert sys.path.count(str(Path.cwd())) == 1


def test_an_app_in_a_package(name: str) -> None:
    Path(name).mkdir()
    Path(name, "jobs.py").write_text(APP)
    assert isinstance(load(f"{name}.jobs:app"), Tenure)


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("", "shop.jobs:app"),
        ("shop", "shop:app"),
        ("shop:", "shop:app"),
        (":app", "shop.jobs:app"),
        ("shop/work.py:queue", "shop.work:queue"),
        ("shop:app()", "shop:app"),
        ("a b:app", "shop.jobs:app"),
        (".shop:app", "shop:app"),
    ],
)
def test_what_names_no_app(target: str, meant: str) -> None:
    error = refused(target)
    assert (error.what, error.hint) == (f"{target!r} names no app.", f"Write module:app, as in {meant}.")


def test_a_module_that_is_not_there(name: str) -> None:
    assert refused(f"{name}:app").what == f"There is no module {name!r}."
    Path(name).mkdir()
    assert refused(f"{name}.jobs:app").what == f"There is no module '{name}.jobs'."
    Path(f"{name}_file.py").touch()
    assert refused(f"{name}_file.jobs:app").what == f"There is no module '{name}_file.jobs'."


def test_a_module_without_it(name: str) -> None:
    Path(f"{name}.py").write_text(APP)
    error = refused(f"{name}:queue")
    assert (error.what, error.hint) == (f"Module {name} has no 'queue'.", f"It has {name}:app.")
    assert refused(f"{name}:number").what == f"{name}:number is not a Tenure but a int."
    assert refused(f"{name}:app.nothing").hint == f"It has {name}:app."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name' ("),
        ("\n\nraise ValueError('not today')", "ValueError: not today ("),
        ("def broken(:", "SyntaxError: "),
        ("raise SystemExit(3)", "SystemExit: 3 ("),
        ("from tenure import Tenure\napp = Tenure(schema='No')", "'No' cannot be a schema name."),
    ],
)
def test_a_module_that_fails_says_so_itself(name: str, text: str, says: str) -> None:
    Path(f"{name}.py").write_text(text)
    error = refused(f"{name}:app")
    assert says in error.what
    assert ", line " in error.what
    assert error.__cause__ is not None


def test_the_place_of_an_error_is_that_of_the_module(name: str) -> None:
    Path(f"{name}.py").write_text("\n\nraise ValueError('not today')")
    assert refused(f"{name}:app").what.endswith(f"({Path(f'{name}.py').resolve()}, line 3)")
