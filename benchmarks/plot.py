"""Draws jobs a second over time for the runs in which 2,000 jobs were kept waiting.

    ~/.cache/tenure-bench/venv/plot/bin/python -m benchmarks.plot benchmarks/results/compare.jsonl pinned.svg

Needs pygal, which the comparison installs beside the peers.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import OURS, Line, counted, read

_COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#7f7f7f", "#8c564b")
"""Tenure's first; apart from each other also for those who see few colours, by their brightness."""


def series(lines: Sequence[Line], scenario: str) -> dict[str, list[float]]:
    """For each peer the median of its runs in each second; Tenure first."""
    runs: dict[str, list[Line]] = {}
    for line in lines:
        if line["scenario"] == scenario:
            runs.setdefault(line["peer"], []).append(line)
    drawn = {
        peer: [statistics.median(second) for second in zip(*(line["per_second"] for line in kept), strict=False)]
        for peer, group in runs.items()
        if (kept := counted(group))
    }
    return dict(sorted(drawn.items(), key=lambda item: (item[0] != OURS, item[0])))


def draw(lines: Sequence[Line], to: Path, scenario: str = "pinned") -> None:
    """Write the SVG.

    Args:
        lines: the runs.
        to: the file.
        scenario: ``pinned`` or ``unpinned``.
    """
    import pygal  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from pygal.style import Style  # type: ignore[import-not-found,import-untyped,unused-ignore]

    held = "while a snapshot is held" if scenario == "pinned" else "without a snapshot"
    chart = pygal.XY(
        title=f"Jobs a second {held}, one worker",
        x_title="seconds",
        y_title="jobs/s",
        style=Style(
            background="white",
            plot_background="white",
            foreground="#333333",
            foreground_subtle="#666666",
            guide_stroke_color="#dddddd",
            major_guide_stroke_color="#bbbbbb",
            font_family="sans-serif",
            colors=_COLOURS,
        ),
        js=(),  # a picture, not a page that loads scripts
        show_dots=False,
        explicit_size=True,
        width=1000,
        height=450,
        truncate_legend=-1,
        range=(0, None),
        formatter=lambda value: f"{value:,.0f}",
        x_value_formatter=lambda value: f"{value:.0f}",
    )
    for peer, values in series(lines, scenario).items():
        chart.add(
            peer,
            [(second + 0.5, value) for second, value in enumerate(values)],
            stroke_style={"width": 3 if peer == OURS else 1.5},
        )
    chart.render_to_file(str(to))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("svg", type=Path)
    parser.add_argument("--scenario", choices=["pinned", "unpinned"], default="pinned")
    options = parser.parse_args()
    draw(read(options.results), options.svg, options.scenario)


if __name__ == "__main__":
    main()
