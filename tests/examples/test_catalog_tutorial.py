"""The tutorial of the catalogue shows the files as they are, and what its commands answer.

What needs no server to listen is run with the other pages, in tests/docs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from examples.catalog_export import stage

from tests.conftest import missing
from tests.docs.pages import Block, blocks
from tests.examples.page import PAGE, TEXT, commands, shown, unanswered
from tests.examples.school import APP, EXAMPLE, FOR_DELIVERIES, FOR_EXPORTS, School
from tests.worker.ledger import until


@pytest.mark.parametrize("block", [b for b in blocks(PAGE) if b.file], ids=lambda block: block.file)
def test_a_file_on_the_page_is_the_file_of_the_example(block: Block) -> None:
    kept = (EXAMPLE.parent / str(block.file)).read_text("utf-8")
    if block.language == "json":
        courses = json.loads(kept)
        assert len(courses) == 14
        assert all(len(course["lessons"]) == 6 for course in courses)
        assert all(course in courses for course in json.loads(block.text))
    else:
        assert block.text == kept


def test_an_excerpt_on_the_page_stands_in_a_file_of_the_example() -> None:
    excerpts = [block.text for block in blocks(PAGE) if block.language == "text" and "def " in block.text]
    sources = [path.read_text("utf-8") for path in EXAMPLE.glob("*.py")]
    assert len(excerpts) == 2
    assert [text for text in excerpts if not any(text in source for source in sources)] == []


def test_each_step_at_which_a_worker_is_killed_is_explained() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \|", TEXT, re.MULTILINE)
    assert rows == [*FOR_EXPORTS, *FOR_DELIVERIES]
    assert len(rows) == 15


def test_the_page_over_http(school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("curl"):
        missing("no curl")
    servers = commands(shown("--port 8000")).splitlines()
    assert servers == [
        "uvicorn catalog_export.receiver:site --port 8100",
        "uvicorn catalog_export.web:site --port 8000",
        "tenure worker catalog_export.jobs:app",
    ]
    kept = str(tmp_path / "receiver.sqlite")
    with (
        stage.server(tmp_path / "receiver.log", "receiver", RECEIVER_DB=kept) as receiver,
        stage.server(tmp_path / "web.log", "web") as web,
    ):
        monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        monkeypatch.setenv("CATALOG_RECEIVER", f"{receiver}/deliveries")
        school.start(APP)

        def script(block: Block) -> str:
            text = commands(block)
            for port, base in (("8100", receiver), ("8000", web)):
                text = text.replace(f"localhost:{port}", base.removeprefix("http://"))
            return text

        for block in (block for block in blocks(PAGE) if "$ curl" in block.text):
            require_answered(block, script(block))


def require_answered(block: Block, script: str) -> None:
    """Run what the reader types until it answers what the page shows: a worker needs a moment."""
    last: list[str] = []

    def answered() -> bool:
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        last[:] = [done.stdout, *unanswered(block, re.sub(r"}(?={)", "}\n", done.stdout))]
        return len(last) == 1

    try:
        until(answered, block.place)
    except TimeoutError as error:
        raise AssertionError(f"{block.place}: {last[1:]} not in {last[0]!r}") from error
