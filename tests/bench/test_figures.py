"""Percentiles, medians, ratios and the verdict, with planted figures."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tenure.bench import offered, proc, soak
from tenure.bench.backlog import Point, depths, told_of
from tenure.bench.board import Board, Place
from tenure.bench.drain import Drained, middle
from tenure.bench.floor import Floor
from tenure.bench.measure import Cost, Usage, cost, median, milliseconds, percentile, ratio, total
from tenure.bench.offered import Lag
from tenure.bench.pinned import Course, report
from tenure.bench.report import Report
from tenure.bench.soak import Stage
from tenure.bench.wishes import Wishes
from tests.bench.conftest import on_linux

SIZES = {"jobs_bytes": 8192, "archive_bytes": 0, "dead_rows": 7}


def test_a_percentile_is_a_value_that_was_there() -> None:
    hundred = list(range(1, 101))
    assert [percentile(hundred, percent) for percent in (50, 90, 99, 100)] == [50, 90, 99, 100]
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0
    assert percentile([5.0], 1) == 5.0
    assert percentile([], 50) is None


def test_a_median_is_of_what_is_known() -> None:
    assert median([3, 1, 2]) == 2
    assert median([1, 2]) == 1.5
    assert median([None, 4, None]) == 4
    assert median([None]) is None


def test_a_ratio_needs_two_figures() -> None:
    assert ratio(1, 3) == 0.333
    assert ratio(None, 3) is None
    assert ratio(1, None) is None
    assert ratio(1, 0) is None


def test_a_total_needs_all_of_them() -> None:
    assert total([1.0, 2.0]) == 3.0
    assert total([1.0, None]) is None
    assert total([]) == 0


def test_a_cost_is_for_one_job() -> None:
    assert cost(Usage(1.0, 2.0, 1000), Usage(1.5, 2.25, 5000), 10) == Cost(50_000.0, 25_000.0, 400)
    assert cost(Usage(None, 2.0, 0), Usage(1.0, None, 0), 10) == Cost(None, None, 0)


def test_milliseconds() -> None:
    assert milliseconds(0.0012345) == 1.234
    assert milliseconds(None) is None


def test_the_middle_of_rounds_is_taken_figure_by_figure_and_the_shortest_tells_how_long_they_were() -> None:
    rounds = [
        Drained(100.0, Cost(3.0, 1.0, 500), 6.0),
        Drained(300.0, Cost(1.0, None, 700), 2.0),
        Drained(200.0, Cost(2.0, 5.0, 600), 3.0),
    ]
    assert middle(rounds) == Drained(200.0, Cost(2.0, 3.0, 600), 2.0)


def test_depths_grow_tenfold() -> None:
    assert depths(1_000_000) == [10_000, 100_000, 1_000_000]
    assert depths(10_000) == [10_000]
    assert depths(500) == [500]
    assert depths(50_000) == [10_000, 50_000]


def course(first: float, last: float) -> Course:
    return Course(1000, first, last, (first + last) / 2, Cost(1.0, 2.0, 3), SIZES, 10.0, 0.0413)


def test_a_snapshot_proves_something_where_the_speed_is_lost_without_the_hint() -> None:
    told = report("snapshot", course(1000, 950), course(1000, 300))
    assert told.ok
    assert (told.first, told.last, told.kept, told.kept_without_hint) == (1000, 950, 0.95, 0.3)
    assert told.more["proves"] is True
    assert not any("proves nothing" in note for note in told.notes)
    assert len(told.rows) == 2


@pytest.mark.parametrize("last", [600, 900, 1200])
def test_a_snapshot_proves_nothing_where_the_speed_is_kept_without_the_hint(last: float) -> None:
    told = report("xid", course(1000, 950), course(1000, last))
    assert not told.ok
    assert told.more["proves"] is False
    [note] = [note for note in told.notes if "proves nothing" in note]
    assert f"{last / 1000:.0%} of the speed was kept" in note


def test_a_course_in_which_nothing_was_done_proves_nothing() -> None:
    assert not report("snapshot", course(1000, 950), course(0, 0)).ok


def test_where_nothing_is_held_there_is_nothing_to_prove() -> None:
    told = report("none", course(1000, 500), None)
    assert told.ok
    assert (told.kept, told.kept_without_hint, told.more["proves"]) == (0.5, None, None)


def test_a_floor_is_the_mean_of_before_and_after_or_says_why_there_is_none() -> None:
    assert Floor([100.0, 300.0]).jobs_per_s == 200.0
    assert Floor(why="no pgbench").jobs_per_s is None
    server = {"filesystem": None}
    assert Report((), (), 1, floor=Floor(why="no pgbench")).told(server) == ["no pgbench"]
    assert Report((), (), 1, floor=Floor([1000.0, 1400.0])).told(server) == [
        "Floor (pgbench, before and after): 1,000 and 1,400 jobs/s."
    ]


def test_floors_that_are_far_apart_are_told() -> None:
    apart = Report((), (), 1, floor=Floor([3000.0, 1000.0]))
    _, note = apart.told({"filesystem": None})
    assert "measure again" in note
    said = apart.as_dict("process", {})
    assert (said["floor_jobs_per_s"], said["floors_jobs_per_s"], said["floors_agree"]) == (2000, [3000, 1000], False)


def test_floors_that_agree_and_floors_that_are_not_known_are_told() -> None:
    said = Report((), (), 1, floor=Floor([1000.0, 1400.0])).as_dict("process", {})
    assert (said["floors_jobs_per_s"], said["floors_agree"]) == ([1000, 1400], True)
    for floor in (Floor(why="no pgbench"), None):
        said = Report((), (), 1, floor=floor).as_dict("process", {})
        assert (said["floor_jobs_per_s"], said["floors_jobs_per_s"], said["floors_agree"]) == (None, None, None)


@pytest.mark.parametrize(("seconds", "short"), [(0.999, True), (1.0, False), (None, None)])
def test_a_round_of_less_than_a_second_is_told(seconds: float | None, short: bool | None) -> None:
    report = Report((), (), 1, shortest=seconds)
    assert report.as_dict("process", {})["too_short"] is short
    assert report.told({"filesystem": None}) == (["A round took less than a second: this is noise."] if short else [])


def stages(seconds: float, *, rate: float | None = 100.0) -> list[Stage]:
    return [Stage(100 * n, seconds * n, rate, 50_000_000 + n, {**SIZES, "jobs_bytes": 8192 * n}) for n in range(1, 11)]


def test_growth_is_told_in_words() -> None:
    told = soak.report(stages(1.0), 1000, 10.0).told({"filesystem": None})
    assert told == [
        "From the first tenth to the last: jobs a second × 1.00, memory of the worker × 1.00, table of jobs × 10.00."
    ]


def test_an_endurance_run_that_is_too_short_says_so_and_nothing_of_growth() -> None:
    short = soak.report(stages(0.999, rate=None), 1000, 10.0)
    assert short.told({"filesystem": None}) == [
        "Too short to say whether anything grows or gets slower: use more --jobs.",
        "A tenth of the jobs took less than a second: this is noise.",
    ]
    assert short.more["growth"]["jobs_per_s"] is None
    assert {stage["jobs_per_s"] for stage in short.more["stages"]} == {None}


@pytest.mark.parametrize(("passed", "told"), [(0.5, None), (2.0, 100.0)])
def test_no_speed_is_told_of_less_than_a_second(passed: float, told: float | None) -> None:
    assert soak.speed(200, passed) == told


def test_what_costs_are_of_is_told_wherever_there_are_some() -> None:
    for column in ("WAL bytes", "server CPU µs"):
        assert Report(("jobs/s", column), (), 1).told({"filesystem": None}) == [
            "CPU and WAL are for one job, of the time in which the jobs were run."
        ]
    assert Report(("jobs/s",), (), 1).told({"filesystem": None}) == []


def lag(jobs: int, made: int, first: float = 0.01, last: float = 0.01) -> Lag:
    return Lag(jobs, made, 60.0, [first, last], [first], [last], Cost(1.0, 2.0, 3), SIZES)


def offered_report(held: Lag, free: Lag) -> Report:
    return offered.report(Wishes(seconds=60.0, offered=4000), [("xid", held), ("none", free)])


STEADY = lag(239_990, 240_000)


def test_an_offer_that_was_reached_and_kept_up_with_says_how_long_jobs_waited() -> None:
    report = offered_report(lag(229_000, 230_000), STEADY)
    assert report.ok
    assert (report.more["saturated"], report.more["asked_per_s"], report.more["offered_per_s"]) == (False, 4000, 3833)
    assert not any("Saturated" in note for note in report.notes)


@pytest.mark.parametrize(
    "runs", [(lag(227_000, 227_000), STEADY), (STEADY, lag(227_000, 227_000))], ids=["held", "free"]
)
def test_an_offer_that_was_not_reached_says_nothing(runs: tuple[Lag, Lag]) -> None:
    report = offered_report(*runs)
    assert not report.ok
    assert (report.more["saturated"], report.more["asked_per_s"], report.more["offered_per_s"]) == (True, 4000, 3783)
    [note] = [note for note in report.notes if "Saturated" in note]
    assert "4,000 jobs a second were asked for" in note


@pytest.mark.parametrize(
    "runs",
    [(lag(200_000, 240_000, 0.1, 10.0), STEADY), (STEADY, lag(200_000, 240_000, 0.1, 10.0))],
    ids=["held", "free"],
)
def test_a_backlog_that_grows_says_nothing(runs: tuple[Lag, Lag]) -> None:
    report = offered_report(*runs)
    assert not report.ok
    assert report.more["saturated"] is True
    assert any("Saturated: more and more jobs waited" in note for note in report.notes)


def test_the_first_and_the_last_seconds_are_ten_or_a_third_of_a_short_run() -> None:
    assert [offered.window_of(Wishes(seconds=seconds)) for seconds in (6.0, 30.0, 600.0)] == [2.0, 10.0, 10.0]
    assert report("none", course(1000, 500), None).more["window_s"] == 10.0


def test_what_claims_found_is_told() -> None:
    full, shallow = Point(10_000, 0, 0, [0.1], [100]), Point(5, 0, 0, [0.1], [5])
    assert told_of([full, full]) == "100 claims in each row, of 100 jobs each."
    assert told_of([shallow]) == "100 claims in each row, of 5 jobs each."
    assert told_of([full, shallow]) == "100 claims in each row, of 5 to 100 jobs each."


def test_data_in_memory_is_told() -> None:
    [note] = Report((), (), 1).told({"filesystem": "tmpfs"})
    assert "in memory" in note
    assert "a commit that reaches no disk is no commit" in note
    assert Report((), (), 1).told({"filesystem": "ext4"}) == []


def test_handlers_tell_their_calls_on_the_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.monotonic_ns()
    board = Board(tmp_path / "board", processes=2, jobs=3)
    for number in range(2):
        for name, value in board.environment(number).items():
            monkeypatch.setenv(name, value)
        place = Place()
        place.open()
        if number:
            place.called()
            place.called(10)
            place.started(2)
    assert board.called == 12
    assert board.first_calls[0] == 0
    assert before <= board.first_calls[1] <= board.started(2) <= time.monotonic_ns()
    assert board.started(0) == 0
    board.close()
    assert not (tmp_path / "board").exists()


@on_linux
def test_what_the_kernel_says_of_processes() -> None:
    before = proc.cpu(os.getpid())
    assert before is not None
    end = time.process_time() + 0.05  # the kernel counts in ticks
    while time.process_time() < end:
        pass
    assert (proc.cpu(os.getpid()) or 0) > before
    assert (proc.rss(os.getpid()) or 0) > 1_000_000
    family = proc.family_cpu(os.getppid())
    assert family is not None
    assert family > before
    assert proc.parent_of(os.getpid(), "no such program") is None
    assert proc.filesystem(Path("/proc/self")) == "proc"
    assert "cores" in proc.machine()


def test_where_the_kernel_says_nothing_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "PROC", tmp_path)
    pid = os.getpid()
    assert (proc.cpu(pid), proc.rss(pid), proc.family_cpu(pid), proc.parent_of(pid, "python")) == (None,) * 4
    assert proc.filesystem(tmp_path) is None
    assert "cores" in proc.machine()
