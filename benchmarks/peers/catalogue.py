"""Who is measured: versions, configurations, and how the database is asked what is unfinished.

``tuned`` is the fastest safe configuration that the peer's own documentation describes, as far as it was found. Safe means
that a committed job survives a crash of the server or of a worker; nothing is unlogged, nothing is acknowledged early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Configuration:
    """One way to run a peer.

    Args:
        jobs: how many are preloaded for ``process``; enough for a second or more, not for minutes.
        settings: what its program is given.
        environment: variables its processes get.
    """

    jobs: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    """Something that is measured.

    Args:
        name: as it is told.
        program: module below ``benchmarks.peers``, or a file below ``peers/node``.
        packages: what is installed, pinned; of PyPI, or of npm for a Node program.
        unfinished: SQL that counts the jobs that are not finished; ``%(jobs)s`` is how many were enqueued.
        configurations: by name; the last is the fastest, and the one the scenarios other than ``process`` use.
    """

    name: str
    program: str
    packages: tuple[str, ...]
    unfinished: str
    configurations: Mapping[str, Configuration]

    @property
    def node(self) -> bool:
        """Whether it runs on Node."""
        return self.program.endswith(".mjs")

    @property
    def fastest(self) -> str:
        """The name of its fastest configuration."""
        return list(self.configurations)[-1]


PEERS = (
    Peer(
        "tenure",
        "tenure_",
        (),  # runs in the environment that runs the comparison
        "select count(*) from tenure.jobs",
        {"default": Configuration(40_000)},
    ),
    Peer(
        "bare asyncpg",
        "bare",
        ("asyncpg==0.32.0", "uvloop==0.23.0"),
        "select count(*) from bare",
        {
            "default": Configuration(20_000, {"batch": 10, "loops": 1}),
            "tuned": Configuration(80_000, {"batch": 100, "loops": 2, "uvloop": True}),
        },
    ),
    Peer(
        "graphile-worker",
        "graphile.mjs",
        ("graphile-worker@0.18.0",),
        "select count(*) from graphile_worker._private_jobs",
        {
            "default": Configuration(10_000),
            # The settings with which its page on performance was measured.
            "tuned": Configuration(
                80_000,
                {
                    "concurrentJobs": 24,
                    "maxPoolSize": 25,
                    "localQueue": {"size": 500},
                    "completeJobBatchDelay": 0,
                    "failJobBatchDelay": 0,
                },
            ),
        },
    ),
    Peer(
        "pg-boss",
        "pgboss.mjs",
        ("pg-boss@12.38.0",),
        "select count(*) from pgboss.job where name = 'bench' and state < 'completed'",
        {
            "default": Configuration(8),  # one job every two seconds
            "tuned": Configuration(
                80_000,
                {
                    "notify": True,
                    "work": {
                        "batchSize": 500,
                        "burstWhenBatchFull": True,
                        "localConcurrency": 2,
                        "pollingIntervalSeconds": 0.5,
                    },
                },
            ),
        },
    ),
    Peer(
        "pgqueuer",
        "pgqueuer_",
        ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
        "select count(*) from pgqueuer",
        {
            "default": Configuration(20_000),
            # Its guide to performance: bigger batches, its settings for autovacuum, statistics summed up when read.
            "tuned": Configuration(
                40_000,
                {"run": {"batch_size": 200}, "log_aggregation_s": 0, "autovac": True, "uvloop": True},
            ),
        },
    ),
    Peer(
        "awa",
        "awa_",
        ("awa-pg==0.6.9",),
        # Its view of all jobs takes many seconds on a drained queue. Behind it, what is completed is counted in batches,
        # and in a total for those whose partition was truncated meanwhile.
        "select %(jobs)s - coalesce((select sum(completed_count) from awa.receipt_completion_batches), 0)"
        " - (select count(*) from awa.done_entries)"
        " - coalesce((select sum(pruned_completed_count) from awa.queue_terminal_rollups), 0)",
        {
            "default": Configuration(10_000, {"queue": {"max_workers": 50}}),
            "tuned": Configuration(
                30_000,
                {"queue": {"max_workers": 1024, "claim_batch_size": 512}, "client": {"max_connections": 20}},
                {"AWA_COMPLETION_BATCH_SIZE": "512"},
            ),
        },
    ),
    Peer(
        "procrastinate",
        "procrastinate_",
        ("procrastinate==3.10.0", "psycopg[binary]==3.3.9", "uvloop==0.23.0"),
        "select count(*) from procrastinate_jobs where status in ('todo', 'doing')",
        {
            "default": Configuration(3_000),
            "tuned": Configuration(
                3_000,
                {
                    "worker": {"concurrency": 20, "delete_jobs": "always"},
                    "pool": {"min_size": 1, "max_size": 12},
                    "uvloop": True,
                },
            ),
        },
    ),
)

NODE = "node@22.23.3"
"""Installed from npm where the machine's own Node is older than 22, which the Node peers need."""

PLOT = "pygal==3.1.3"
"""Draws the plot."""


def named(name: str) -> Peer:
    """The peer of a name; dashes, underscores and blanks are one."""
    wanted = _plain(name)
    for peer in PEERS:
        if _plain(peer.name) == wanted:
            return peer
    raise SystemExit(f"There is no peer {name!r}. There are: {', '.join(peer.name for peer in PEERS)}.")


def _plain(name: str) -> str:
    return name.replace("-", " ").replace("_", " ").casefold()
