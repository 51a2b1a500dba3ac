"""``tenure worker``: its options reach the worker, and its exit status comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

import tenure.worker
from tenure.store.postgres import PostgresStore
from tenure.worker import Options
from tests.cli.conftest import Cli
from tests.cli.conftest import tenure as in_process


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Options]]:
    """What the worker was told; it ends with 69."""
    told: list[tuple[str, Options]] = []

    def run(target: str, options: Options) -> int:
        told.append((target, options))
        return 69

    monkeypatch.setattr(tenure.worker, "main", run)
    return told


def test_defaults(cli: Cli, runs: list[tuple[str, Options]]) -> None:
    assert cli("worker", "shop:app").code == 69
    assert runs == [("shop:app", Options())]


def test_everything_that_can_be_said(cli: Cli, runs: list[tuple[str, Options]]) -> None:
    cli(
        *("worker", "shop:app", "--queues", "a, b", "--concurrency", 5, "--processes", 2, "--burst", "--grace", "1m"),
        *("--reload", "--children", 3, "--prefetch", 0, "--dsn", "host=h", "--schema", "s"),
    )
    [(_, options)] = runs
    assert options == Options(
        queues=("a", "b"),
        concurrency=5,
        processes=2,
        burst=True,
        grace=60.0,
        reload=True,
        children=3,
        prefetch=0,
        dsn="host=h",
        schema="s",
    )


@pytest.mark.parametrize(
    "options",
    [["--concurrency", "0"], ["--processes", "0"], ["--grace", "long"], ["--queues", "a b"], ["--children", "x"]],
)
def test_options_that_cannot_be_are_usage(cli: Cli, runs: list[tuple[str, Options]], options: list[str]) -> None:
    assert cli("worker", "shop:app", *options).code == 2
    assert runs == []


def test_an_app_that_is_not_there_is_usage(dsn: str, tmp_path: Path) -> None:
    answer = in_process("worker", "shop.jobs:app", dsn=dsn, cwd=tmp_path)
    assert (answer.code, answer.out) == (2, "")
    assert "There is no module 'shop'." in answer.err
    assert "Traceback" not in answer.err


def test_jobs_from_the_command_line_are_run(dsn: str, tmp_path: Path, store: PostgresStore) -> None:
    (tmp_path / "shop.py").write_text(
        "from tenure import Tenure\n"
        "app = Tenure()\n"
        "@app.job(name='add', queue='sums')\n"
        "def add(a: int, b: int) -> int: return a + b\n"
    )
    assert in_process("migrate", "shop:app", dsn=dsn, cwd=tmp_path).code == 0
    id = in_process("enqueue", "add", "--json", '{"a": 1, "b": 2}', "--as-json", dsn=dsn).json["id"]
    worked = in_process("worker", "shop:app", "--burst", "--queues", "smus", dsn=dsn, cwd=tmp_path)
    assert worked.code == 0, worked.err
    assert "Warning: no kind of shop:app is declared for queue 'smus', only for sums." in worked.err
    worked = in_process("worker", "shop:app", "--burst", "--queues", "sums", dsn=dsn, cwd=tmp_path)
    assert worked.code == 0, worked.err
    assert "Warning" not in worked.err
    shown = in_process("jobs", "show", id, "--json", dsn=dsn).json
    assert (shown["state"], shown["result"]) == ("done", 3)
