"""Draws a run: jobs that came to their end in each second, and the faults."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tenure.chaos.plan import FAULTS
from tenure.chaos.told import Facts
from tenure.errors import ConfigError


def require_tools() -> None:
    """See that what draws is there.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import pygal  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise ConfigError(
            "pygal, which draws the picture, is not installed.", hint="pip install tenure[chaos]"
        ) from None
    # It leaves an importer of its own, which knows nothing of today's imports and warns at each.
    sys.meta_path[:] = [importer for importer in sys.meta_path if type(importer).__module__ != pygal.__name__]


def draw(facts: Facts, to: Path, title: str) -> None:
    """Write the picture as SVG.

    Raises:
        ConfigError: what draws it is not installed.
    """
    require_tools()
    import pygal  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from pygal.style import Style  # type: ignore[import-not-found,import-untyped,unused-ignore]

    moments = [run.ended for run in facts.runs if run.ended is not None]
    start = min([run.at for run in facts.runs] + [fault.at for fault in facts.faults], default=0.0)
    ended = Counter(int(moment - start) for moment in moments)
    last = max(ended, default=0)
    top = max(ended.values(), default=1)
    chart = pygal.XY(
        title=title,
        x_title="seconds",
        y_title="jobs that came to their end in a second",
        style=Style(background="white", plot_background="white", foreground="#333333", font_family="sans-serif"),
        js=(),  # a picture, not a page that loads scripts
        explicit_size=True,
        width=1200,
        height=500,
        truncate_legend=-1,
        range=(0, None),
    )
    chart.add("jobs", [(second + 0.5, ended[second]) for second in range(last + 1)], show_dots=False)
    for row, kind in enumerate(FAULTS):
        at = [round(fault.at - start, 2) for fault in facts.faults if fault.kind == kind]
        if at:  # each kind on a line of its own, above the jobs
            chart.add(kind, [(moment, top * (1.05 + 0.04 * row)) for moment in at], stroke=False, dots_size=3)
    chart.render_to_file(str(to))
