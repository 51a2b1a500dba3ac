"""Writes docs/proof.md out of the recorded runs, the fault matrix, and the bugs that are planted.

    python -m tests.proof.page                                the page of this repository
    python -m tests.proof.page --recorded chaos-results       chaos-results/proof.md, of your own runs

What it says of a run is what the run has said. What it says of a test is looked up: a test fails when the page is not what
is made here, or names a test that does not exist.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tenure.faultpoints import POINTS
from tests.proof import planted, texts
from tests.proof.matrix import ROOT, Group, Named, Row, groups
from tests.proof.recorded import FOLDER, PARTS, WRONG, Line, latest, where

PAGE = ROOT / "docs/proof.md"

SPANS = ("recovery_ms", "swept_ms", "waited_ms")
"""How soon jobs were back, as runs tell it."""


def page(folder: Path = FOLDER, place: Path | None = None) -> str:
    """The page of the runs that are recorded in a folder.

    Args:
        place: where it is to stand, which its links depend on; None is the usual one.
    """
    place = place or usual(folder)
    parts = [texts.HEAD, _sources(folder, place), texts.OURS if place == PAGE else texts.YOURS]
    parts += [*_points(latest("points", folder)), *_minutes(latest("minutes", folder))]
    parts += [*_plants(latest("plants", folder)), *_matrix(groups())]
    return _LINK.sub(lambda found: f"]({_path(ROOT / found[1], place)}", "\n".join(parts))


def usual(folder: Path) -> Path:
    """Where the page of the runs in a folder is: in the documentation, or beside them."""
    return PAGE if folder.resolve() == FOLDER.resolve() else folder / "proof.md"


_LINK = re.compile(r"\]\(root:([^)#]+)")
"""A link to a file of the repository, wherever the page is."""


def _path(file: Path, place: Path) -> str:
    """From the page to a file."""
    return Path(os.path.relpath(file.resolve(), place.resolve().parent)).as_posix()


def _sources(folder: Path, place: Path) -> str:
    """What it is made of, and how."""
    files = {part: folder / f"{part}.jsonl" for part in PARTS}
    runs = [f"[{part}]({_path(file, place)})" for part, file in files.items() if file.exists()]
    how = "python -m tests.proof.page" + ("" if place == PAGE else f" --recorded {folder}")
    return f"`{how}` makes it of recorded runs ({', '.join(runs) or 'none'}) and of [a list](root:proof/matrix.toml).\n"


def _points(lines: Sequence[Line]) -> Iterable[str]:
    by_point = {line["point"]: line for line in lines}
    rows = [_point(name, what, by_point.get(name)) for name, what in POINTS.items()]
    done = [line for line in lines if line["point"] in POINTS]
    if done:
        rows.append(["**all**", "", *_sums(done, _killed, "accepted", "lost", "duplicate_runs", "duplicate_effects")])
    columns = [
        "crash point",
        "where the process stands",
        "kills",
        "jobs",
        "lost",
        "duplicate runs",
        "duplicate effects",
    ]
    yield texts.POINTS_HEAD
    yield _table(columns, rows, figures=5)
    if done:
        asked = ", ".join(sorted({str(line["kills"]) for line in done}, key=int))
        seeds = ", ".join(sorted({str(line["seed"]) for line in done}, key=int))
        yield f"Asked for were {asked} kills at each, at the least. What is enqueued is decided by seed {seeds}.\n"
    yield _made(done, "python -m tests.chaos.record points", _shorter(Named("chaos/test_points.py", planted.KILLED)))


def _point(name: str, what: str, line: Line | None) -> list[str]:
    if line is None:
        return [f"`{name}`", what, "not run", "", "", "", ""]
    figures = _sums([line], _killed, "accepted", "lost", "duplicate_runs", "duplicate_effects")
    return [f"`{name}`", what, *figures]


def _minutes(lines: Sequence[Line]) -> Iterable[str]:
    yield texts.MINUTES_HEAD
    made = _made(lines, "python -m tests.chaos.record minutes", _shorter(Named("chaos/test_chaos.py", planted.KEPT)))
    if not lines:
        yield made
        return
    wrong = list(WRONG)
    rows = [
        [str(line["seed"]), *_sums([line], "accepted", _struck, "recovered", *wrong), *(_span(line, f) for f in SPANS)]
        for line in sorted(lines, key=lambda line: int(line["seed"]))
    ]
    if len(lines) > 1:
        rows.append(["**all**", *_sums(lines, "accepted", _struck, "recovered", *wrong), *("" for _ in SPANS)])
    columns = ["seed", "accepted", "faults", "recovered", *(name.replace("_", " ") for name in wrong)]
    columns += [f"{field.removesuffix('_ms')}, s" for field in SPANS]
    yield _table(columns, rows, figures=len(columns))
    lengths = sorted({f"{line['seconds']:g} s" for line in lines})
    yield f"Faults happened for {' or '.join(lengths)} in each run.\n"
    yield texts.TIMES
    yield made


def _plants(lines: Sequence[Line]) -> Iterable[str]:
    yield texts.PLANTS_HEAD
    for sort in planted.sorts({line["plant"]: line for line in lines}):
        yield f"### {sort.name}\n"
        yield f"{sort.what} {_linked(sort.test)}\n"
        yield _table(["bug", "caught by"], [[bug, by] for bug, by in sort.bugs])
        if sort.recorded:
            yield _made(lines, "python -m tests.chaos.record plants", "`make test` plants them, too.")
        else:
            yield "None of this is recorded: `make test` plants them each time.\n"


def _matrix(found: Sequence[Group]) -> Iterable[str]:
    rows = [row for group in found for row in group.rows]
    tests = {test for row in rows for test in row.tests}
    yield texts.MATRIX_HEAD
    yield f"{len(rows)} rows, {len(tests)} tests.\n"
    yield from map(_group, found)


def _group(group: Group) -> str:
    rows = [[row.fault, row.holds, _shown(row)] for row in group.rows]
    return f"### {group.name}\n\n" + _table(["what happens", "what must hold", "shown by"], rows)


def _shown(row: Row) -> str:
    later = [f"later: {row.later}"] if row.later else []
    return "<br>".join([*map(_linked, row.tests), *later])


def _linked(test: Named) -> str:
    return f"[`{Path(test.file).name}::{test.function}`](root:tests/{test.file})"


def _shorter(test: Named) -> str:
    return f"A short part of it runs with `make test`: {_linked(test)}."


def _made(lines: Sequence[Line], how: str, also: str) -> str:
    if not lines:
        return f"Not run. {also}\n"
    told = dict.fromkeys(map(where, lines))
    return f"Recorded with `{how}`: {'; '.join(told)}. {also}\n"


def _killed(line: Line) -> int:
    return int(line["faults"].get("point", 0))


def _struck(line: Line) -> int:
    return sum(line["faults"].values())


def _sums(lines: Sequence[Line], *fields: str | Callable[[Line], int]) -> list[str]:
    """Figures of some runs together, each by its name or by what computes it; none where a run did not tell it."""
    return [_sum(lines, field) for field in fields]


def _sum(lines: Sequence[Line], field: str | Callable[[Line], int]) -> str:
    figures = [field(line) if callable(field) else line.get(field) for line in lines]
    return "not told" if None in figures else f"{sum(map(int, filter(None, figures))):,}"


def _span(line: Line, field: str) -> str:
    """Median and longest of a figure that is in milliseconds, in seconds."""
    if field not in line:
        return "not told"
    took = [line[field].get(name) for name in ("p50", "max")]
    return ", ".join("none" if ms is None else f"{ms / 1000:.1f}" for ms in took)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], figures: int = 0) -> str:
    """A table; its last ``figures`` columns are aligned to the right."""
    lines = [columns, ["---"] * (len(columns) - figures) + ["---:"] * figures, *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def main() -> None:
    """As the head of this file says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", type=Path, default=FOLDER)
    parser.add_argument("--to", type=Path, help="else where the page of such runs usually is")
    options = parser.parse_args()
    place = options.to or usual(options.recorded)
    place.write_text(page(options.recorded, place), "utf-8")


if __name__ == "__main__":
    main()
