"""Every link leads somewhere, every page is found, and every guarantee names a test that exists."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Link, anchors, links, name, pages

every_page = pytest.mark.parametrize("page", pages(), ids=name)


@every_page
def test_every_link_leads_to_a_file(page: Path) -> None:
    assert [_shown(link) for link in links(page) if not link.target.exists()] == []


@every_page
def test_every_anchor_is_a_heading(page: Path) -> None:
    anchored = [link for link in links(page) if link.anchor and link.target.suffix == ".md"]
    assert [_shown(link) for link in anchored if link.anchor not in anchors(link.target)] == []


@every_page
def test_links_stay_in_the_repository(page: Path) -> None:
    assert [_shown(link) for link in links(page) if not link.target.is_relative_to(ROOT)] == []


def test_every_page_of_the_docs_is_reached_from_their_index() -> None:
    seen: set[Path] = set()
    ahead = [ROOT / "docs/index.md"]
    while ahead:
        page = ahead.pop()
        if page.suffix == ".md" and page not in seen and page.exists():
            seen.add(page)
            ahead += [link.target for link in links(page)]
    assert [name(page) for page in pages() if page.is_relative_to(ROOT / "docs") and page not in seen] == []


@every_page
def test_every_linked_test_exists(page: Path) -> None:
    named = [link for link in links(page) if "::" in link.text]
    assert [_shown(link) for link in named if not _is_test(link)] == []


def test_every_guarantee_names_a_test() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = readme.partition("## Guarantees")[2].partition("\n## ")[0].splitlines()
    promised = [row for row in rows if row.startswith("|")][2:]
    assert len(promised) >= 10
    named = [link.line for link in links(ROOT / "README.md") if "::" in link.text]
    assert len(set(named)) >= len(promised)


def test_the_site_can_be_built(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/index.html").exists()


def _is_test(link: Link) -> bool:
    file, _, test = link.text.partition("::")
    return link.target.name == file and test in _tests(link.target)


@cache
def _tests(path: Path) -> frozenset[str]:
    """The names of the tests in a file."""
    tree = ast.parse(path.read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def _shown(link: Link) -> str:
    return f"{name(link.page)}:{link.line}: [{link.text}]({link.path}{'#' + link.anchor if link.anchor else ''})"
