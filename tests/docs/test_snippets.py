"""What the pages show is run: each page from the top, in a directory and a database of its own.

Blocks of Python share one namespace. One with ``title="app.py"`` is saved under that name instead of being run. A block
of ``console`` is a script of its ``$`` lines; its other lines are what it prints, with ``…`` for what may differ. A
``fragment`` is not run: it is not complete, or it would install, clone or never end. Fragments are counted, so that they do
not become the rule.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure import Tenure
from tests.docs.pages import ROOT, Block, blocks, name, pages

FRAGMENTS = 8
"""How many there are; raise it when a new one cannot be helped."""

SHOWN = {"text", "sql", "toml", "ini", "yaml", "json"}
"""Languages that are shown and never run."""

every_block = [block for page in pages() for block in blocks(page)]
runnable_pages = [page for page in pages() if any(block.language in ("python", "console") for block in blocks(page))]


@pytest.fixture
def desk(tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a reader sits: an empty directory, a database, and Tenure installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENURE_DSN", dsn)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for imported in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[imported], "__file__", "")):
            _close_apps(vars(sys.modules.pop(imported)))


@pytest.mark.parametrize("page", runnable_pages, ids=name)
def test_a_page_does_what_it_shows(page: Path, desk: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    try:
        for block in blocks(page):
            if not block.fragment:
                _do(block, desk, namespace)
    finally:
        _close_apps(namespace)


@pytest.mark.parametrize("page", ["effects", "transactional-enqueue"])
def test_a_page_does_the_same_on_the_embedded_server(
    page: str, desk: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENURE_DSN")
    monkeypatch.setenv("TENURE_HOME", str(base / page[:6]))
    test_a_page_does_what_it_shows(ROOT / "docs" / "how-to" / f"{page}.md", desk)


@pytest.mark.parametrize("block", [block for block in every_block if block.language == "python"], ids=lambda b: b.place)
def test_python_can_be_read(block: Block) -> None:
    compile(block.text, block.place, "exec")


def test_every_block_names_a_language_that_is_known() -> None:
    known = {"python", "console", *SHOWN}
    assert [block.place for block in every_block if block.language not in known] == []


def test_fragments_stay_few() -> None:
    fragments = [block.place for block in every_block if block.fragment]
    assert len(fragments) <= FRAGMENTS, fragments


def _do(block: Block, desk: Path, namespace: dict[str, Any]) -> None:
    if block.file:
        (desk / block.file).write_text(block.text, "utf-8")
    elif block.language == "python":
        # As many empty lines in front as stand above it in the page, so that a traceback names the right one.
        exec(compile("\n" * block.line + block.text, name(block.page), "exec"), namespace)  # noqa: S102
    elif block.language == "console":
        _run(block)


def _run(block: Block) -> None:
    lines = block.text.splitlines()
    script = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith(("$ ", "> ")))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{block.place}: ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    printed = done.stdout.splitlines() + done.stderr.splitlines()
    for line in lines:
        if line.strip() and not line.startswith(("$ ", "> ")):
            assert any(_pattern(line).fullmatch(one) for one in printed), f"{block.place}: {line!r} not in {printed}"


def _pattern(shown: str) -> re.Pattern[str]:
    words = [".*".join(map(re.escape, word.split("…"))) for word in shown.split()]
    return re.compile(r"\s*" + r"\s+".join(words) + r"\s*")


def _close_apps(namespace: dict[str, Any]) -> None:
    for value in list(namespace.values()):
        if isinstance(value, Tenure):
            value.close()
