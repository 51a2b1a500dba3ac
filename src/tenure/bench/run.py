"""Runs a scenario: its options, the server, and what is said in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tenure.bench.backlog import backlog
from tenure.bench.effects import effects
from tenure.bench.enqueue import enqueue
from tenure.bench.keyed import keyed
from tenure.bench.latency import latency
from tenure.bench.limited import limited
from tenure.bench.overload import overload
from tenure.bench.pinned import pinned
from tenure.bench.process import process, scale
from tenure.bench.report import Report
from tenure.bench.server import Server, serving
from tenure.bench.soak import soak
from tenure.bench.wishes import Show, Wishes
from tenure.errors import ConfigError


class Scenario(NamedTuple):
    """Something that can be measured.

    Args:
        run: measures it.
        options: that it takes, with their defaults.
    """

    run: Callable[[Server, Wishes], Report]
    options: dict[str, Any]


SCENARIOS = {
    "process": Scenario(process, {"jobs": 50_000, "processes": 1, "rounds": 5, "batch": 0, "retention": 7}),
    "enqueue": Scenario(enqueue, {"jobs": 50_000}),
    "keyed": Scenario(keyed, {"jobs": 1_000_000, "processes": 1, "retention": 7}),
    "latency": Scenario(latency, {"seconds": 10.0}),
    "limited": Scenario(limited, {"jobs": 1_000_000, "processes": 1, "seconds": 20.0, "retention": 7}),
    "pinned": Scenario(pinned, {"seconds": 60.0, "pin": "snapshot", "offered": 0}),
    "overload": Scenario(overload, {"seconds": 180.0}),
    "backlog": Scenario(backlog, {"jobs": 1_000_000}),
    "effects": Scenario(effects, {"jobs": 5_000, "rounds": 3}),
    "scale": Scenario(scale, {"jobs": 50_000, "processes": 4, "rounds": 3}),
    "soak": Scenario(soak, {"jobs": 1_000_000, "retention": 7}),
}


def chosen(name: str, given: Mapping[str, Any]) -> tuple[Scenario, Wishes]:
    """A scenario, and what is asked of it: its defaults where nothing is given.

    Args:
        given: options by name; None is one that was not given.

    Raises:
        ConfigError: there is no such scenario, or it does not take an option.
    """
    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise ConfigError(f"There is no scenario {name[:40]!r}.", hint=f"Use one of {', '.join(SCENARIOS)}.")
    options = {option: value for option, value in given.items() if value is not None}
    for option in options:
        if option not in scenario.options:
            taken = ", ".join(f"--{name}" for name in scenario.options)
            raise ConfigError(f"{name} does not take --{option}.", hint=f"It takes {taken}.")
    return scenario, replace(Wishes(), **{**scenario.options, **options})


def run(name: str, given: Mapping[str, Any], dsn: str | None, show: Show) -> tuple[Report, dict[str, Any]]:
    """Measure it; answers the report, and what there is to say about the server.

    Args:
        name: of the scenario.
        given: its options, as ``chosen``.
        dsn: a database to run it on, in schemas of its own; None starts a server for it.
        show: is told how far it is.

    Raises:
        ConfigError: as ``chosen``.
        EngineError, StoreUnavailable, ServerUnsuitable: there is no server for it.
        TenureError: it does not come to an end.
    """
    scenario, wishes = chosen(name, given)
    with serving(dsn) as server:
        told = {"command": _command(name, given), "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", **server.told()}
        return scenario.run(server, replace(wishes, show=show)), told


def _command(name: str, given: Mapping[str, Any]) -> str:
    """What was asked for, without the DSN."""
    options = [f"--{option} {value}" for option, value in given.items() if value is not None]
    return " ".join(["tenure bench", name, *options])
