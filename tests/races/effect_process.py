"""A process that claims one job and runs its effect; a test arms a fault point to kill it on the way.

Run as ``python -m tests.races.effect_process DSN``; prints how the effect ended.
"""

from __future__ import annotations

import sys

from tenure.store.postgres import PostgresStore
from tests.races.effect_runs import run_alone
from tests.store.steps import claim


def main(dsn: str) -> None:
    store = PostgresStore(dsn)
    [leased] = claim(store)
    print(run_alone(store, leased))


if __name__ == "__main__":
    main(sys.argv[1])
