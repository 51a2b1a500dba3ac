"""Measures Tenure beside its peers, on one server, in one session, and prints the ratios.

    python -m benchmarks.compare --install

Run it in Tenure's environment, on a machine that does nothing else. README.md beside this file says what is measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import psycopg

from benchmarks import environments, machine, server
from benchmarks.peers.catalogue import PEERS, Peer, named
from benchmarks.processes import Crew, RunFailedError
from benchmarks.report import read, report
from benchmarks.scenarios import LONG, SCENARIOS, Run

RESULTS = Path(__file__).parent / "results" / "compare.jsonl"


@dataclass(frozen=True)
class Plan:
    """One run that is to be made."""

    scenario: str
    peer: Peer
    configuration: str
    processes: int
    repetition: int


def plans(options: argparse.Namespace, peers: Sequence[Peer]) -> Iterator[Plan]:
    """The matrix, interleaved: every peer once, then every peer again, so that a drift of the machine meets all."""
    for repetition in range(1, max(options.repetitions, options.pinned_repetitions) + 1):
        for peer in peers:
            for scenario in options.scenarios:
                most = options.pinned_repetitions if scenario in LONG else options.repetitions
                if repetition > most:
                    continue
                chosen = peer.configurations if scenario == "process" else [peer.fastest]
                for configuration in chosen:
                    yield Plan(scenario, peer, configuration, 1, repetition)
                if scenario == "process":
                    yield Plan(scenario, peer, peer.fastest, 2, repetition)


@dataclass
class Session:
    """Makes the runs and appends a line for each.

    Args:
        server: what everybody runs on.
        options: the command line.
        results: the file that is appended to.
        log: where the peers' output goes.
    """

    server: server.Server
    options: argparse.Namespace
    results: Path
    log: IO[bytes]
    floor: dict[str, float] | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._facts = {
            "commit": machine.commit(),
            "command": "python -m benchmarks.compare " + shlex.join(sys.argv[1:]),
            "machine": machine.facts(),
            "postgresql": {"version": self.server.version, "fsync": "on", **server.SETTINGS},
        }

    def measure_floor(self) -> None:
        """Measure the floor; the runs that follow are compared with this one."""
        noise = machine.Noise(self._ours)
        figures = self.server.floor(self.options.floor_batches)
        self.floor = {name: round(value, 1) for name, value in figures.items()}
        self._append({"scenario": "floor", "peer": "floor", **self.floor}, noise)

    def measure(self, plan: Plan, versions: dict[str, str]) -> None:
        """Make a run; again where others used the machine meanwhile, and keep all of them."""
        for _ in range(1 + self.options.retries):
            if not self._once(plan, versions)["noisy"]:
                return

    def _once(self, plan: Plan, versions: dict[str, str]) -> dict[str, Any]:
        configuration = plan.peer.configurations[plan.configuration]
        line: dict[str, Any] = {
            "scenario": plan.scenario,
            "peer": plan.peer.name,
            "configuration": plan.configuration,
            "settings": {**configuration.settings, **configuration.environment},
            "processes": plan.processes,
            "repetition": plan.repetition,
            "versions": versions,
            "floor": self.floor,
        }
        noise = machine.Noise(self._ours)
        try:
            line |= self._figures(plan)
        except (RunFailedError, psycopg.Error, OSError) as error:
            line |= {"complete": False, "error": str(error).strip()}
        return self._append(line, noise)

    def _figures(self, plan: Plan) -> dict[str, Any]:
        configuration = plan.peer.configurations[plan.configuration]
        with (
            self.server.database(f"bench_{next(self._numbers)}") as dsn,
            Crew(plan.peer, configuration, dsn, self.log, self.options.patience) as crew,
        ):
            crew.setup()
            with psycopg.connect(dsn, autocommit=True) as connection:
                run = Run(
                    plan.peer,
                    configuration,
                    crew,
                    connection,
                    dsn,
                    plan.processes,
                    most=self.options.jobs,
                    seconds=self.options.seconds,
                    latency_seconds=self.options.latency_seconds,
                )
                return SCENARIOS[plan.scenario](run)

    def _append(self, line: dict[str, Any], noise: machine.Noise) -> dict[str, Any]:
        others = noise.cores()
        line = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            **line,
            "others_cores": others,
            "noisy": machine.noisy(others),
            **self._facts,
        }
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(_in_short(line), file=sys.stderr, flush=True)
        return line

    def _ours(self) -> list[int]:
        return [os.getpid(), *filter(None, [self.server.pid])]


_SHORT = ("jobs_per_s", "single_per_s", "bulk_per_s", "p50_ms", "p99_ms", "first_per_s", "last_per_s", "error")


def _in_short(line: dict[str, Any]) -> str:
    names = [line["peer"], line.get("configuration"), line["scenario"]]
    told = " ".join(str(name) for name in names if name)
    if line.get("processes", 1) > 1:
        told += f", {line['processes']} processes"
    figures = [f"{name} {line[name]:,}" if name != "error" else line[name] for name in _SHORT if name in line]
    if line["scenario"] == "floor":
        figures = [f"{name} {line[name]:,.0f}" for name in ("process", "single", "bulk")]
    if "handled" in line:
        figures.append(f"{line['handled']:,} of {line['jobs']:,} handled, {line['repeated']} repeated")
    if line["noisy"]:
        figures.append(f"noisy: others used {line['others_cores']} cores")
    return f"{told}: {', '.join(figures)}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Install, measure, print."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleared up
    peers = [named(name) for name in options.peers] if options.peers else list(PEERS)
    if options.install:
        environments.install(peers)
    for peer in [peer for peer in peers if not environments.ready(peer)]:
        print(f"{peer.name} is not installed, and left out; --install installs it.", file=sys.stderr)
        peers.remove(peer)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    environments.home().mkdir(parents=True, exist_ok=True)
    try:
        with (environments.home() / "peers.log").open("ab") as log, server.running() as running:
            _measure(Session(running, options, options.results, log), list(plans(options, peers)))
    except KeyboardInterrupt:
        print(f"Interrupted. What was measured is in {options.results}.", file=sys.stderr)
        sys.exit(130)
    told = report(read(options.results))
    options.results.with_suffix(".md").write_text(told, "utf-8")
    print(told, end="")
    _draw(options.results)


def _measure(session: Session, todo: Sequence[Plan]) -> None:
    began = time.monotonic()
    versions = {plan.peer.name: environments.versions(plan.peer) for plan in todo}
    for (_, name), runs in itertools.groupby(todo, lambda plan: (plan.repetition, plan.peer.name)):
        session.measure_floor()
        for plan in runs:
            session.measure(plan, versions[name])
    print(f"{len(todo)} runs in {(time.monotonic() - began) / 60:.0f} minutes", file=sys.stderr)


def _draw(results: Path) -> None:
    """A picture beside the results, where there is something to draw and something to draw it with."""
    for scenario in {line["scenario"] for line in read(results) if "per_second" in line}:
        if environments.plotter().exists():
            picture = results.with_name(f"{results.stem}-{scenario}.svg")
            command = [
                str(environments.plotter()),
                "-m",
                "benchmarks.plot",
                str(results.absolute()),
                str(picture.absolute()),
            ]
            subprocess.run([*command, "--scenario", scenario], check=True, timeout=60, cwd=machine.ROOT)  # noqa: S603


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    def words(text: str) -> list[str]:
        return [word.strip() for word in text.split(",") if word.strip()]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install the peers that are missing, from PyPI and npm")
    parser.add_argument("--peers", type=words, default=[], help="only these, separated by commas")
    parser.add_argument("--scenarios", type=words, default=list(SCENARIOS), help=f"of {','.join(SCENARIOS)}")
    parser.add_argument("--repetitions", type=int, default=3, help="of each run (3)")
    parser.add_argument("--pinned-repetitions", type=int, default=1, help="of pinned and unpinned (1)")
    parser.add_argument("--retries", type=int, default=2, help="how often a noisy run is made again (2)")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="never more in process, enqueue, latency")
    parser.add_argument("--seconds", type=int, default=60, help="of pinned and unpinned (60)")
    parser.add_argument("--latency-seconds", type=int, default=10, help="of latency (10)")
    parser.add_argument("--floor-batches", type=int, default=600, help="batches of 100 rows for the floor (600)")
    parser.add_argument("--patience", type=float, default=120, help="longest wait for any one thing, seconds (120)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that is appended to")
    options = parser.parse_args(arguments)
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(unknown)}")
    return options


if __name__ == "__main__":
    main()
