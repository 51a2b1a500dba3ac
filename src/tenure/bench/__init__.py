"""Benchmarks that users can run themselves: ``tenure bench``.

    cli ──▶ run ──▶ a scenario ──▶ crew of workers ──▶ apps
             │          │               │                │
             ▼          ▼               ▼                ▼
          server     floor, queue,    board  ◀─── a call costs a store into shared memory
                     measure, report

``server`` is where it happens, in schemas that are gone afterwards. ``floor`` is what pgbench does on the same server in
the same run. Workers are processes of their own, with the options a user gets who gives none.
"""

from tenure.bench.report import Report
from tenure.bench.run import SCENARIOS, run

__all__ = ["SCENARIOS", "Report", "run"]
