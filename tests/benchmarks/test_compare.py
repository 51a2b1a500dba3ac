"""The comparison's arithmetic and tables, from planted runs; nothing is measured here."""

from __future__ import annotations

import argparse
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.compare import plans
from benchmarks.machine import Noise, noisy
from benchmarks.peers.catalogue import PEERS, named
from benchmarks.plot import series
from benchmarks.processes import Records
from benchmarks.report import counted, median, report, to_floor
from benchmarks.scenarios import LONG, SCENARIOS

FLOOR = {"process": 100_000.0, "single": 5_000.0, "bulk": 300_000.0}


def run(peer: str, scenario: str = "process", **figures: Any) -> dict[str, Any]:
    """A planted line: complete and quiet, unless told otherwise."""
    return {
        "scenario": scenario,
        "peer": peer,
        "configuration": "default",
        "processes": 1,
        "jobs": 1_000,
        "handled": 1_000,
        "repeated": 0,
        "complete": True,
        "noisy": False,
        "floor": FLOOR,
        "versions": {peer: "1.0"},
        "commit": "0123456789ab",
        **figures,
    }


def rows(markdown: str, peer: str) -> list[list[str]]:
    """The cells of a peer's rows."""
    found = [line.strip("| ").split(" | ") for line in markdown.splitlines()]
    return [cells for cells in found if cells[0].strip("*") == peer and len(cells) > 2]


def minute(peer: str, per_second: list[int], scenario: str = "pinned") -> dict[str, Any]:
    first, last = per_second[0], per_second[-1]
    return run(
        peer,
        scenario,
        per_second=per_second,
        first_per_s=first,
        last_per_s=last,
        part_s=1,
        waiting=2_000,
        dead_rows=10,
        database_mb=20,
    )


def test_a_figure_is_the_median_with_its_least_and_most() -> None:
    lines = [run("tenure", jobs_per_s=rate) for rate in (900, 1_000, 3_000)]
    assert median(lines, "jobs_per_s") == 1_000
    assert rows(report(lines), "tenure")[0][3] == "1,000 (900–3,000)"


def test_a_peer_is_told_as_a_multiple_of_tenure_also_where_it_is_faster() -> None:
    told = report([run("tenure", jobs_per_s=1_000), run("swift", jobs_per_s=2_500), run("slow", jobs_per_s=100)])
    assert [line.split(" | ")[0] for line in told.splitlines()[4:7]] == ["| swift", "| **tenure**", "| slow"]
    assert [rows(told, peer)[0][5] for peer in ("swift", "tenure", "slow")] == ["2.50", "1.00", "0.10"]


def test_a_run_is_compared_with_the_tenure_of_as_many_processes() -> None:
    told = report(
        [
            run("tenure", jobs_per_s=1_000),
            run("tenure", jobs_per_s=2_000, processes=2),
            run("other", jobs_per_s=1_000, processes=2),
        ]
    )
    assert rows(told, "other")[0][5] == "0.50"


def test_the_ratio_to_the_floor_is_that_of_each_run_to_its_own() -> None:
    lines = [
        run("tenure", jobs_per_s=10_000, floor={"process": 100_000}),
        run("tenure", jobs_per_s=40_000, floor={"process": 200_000}),
        run("tenure", jobs_per_s=90_000, floor={"process": 100_000}),
    ]
    assert to_floor(lines, "jobs_per_s", "process") == pytest.approx(0.2)
    assert to_floor([run("tenure", jobs_per_s=1, floor=None)], "jobs_per_s", "process") is None


@pytest.mark.parametrize(("cores", "is_noisy"), [(0.0, False), (0.2, False), (0.21, True), (None, False)])
def test_a_run_is_noisy_when_others_used_more_than_the_limit(cores: float | None, is_noisy: bool) -> None:
    assert noisy(cores) is is_noisy


def test_what_we_and_our_children_used_is_no_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plant(user: int, idle: int, used: dict[int, int]) -> None:
        (tmp_path / "stat").write_text(f"cpu  {user} 0 0 {idle} 0 0 0 0 0 0\n")
        for pid, ticks in used.items():
            parent = 10 if pid == 11 else 1
            (tmp_path / str(pid)).mkdir(exist_ok=True)
            (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {parent} {'0 ' * 9}{ticks} 0 0 0 20\n")

    monkeypatch.setattr("benchmarks.machine._PROC", tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    plant(1_000, 1_000, {10: 100, 11: 100, 99: 100})
    noise = Noise(lambda: [10])
    plant(1_150, 1_050, {10: 150, 11: 140, 99: 160})
    assert noise.cores() == pytest.approx(0.6)  # 60 of 200 ticks of two cores were another's


def test_quiet_runs_win_over_noisy_ones_and_noise_alone_gets_a_star() -> None:
    quiet, loud = run("tenure", jobs_per_s=1_000), run("tenure", jobs_per_s=10, noisy=True)
    assert counted([loud, quiet]) == [quiet]
    assert rows(report([loud, quiet]), "tenure")[0][3] == "1,000"
    assert rows(report([loud]), "tenure")[0][3] == "10*"


def test_a_run_that_did_not_handle_every_job_does_not_count_and_is_told() -> None:
    lost = run("tenure", jobs_per_s=9_999, handled=999, complete=False)
    died = run("other", complete=False, error="a process ended with 1")
    told = report([run("tenure", jobs_per_s=1_000), lost, died])
    assert rows(told, "tenure")[0][3] == "1,000"
    assert "tenure, default, process: 999 of 1000 jobs were handled." in told
    assert "other, default, process: a process ended with 1." in told
    assert "In 1 runs each job was handled" in told


def test_every_scenario_has_a_table() -> None:
    latency = {"p50_ms": 1.5, "p95_ms": 2, "p99_ms": 3, "whole_p50_ms": 4}
    told = report(
        [
            run("tenure", jobs_per_s=1_000),
            run("tenure", "enqueue", single_per_s=10, bulk_per_s=30_000),
            run("tenure", "latency", **latency),
            run("early", "latency", **latency | {"p50_ms": -0.1}),
            minute("tenure", [100, 90]),
            minute("tenure", [100, 100], "unpinned"),
        ]
    )
    assert told.count("### ") == len(SCENARIOS) + 1
    assert rows(told, "early")[0][6] == "–"  # no ratio to a wait that was negative
    assert "90.0%" in told


def test_every_peer_runs_once_before_any_runs_again() -> None:
    options = argparse.Namespace(repetitions=2, pinned_repetitions=1, scenarios=["process", "pinned"])
    made = list(plans(options, [named("tenure"), named("pg-boss")]))
    assert [
        (plan.repetition, plan.peer.name) for plan in made if plan.scenario == "process" and plan.processes == 2
    ] == [
        (1, "tenure"),
        (1, "pg-boss"),
        (2, "tenure"),
        (2, "pg-boss"),
    ]
    assert {plan.repetition for plan in made if plan.scenario in LONG} == {1}


def test_every_package_is_pinned() -> None:
    for package in (package for peer in PEERS for package in peer.packages):
        assert re.search(r"(==|.@)\d+\.\d+\.\d+$", package), package


def test_records_are_read_as_they_are_written_behind_a_mapped_files_end_too(tmp_path: Path) -> None:
    written = struct.Struct("<dd")
    records = Records(tmp_path)
    (tmp_path / "mapped").write_bytes(written.pack(0, 5.0) + written.pack(1, 6.0) + bytes(160))
    with (tmp_path / "appended").open("wb", buffering=0) as file:
        file.write(written.pack(2, 4.0))
        assert records.follow() == 3
        file.write(written.pack(1, 7.0) + written.pack(3, 8.0)[:8])
        assert records.follow() == 4
    assert records.handled(4) == 3  # 0, 1 and 2; 1 twice
    assert records.calls() == [4.0, 5.0, 6.0, 7.0]
    assert records.first_calls() == [4.0, 5.0]
    assert records.started()[1] == 6.0
    records.close()


def test_the_plot_takes_the_median_of_each_second_tenure_first() -> None:
    lines = [
        minute("bare", [9, 9]),
        minute("tenure", [1, 4]),
        minute("tenure", [3, 6]),
        minute("x", [1, 1], "unpinned"),
    ]
    assert series(lines, "pinned") == {"tenure": [2, 5], "bare": [9, 9]}
    assert list(series(lines, "pinned")) == ["tenure", "bare"]


def test_the_plot_is_a_valid_svg(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(minute(peer, [3, 2, 1])) + "\n" for peer in ("tenure", "other")))
    # In a process of its own: pygal leaves an import hook behind that later imports of other tests warn of.
    code = (
        "import sys; from pathlib import Path; from benchmarks.plot import draw; from benchmarks.report import read;"
        "draw(read(Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, results, tmp_path / "plot.svg"], check=True)
    root = ElementTree.parse(tmp_path / "plot.svg").getroot()  # noqa: S314 - our own
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert {"tenure", "other"} <= {text.strip() for text in root.itertext()}
