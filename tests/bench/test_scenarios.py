"""Each scenario through the command line with small numbers: the object it prints, and what it leaves behind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from tenure.bench import SCENARIOS
from tests.bench.conftest import on_linux, processes, schemas
from tests.cli.conftest import Answer, here, tenure
from tests.docs.pages import ROOT

FIGURES = {
    "jobs_per_s",
    "floor_jobs_per_s",
    "ratio",
    "p50_ms",
    "p99_ms",
    "wal_bytes_per_job",
    "server_cpu_us",
    "worker_cpu_us",
    "first",
    "last",
    "kept",
    "kept_without_hint",
}
COST = {"wal_bytes_per_job", "server_cpu_us", "worker_cpu_us"}
SPEED = {"jobs_per_s", "floor_jobs_per_s", "ratio"}
TRUST = {"floors_jobs_per_s", "floors_agree", "too_short"}
PAGE = ROOT / "docs/how-to/measure.md"
ABOUT = {"machine", "version", "commit", "postgres", "embedded", "filesystem", "settings"}


def measured(dsn: str, *args: object) -> Answer:
    """A benchmark in the test's database; it has left nothing there, and every field it prints is explained."""
    answer = here("bench", *args, "--json", "--dsn", dsn)
    assert schemas(dsn) == []
    assert fields(answer.json) - set(re.findall(r"`(\w+)`", PAGE.read_text("utf-8"))) == set()
    return answer


def fields(told: Any) -> set[str]:
    """The names of all fields, at any depth; those of the settings are PostgreSQL's."""
    if isinstance(told, list):
        return set().union(*map(fields, told))
    if not isinstance(told, dict):
        return set()
    return told.keys() | set().union(*(fields(value) for name, value in told.items() if name != "settings"))


def checked(answer: Answer, scenario: str, jobs: int, known: set[str]) -> dict[str, Any]:
    """The object, with these figures and no others; all of them above 0."""
    assert answer.code == 0, answer.err
    told: dict[str, Any] = answer.json
    assert told.keys() >= {"scenario", "jobs", *FIGURES, *TRUST, *ABOUT}
    assert (told["scenario"], told["jobs"], told["embedded"]) == (scenario, jobs, False)
    assert {name for name in FIGURES if told[name] is not None} == known
    assert [name for name in known if told[name] <= 0] == []
    if "ratio" in known:
        assert told["ratio"] == pytest.approx(told["jobs_per_s"] / told["floor_jobs_per_s"], abs=0.01)
        assert told["floor_jobs_per_s"] == pytest.approx(sum(told["floors_jobs_per_s"]) / 2, abs=1)
        assert told["floors_agree"] is (min(told["floors_jobs_per_s"]) >= 0.7 * max(told["floors_jobs_per_s"]))
    assert told["settings"]["fsync"] == "on"
    return told


@on_linux
def test_process(dsn: str) -> None:
    told = checked(
        measured(dsn, "process", "--jobs", 300, "--rounds", 3, "--retention", 0), "process", 300, SPEED | COST
    )
    assert len(told["rounds"]) == 3
    assert told["jobs_per_s"] == sorted(told["rounds"])[1]
    assert (told["retention"], told["batch"]) == (0, None)
    assert told["too_short"] is True  # 300 jobs


@on_linux
def test_process_with_two_workers(dsn: str) -> None:
    told = checked(
        measured(dsn, "process", "--jobs", 2000, "--rounds", 1, "--processes", 2), "process", 2000, SPEED | COST
    )
    assert told["processes"] == 2


@on_linux
def test_process_in_batches(dsn: str) -> None:
    told = checked(
        measured(dsn, "process", "--jobs", 1000, "--rounds", 1, "--batch", 300), "process", 1000, SPEED | COST
    )
    assert told["batch"] == 300


@on_linux
def test_enqueue(dsn: str) -> None:
    told = checked(
        measured(dsn, "enqueue", "--jobs", 200),
        "enqueue",
        20,
        SPEED | {"p50_ms", "p99_ms", "wal_bytes_per_job", "server_cpu_us"},
    )
    assert all(way["client_cpu_us"] > 0 for way in told["ways"].values())
    assert {name: way["jobs"] for name, way in told["ways"].items()} == {"single": 20, "bulk": 200, "copy": 200}
    assert all(way["jobs_per_s"] > 0 and way["floor_jobs_per_s"] > 0 for way in told["ways"].values())
    assert told["p50_ms"] <= told["p99_ms"]


def test_latency(dsn: str) -> None:
    told = checked(measured(dsn, "latency", "--seconds", 1), "latency", 50, {"p50_ms", "p99_ms"})
    assert told["p50_ms"] <= told["p99_ms"] <= told["longest_ms"]
    assert told["from_call_p50_ms"] >= told["p50_ms"]


@on_linux
@pytest.mark.parametrize("pin", ["xid", "none"])
def test_pinned(dsn: str, pin: str) -> None:
    answer = measured(dsn, "pinned", "--seconds", 1, "--pin", pin)
    told = answer.json
    assert told["jobs"] > 0
    assert 0 <= told["longest_pause_ms"] < 60_000
    if told["first"]:
        assert told["kept"] == pytest.approx(told["last"] / told["first"], rel=0.1)
    if pin == "none":
        assert (answer.code, told["proves"], told["kept_without_hint"]) == (0, None, None)
        return
    # In a second nothing is proven, or something by chance; the command's end says which.
    without = told["kept_without_hint"]
    assert told["proves"] is (without is not None and without < 0.6)
    assert answer.code == (0 if told["proves"] else 1)


def test_pinned_with_a_steady_offer(dsn: str) -> None:
    answer = measured(dsn, "pinned", "--seconds", 1, "--pin", "xid", "--offered", 200)
    told = answer.json
    assert answer.code == (1 if told["saturated"] else 0)  # in a second on a busy machine it may be
    assert 0 < told["jobs"] <= 250
    assert (told["pin"], told["asked_per_s"], told["window_s"]) == ("xid", 200, 0.333)
    assert 0 < told["offered_per_s"] <= 200
    assert 0 <= told["p50_ms"] <= told["p99_ms"]
    assert told["unpinned_p99_ms"] >= 0


def test_an_offer_that_no_machine_reaches_is_told_and_ends_with_1(dsn: str) -> None:
    answer = measured(dsn, "pinned", "--seconds", 1, "--pin", "none", "--offered", 10_000_000)
    told = answer.json
    assert (answer.code, told["saturated"], told["asked_per_s"]) == (1, True, 10_000_000)
    assert 0 < told["offered_per_s"] < 9_500_000


def test_overload(dsn: str) -> None:
    answer = measured(dsn, "overload", "--seconds", 1)
    told = answer.json
    assert told["scenario"] == "overload"
    assert answer.code in (0, 1)  # in a second on a busy machine it may do less
    assert told["offered_per_s"] > 0
    assert told["accepted_per_s"] + told["refused_per_s"] == pytest.approx(told["offered_per_s"], abs=2)
    assert told["goodput"] == pytest.approx(told["jobs_per_s"] / told["capacity_per_s"], abs=0.01)
    assert told["beyond"] == max(0, told["deepest"] - told["max_depth"])


def test_backlog(dsn: str) -> None:
    told = checked(measured(dsn, "backlog", "--jobs", 1500), "backlog", 1500, {"p50_ms", "p99_ms"})
    assert [(point["depth"], point["scheduled"], point["archived"]) for point in told["points"]] == [
        (1500, 0, 0),
        (1500, 1500, 0),
        (1500, 1500, 1500),
    ]
    assert [point["jobs_per_claim"] for point in told["points"]] == [100, 100, 100]


@on_linux
def test_effects(dsn: str) -> None:
    told = checked(measured(dsn, "effects", "--jobs", 100, "--rounds", 2), "effects", 100, SPEED | COST)
    assert told["effects"] == 200  # a row for each job of each round


@on_linux
def test_keyed(dsn: str) -> None:
    told = checked(measured(dsn, "keyed", "--jobs", 600), "keyed", 600, {"jobs_per_s"} | COST)
    assert (told["keys"], told["processes"], told["retention"]) == (60, 1, 7)
    assert told["to_unkeyed"] == pytest.approx(told["jobs_per_s"] / told["unkeyed_jobs_per_s"], abs=0.01)
    assert (told["hot_beside_per_s"] or 0) + (told["hot_alone_per_s"] or 0) > 0


@on_linux
def test_scale(dsn: str) -> None:
    told = checked(measured(dsn, "scale", "--jobs", 300, "--processes", 2, "--rounds", 1), "scale", 300, SPEED | COST)
    assert [(point["handler"], point["processes"]) for point in told["points"]] == [
        ("nothing", 1),
        ("nothing", 2),
        ("5 ms", 1),
        ("5 ms", 2),
    ]
    assert [point["jobs"] for point in told["points"]] == [300, 300, 60, 60]
    assert [len(point["rounds"]) for point in told["points"]] == [1] * 4


@on_linux
def test_soak(dsn: str) -> None:
    told = checked(measured(dsn, "soak", "--jobs", 1000), "soak", 1000, SPEED | COST)
    assert len(told["stages"]) == 10
    assert told["stages"][-1]["jobs"] == 1000
    assert told["growth"]["rss"] > 0


def test_there_is_a_test_for_each_scenario() -> None:
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert SCENARIOS.keys() <= tests


@pytest.fixture
def scratch(base: Path) -> Iterator[Path]:
    """A temporary directory that the server's own user can enter."""
    path = base / f"bench-{os.getpid()}"
    path.mkdir(mode=0o711)
    yield path
    rmtree(path, ignore_errors=True)


@on_linux
def test_without_a_dsn_a_server_is_started_for_it_and_goes_afterwards(scratch: Path, dsn: str) -> None:
    # The variable names a database, and is not looked at.
    answer = tenure("bench", "process", "--jobs", 200, "--rounds", 1, dsn=dsn, TMPDIR=str(scratch))
    assert answer.code == 0, answer.err
    round_, median = answer.out.splitlines()[1:3]
    assert round_.split()[0] == "1"
    assert median.split()[0] == "median"
    assert "Floor (pgbench, before and after): " in answer.out
    assert "embedded" in answer.out
    assert "fsync on" in answer.out
    assert schemas(dsn) == []
    assert list(scratch.iterdir()) == []
    assert processes(str(scratch)) == []
