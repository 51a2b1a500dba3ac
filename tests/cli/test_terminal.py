"""In a terminal of 80 columns tables can be read, and notes stand above the progress bar."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.cells import cell_len

from tenure.cli import show
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import ListDead, ListJobs
from tests.cli.terminal import WIDTH, lines_in_terminal
from tests.store.steps import dead, new, offer, take

BAR = "━"


@pytest.fixture
def several(store: PostgresStore) -> list[str]:
    """Jobs in several states; their ids."""
    dead(store, "exhausted")
    take(store)
    offer(store, new('{"order_id": 1}', key="order-1"), kind="mail.send", queue="mail")
    return [str(record.id) for record in (*store.run(ListJobs()), *store.run(ListDead()))]


@pytest.mark.parametrize("args", [["jobs", "list"], ["dead", "list"], ["status"]], ids=" ".join)
def test_a_table_fits_into_eighty_columns(args: list[str], dsn: str, several: list[str]) -> None:
    header, *rows = lines_in_terminal(*args, dsn=dsn)
    *rows, note = rows
    assert note.startswith("Left out, for the terminal is narrow: ")
    assert all(cell_len(line) <= WIDTH for line in (header, *rows))
    assert header.split()[0] in ("id", "queue", "kind")
    if header.startswith("id"):
        assert {row.split()[0] for row in rows} <= set(several)
    assert len(rows) == {"jobs": 2, "dead": 1, "status": 3}[args[0]]


def test_kinds_fit_into_eighty_columns(dsn: str, store: PostgresStore) -> None:
    said = lines_in_terminal("kind", "list", dsn=dsn)
    assert len(said) == 4
    assert all(cell_len(line) <= WIDTH for line in said)


def test_what_is_wider_runs_over_and_is_not_cut(dsn: str, store: PostgresStore) -> None:
    queue = "q" * 90
    offer(store, new("{}", key="k"), queue=queue)
    said = lines_in_terminal("status", dsn=dsn)
    assert any(line.startswith(queue) for line in said)
    assert "…" not in "".join(said)


def test_a_wide_table_has_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(["id", "name"], [["x" * 200, "y"]], least=["name"])
    assert capsys.readouterr() == (f"{'id':200}  name\n{'x' * 200}  y   \n", "")


def test_bad_lines_are_told_above_the_bar(dsn: str, store: PostgresStore, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    good = json.dumps({"kind": "work", "args": {"text": "x" * 200}})
    file.write_text("\n".join([*[good] * 2000, "nonsense", *[good] * 2000, "more nonsense", ""]))
    for how in ([], ["--as-json"]):
        said = lines_in_terminal("enqueue", "--from", file, *how, dsn=dsn)
        assert any(BAR in line for line in said)
        told = [line for line in said if "line 2001" in line or '"line": 2001' in line]
        assert len(told) == 1
        assert_apart(said, "nonsense", "line 2001", "line 4002", '{"line"')


def test_dead_letters_that_cannot_be_redriven_are_told_above_the_bar(dsn: str, store: PostgresStore) -> None:
    for _ in range(3):
        dead(store)
    said = lines_in_terminal("dead", "redrive", "--all", "--as-kind", "mail.send", dsn=dsn)
    assert sum("do not fit" in line for line in said) == 3
    assert_apart(said, "do not fit")


def test_an_end_without_a_bar_shows_no_figures_of_one(dsn: str, store: PostgresStore) -> None:
    assert lines_in_terminal("dead", "discard", "--all", dsn=dsn) == ["0 discarded."]


def assert_apart(said: list[str], *notes: str) -> None:
    """No line has both a bar and a note, and the bar never counts to nothing."""
    assert [line for line in said if BAR in line and any(note in line for note in notes)] == []
    assert [line for line in said if "/?" in line] == []
