"""What happens to whom, and when: a schedule of faults that a seed decides, before anything runs."""

from __future__ import annotations

import random
from typing import NamedTuple

from tenure.errors import ConfigError
from tenure.faultpoints import POINTS

LEASE = 2.0
"""Visibility timeout of the jobs, seconds: short, so that many leases end in a run."""

FAULTS = {
    "kill": "SIGKILL to a worker or a producer",
    "point": "SIGKILL to a worker at a named crash point",
    "stop": "SIGSTOP to a worker for longer than a lease, then SIGCONT",
    "term": "SIGTERM to a worker: it drains and goes",
    "terminate": "pg_terminate_backend for some of the connections",
    "proxy": "the network of all, or of one: cut, refused, reset, swallowed, slow, in slices of a byte",
    "isolate": "the network of one worker swallows everything for longer than a lease",
    "answer": "a producer's commit is cut off, or the producer killed, before or after the server has it",
    "restart": "the server stops at once and recovers",
    "crash": "SIGKILL to every process of the server",
}
"""The kinds of faults, and what each is."""

EMBEDDED = ("restart", "crash")
"""Those that need a server of our own."""

NETWORK = ("drop", "refuse", "reset", "black_hole", "latency", "slices")
"""What the proxy does to the network."""

CRASH_POINTS = tuple(point for point in POINTS if not point.startswith(("migrate.", "redrive.")))
"""Crash points that a worker comes by in such a run."""

ANSWERS = tuple(
    f"{verb} {when} {what}"
    for verb in ("cut", "kill")
    for when in ("before", "after")
    for what in ("keyed", "unkeyed", "commit")
)
"""How a producer gets no answer: the connection is cut, or the producer killed; before the server has it, or after; it is a
call with keys, one without, or the COMMIT of a transaction of the producer's own."""

_RARE = {"isolate": 0.6, "restart": 0.35, "crash": 0.25}  # each keeps somebody from work for a second or two, or all
_QUIET = 1.0  # seconds before the first fault
_PER_SECOND = 1.3
_WHOSE = {"all": 3, "worker": 2, "producer": 1}  # how often it is whose network


class Fault(NamedTuple):
    """One fault.

    Args:
        at: seconds from the beginning.
        kind: one of ``FAULTS``.
        whom: it is done to, ``worker``, ``producer`` or ``all``.
        target: the number of the worker or producer, where it is done to one.
        detail: the crash point, what the proxy does, how an answer is lost, how many connections, or what else.
        seconds: how long it lasts.
    """

    at: float
    kind: str
    whom: str = "worker"
    target: int = 0
    detail: str = ""
    seconds: float = 0.0


def chosen(names: str | None, *, embedded: bool) -> tuple[str, ...]:
    """The kinds of faults of a comma-separated list; all that are possible if there is none.

    Args:
        embedded: whether the server is ours to stop.

    Raises:
        ConfigError: there is no such fault, or the server is somebody else's.
    """
    if names is None:
        return tuple(kind for kind in FAULTS if embedded or kind not in EMBEDDED)
    kinds = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for kind in kinds:
        if kind not in FAULTS:
            raise ConfigError(f"There is no fault {kind[:40]!r}.", hint=f"There are: {', '.join(FAULTS)}.")
        if kind in EMBEDDED and not embedded:
            raise ConfigError(
                f"{kind} would stop a server that is not ours.",
                kept="Nothing was done to it.",
                hint="Leave --dsn out: then an embedded PostgreSQL is started for it.",
            )
    if not kinds:
        raise ConfigError("No fault is named.", hint=f"There are: {', '.join(FAULTS)}.")
    return kinds


def planned(seed: int, seconds: float, workers: int, kinds: tuple[str, ...]) -> list[Fault]:
    """The schedule: the same for the same arguments, each kind as often as its weight, in order of time.

    Args:
        seed: decides it.
        seconds: how long producers are at work; the last fault is before that.
        workers: how many there are.
        kinds: of faults.
    """
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    number = max(len(kinds), round(_PER_SECOND * seconds))
    weighed = [kind for kind in kinds for _ in range(max(1, round(number * _share(kind, kinds))))]
    chance.shuffle(weighed)
    decks = {"point": list(CRASH_POINTS), "answer": list(ANSWERS)}
    for deck in decks.values():
        chance.shuffle(deck)
    step = (seconds - _QUIET) / len(weighed)
    faults = []
    for n, kind in enumerate(weighed):
        at = round(_QUIET + step * (n + chance.random() * 0.9), 3)
        faults.append(_fault(chance, at, kind, workers, decks))
    return faults


def _share(kind: str, kinds: tuple[str, ...]) -> float:
    return _RARE.get(kind, 1.0) / sum(_RARE.get(other, 1.0) for other in kinds)


def _fault(chance: random.Random, at: float, kind: str, workers: int, decks: dict[str, list[str]]) -> Fault:
    target = chance.randrange(workers)
    match kind:
        case "kill":
            return Fault(at, kind, "producer" if chance.random() < 0.3 else "worker", target)
        case "point":
            return Fault(at, kind, "worker", target, _dealt(decks[kind]))
        case "stop":
            told = "term" if chance.random() < 0.3 else ""  # to go, when it wakes up
            return Fault(at, kind, "worker", target, told, _longer_than_a_lease(chance))
        case "terminate":
            return Fault(at, kind, "all", detail=str(chance.randint(1, 6)))
        case "proxy":
            [whom] = chance.choices(list(_WHOSE), list(_WHOSE.values()))
            return Fault(at, kind, whom, target, chance.choice(NETWORK), round(chance.uniform(0.2, 1.5), 3))
        case "isolate":
            return Fault(at, kind, "worker", target, "black_hole", _longer_than_a_lease(chance))
        case "answer":
            return Fault(at, kind, "producer", target, _dealt(decks[kind]))
        case "restart" | "crash":
            return Fault(at, kind, "all")
        case _:
            return Fault(at, kind, "worker", target)


def _dealt(deck: list[str]) -> str:
    """The next one, which comes again after all others."""
    deck.append(card := deck.pop(0))
    return card


def _longer_than_a_lease(chance: random.Random) -> float:
    return round(LEASE * chance.uniform(1.1, 1.8), 3)
