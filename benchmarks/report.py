"""Results as Markdown tables: medians, ratios to the floor and to Tenure, whoever is faster.

python -m benchmarks.report benchmarks/results/compare.jsonl
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]

OURS = "tenure"

_TITLES = {
    "process": "Jobs a second, from the first handler call until none is unfinished",
    "enqueue": "Enqueued a second, by one producer",
    "latency": "From the return of the enqueue call to the start of the handler, at 50 jobs a second",
    "pinned": "Jobs a second while another session holds a snapshot, one worker",
    "unpinned": "The same without the snapshot",
}


def read(path: Path) -> list[Line]:
    """The runs of a results file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def counted(lines: Iterable[Line]) -> list[Line]:
    """The runs that count: those that handled every job; the quiet ones of them, or all where none was quiet."""
    whole = [line for line in lines if line.get("complete")]
    return [line for line in whole if not line["noisy"]] or whole


def median(lines: Sequence[Line], figure: str) -> float:
    """The median of a figure."""
    return float(statistics.median(line[figure] for line in lines))


def to_floor(lines: Sequence[Line], figure: str, floor: str) -> float | None:
    """The median of each run's ratio to the floor that was measured just before it; None where there was none."""
    ratios = [line[figure] / line["floor"][floor] for line in lines if line.get("floor")]
    return statistics.median(ratios) if ratios else None


def report(lines: Sequence[Line]) -> str:
    """Everything that is told about some runs."""
    parts = [
        f"### {title}\n\n{table}"
        for scenario, title in _TITLES.items()
        if (table := _TABLES[scenario]([line for line in lines if line["scenario"] == scenario]))
    ]
    return "\n\n".join([*parts, _notes(lines)]) + "\n"


# ------------------------------------------------------------------------------------------------------------- tables


def _process(lines: Sequence[Line]) -> str:
    def row(group: list[Line], ours: list[Line]) -> list[str]:
        return [
            str(group[0]["processes"]),
            _spread(group, "jobs_per_s"),
            _share(to_floor(group, "jobs_per_s", "process")),
            _ratio(group, ours, "jobs_per_s"),
            f"{median(group, 'jobs'):,.0f}",
        ]

    return _table(lines, "jobs_per_s", ["processes", "jobs/s", "of the floor", "Tenure = 1", "jobs"], row)


def _enqueue(lines: Sequence[Line]) -> str:
    def row(group: list[Line], ours: list[Line]) -> list[str]:
        cells = []
        for figure, floor in (("single_per_s", "single"), ("bulk_per_s", "bulk")):
            cells += [
                _spread(group, figure),
                _share(to_floor(group, figure, floor)),
                _ratio(group, ours, figure),
            ]
        return cells

    columns = ["one by one", "of the floor", "Tenure = 1", "10,000 in a call", "of the floor", "Tenure = 1"]
    return _table(lines, "single_per_s", columns, row)


def _latency(lines: Sequence[Line]) -> str:
    def row(group: list[Line], ours: list[Line]) -> list[str]:
        return [
            *(_spread(group, f"p{part}_ms") for part in (50, 95, 99)),
            _spread(group, "whole_p50_ms"),
            _ratio(group, ours, "p50_ms"),
        ]

    columns = ["p50 ms", "p95 ms", "p99 ms", "p50 ms from the call", "p50, Tenure = 1"]
    return _table(lines, "p50_ms", columns, row, falling=False)


def _pinned(lines: Sequence[Line]) -> str:
    def row(group: list[Line], ours: list[Line]) -> list[str]:
        return [
            _spread(group, "first_per_s"),
            _spread(group, "last_per_s"),
            _share(statistics.median(line["last_per_s"] / max(1, line["first_per_s"]) for line in group)),
            _ratio(group, ours, "last_per_s"),
            f"{median(group, 'waiting'):,.0f}",
            f"{median(group, 'dead_rows'):,.0f}",
            f"{median(group, 'database_mb'):,.0f}",
        ]

    part = lines[0].get("part_s", 10) if lines else 10
    columns = [f"first {part} s", f"last {part} s", "last of first", "last, Tenure = 1", "waiting", "dead rows", "MB"]
    return _table(lines, "last_per_s", columns, row)


_TABLES: dict[str, Callable[[Sequence[Line]], str]] = {
    "process": _process,
    "enqueue": _enqueue,
    "latency": _latency,
    "pinned": _pinned,
    "unpinned": _pinned,
}


def _table(
    lines: Sequence[Line],
    figure: str,
    columns: Sequence[str],
    row: Callable[[list[Line], list[Line]], list[str]],
    *,
    falling: bool = True,
) -> str:
    """One row for each peer, configuration and number of processes; best first. Empty where nothing was measured."""
    groups: dict[tuple[int, str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line["processes"], line["peer"], line["configuration"]), []).append(line)
    kept = {key: found for key, group in groups.items() if (found := counted(group))}
    if not kept:
        return ""
    head = ["peer", "configuration", *columns, "runs"]
    rows = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for (processes, peer, configuration), group in sorted(
        kept.items(), key=lambda item: (item[0][0], median(item[1], figure) * (-1 if falling else 1))
    ):
        ours = next((found for key, found in kept.items() if key[:2] == (processes, OURS)), [])
        name = f"**{peer}**" if peer == OURS else peer
        rows.append([name, configuration, *row(group, ours), str(len(group))])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _spread(lines: Sequence[Line], figure: str) -> str:
    """The median, with the least and the most of several; a star where only noisy runs are there."""
    values = [line[figure] for line in lines]
    told = _number(median(lines, figure))
    if len(values) > 1:
        told += f" ({_number(min(values))}–{_number(max(values))})"
    return told + ("*" if any(line["noisy"] for line in lines) else "")


def _ratio(lines: Sequence[Line], ours: Sequence[Line], figure: str) -> str:
    """To Tenure's median; nothing where one of them is not positive, as a wait can be."""
    if not ours or median(ours, figure) <= 0 or median(lines, figure) <= 0:
        return "–"
    return f"{median(lines, figure) / median(ours, figure):.2f}"


def _share(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.1%}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# -------------------------------------------------------------------------------------------------------------- notes


def _notes(lines: Sequence[Line]) -> str:
    runs = [line for line in lines if line["scenario"] != "floor"]
    failed = [line for line in runs if not line.get("complete")]
    repeated = sum(line.get("repeated", 0) for line in runs)
    told = [
        "### What was run",
        "",
        f"- {len(runs)} runs, {sum(line['noisy'] for line in runs)} of them noisy (others used more than 0.2 cores;"
        " a star marks figures that had nothing else).",
        f"- In {len(runs) - len(failed)} runs each job was handled; {repeated} calls were beyond the first of a job.",
    ]
    told += [f"- Failed, and not counted: {_failure(line)}." for line in failed]
    told += _floors([line for line in lines if line["scenario"] == "floor"])
    told += [f"- {what}: {', '.join(_distinct(lines, key))}." for what, key in _FACTS.items()]
    versions = {line["peer"]: line["versions"] for line in runs if line.get("versions")}
    told += ["", "| peer | versions |", "| --- | --- |"]
    told += [
        f"| {peer} | {', '.join(f'{name} {version}' for name, version in found.items())} |"
        for peer, found in versions.items()
    ]
    return "\n".join(told)


def _failure(line: Line) -> str:
    why = line.get("error") or f"{line['handled']} of {line['jobs']} jobs were handled"
    return f"{line['peer']}, {line['configuration']}, {line['scenario']}: {why}"


_FACTS = {"Commit": "commit", "Command": "command", "Machine": "machine", "PostgreSQL": "postgresql"}


def _floors(floors: Sequence[Line]) -> list[str]:
    quiet = [line for line in floors if not line["noisy"]] or floors
    if not quiet:
        return []
    told = ", ".join(
        f"{what} {_number(median(quiet, figure))} ({_number(min(line[figure] for line in quiet))}–"
        f"{_number(max(line[figure] for line in quiet))})"
        for what, figure in (
            ("claimed and deleted by the hundred", "process"),
            ("inserted one by one", "single"),
            ("inserted 10,000 at a time", "bulk"),
        )
    )
    return [f"- The floor, rows a second, by pgbench with one client and prepared statements: {told}."]


def _distinct(lines: Sequence[Line], key: str) -> list[str]:
    told = {
        ", ".join(f"{name} {value}" for name, value in line[key].items()) if isinstance(line[key], dict) else line[key]
        for line in lines
        if key in line
    }
    return sorted(map(str, told))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    print(report(read(parser.parse_args().results)), end="")


if __name__ == "__main__":
    main()
