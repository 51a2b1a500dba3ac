"""The bound of a queue: which settings make sense together, and what a producer does when there is no room.

How full a queue is, the database knows (``store/functions/admit.sql``). It says so as JSON text, the *room* of an answer:
``queue``, ``max_depth``, ``max_bytes``, about how many jobs wait (``depth``), what the policy is (``when_full``,
``wait_limit``), after how many seconds there should be room (``retry_after``), and ``never`` where so much cannot come in
at once. Of a queue that drains it says ``draining``.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tenure.errors import ConfigError, QueueDraining, QueueFull, Refused
from tenure.job import Accepted, NewJob, State

WHEN_FULL: Final = ("reject", "wait", "shed")
SHED: Final = ("oldest", "newest")

WAIT_LIMIT: Final = 30.0
"""Longest wait where a queue waits and does not say for how long, seconds."""

LONGEST_WAIT: Final = 3600.0
"""Longest ``wait_limit``, seconds: a producer waits in its call."""

REMEMBERED: Final = 0.25
"""For how long at the most a producer refuses by itself what it has just been refused, seconds."""

_PAUSES = (0.005, 0.5)  # seconds between two tries while it waits, first and longest

FIELDS: Final = ("max_depth", "max_bytes", "when_full", "wait_limit", "shed", "exact")
"""What a bound is set by; of a ``QueueRow``, too."""


# ------------------------------------------------------------------------------------------------------- settings


def merged(now: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a bound after a change; what is not given stays, or goes with what it belonged to.

    Args:
        now: as they are.
        given: what is to change; None takes a setting back.

    Raises:
        ConfigError: they contradict each other, or one cannot be.
    """
    for name in ("max_depth", "max_bytes"):
        _require_positive(name, given.get(name))
    held = {name: given.get(name, now.get(name)) for name in FIELDS}
    said = {name for name, value in given.items() if value is not None and value is not False}
    if held["max_depth"] is None and held["max_bytes"] is None:
        if without := said.intersection(("when_full", "wait_limit", "shed", "exact")):
            raise ConfigError(
                f"{_option(min(without))} says nothing for a queue without a bound.",
                hint="Set --max-depth or --max-bytes, too.",
            )
        return dict.fromkeys(FIELDS) | {"exact": False}
    policy = held["when_full"] = held["when_full"] or "reject"
    _require_one_of("when_full", policy, WHEN_FULL)
    if "wait_limit" in said and policy != "wait":
        raise _belongs("wait_limit", "wait", policy)
    if "shed" in said and policy != "shed":
        raise _belongs("shed", "shed", policy)
    held["wait_limit"] = _wait_limit(held["wait_limit"]) if policy == "wait" else None
    held["shed"] = (held["shed"] or SHED[0]) if policy == "shed" else None
    if held["shed"] is not None:
        _require_one_of("shed", held["shed"], SHED)
    held["exact"] = bool(held["exact"])
    return held


def _require_positive(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{_option(name)} is no whole number.", hint="Write how many, or none for any number.")
    if value == 0:
        raise ConfigError(
            f"{_option(name)} 0 would accept nothing.", hint="To accept nothing for a while: tenure queue drain NAME"
        )
    if not 0 < value < 2**62:
        raise ConfigError(f"{_option(name)} is out of range.", hint="Write a number from 1 on, or none for any number.")


def _require_one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError(f"{_option(name)} {str(value)[:40]!r} is not one.", hint=f"Use {', '.join(allowed)}.")


def _wait_limit(value: Any) -> float:
    seconds = WAIT_LIMIT if value is None else float(value)
    if not 0 < seconds <= LONGEST_WAIT:
        raise ConfigError(
            f"{_option('wait_limit')} must be more than 0 and at most {LONGEST_WAIT:g} s.",
            hint="A producer waits in its call; use --when-full reject to be told at once.",
        )
    return seconds


def _belongs(name: str, policy: str, now: str) -> ConfigError:
    return ConfigError(
        f"{_option(name)} belongs to --when-full {policy}, and this queue would {now}.",
        hint=f"Say --when-full {policy}, too, or leave {_option(name)} out.",
    )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# -------------------------------------------------------------------------------------------------- what is told


def refused_for(job: NewJob, room: str) -> Accepted:
    """The answer for a new job whose queue has no room for it."""
    answer = "draining" if json.loads(room).get("draining") else "full"
    return Accepted(job.id, answer, State.PENDING, None, None, None, room)  # type: ignore[arg-type]


def sheds(room: str) -> bool:
    """Whether others may have to make room."""
    told = json.loads(room)
    return told.get("when_full") == "shed" and not told.get("never")


def error(told: Accepted, jobs: int) -> Refused:
    """What a producer is told.

    Args:
        told: an answer that is ``full`` or ``draining``.
        jobs: how many were offered in that call.
    """
    room = json.loads(told.room or "{}")
    queue = room.get("queue", "")
    if told.answer == "draining":
        return QueueDraining(queue=queue)
    return QueueFull(
        queue=queue,
        jobs=jobs,
        depth=room.get("depth"),
        max_depth=room.get("max_depth"),
        max_bytes=room.get("max_bytes"),
        retry_after=None if room.get("never") else float(room.get("retry_after") or 0.0),
    )


def without_room(answers: Sequence[Accepted]) -> Accepted | None:
    """The first answer that says so, or None."""
    return next((told for told in answers if told.answer in ("full", "draining")), None)


# ---------------------------------------------------------------------------------------------- what a producer does


class Waiting:
    """How long a producer goes on trying, where its queue has it wait; each call has one of its own."""

    def __init__(self) -> None:
        self._end: float | None = None
        self._pause = _PAUSES[0]
        self._last = False

    def pause(self, answers: Sequence[Accepted]) -> float | None:
        """Seconds to wait before the same is offered again; None where the answers stand."""
        told = without_room(answers)
        room = json.loads(told.room or "{}") if told is not None else {}
        if room.get("when_full") != "wait" or room.get("never") or self._last:
            return None
        now = time.monotonic()
        self._end = now + float(room["wait_limit"]) if self._end is None else self._end
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy
        self._pause = min(2 * self._pause, _PAUSES[1])
        if now + pause >= self._end:
            self._last = True  # once more, when time is over
            return max(0.0, self._end - now)
        return pause


class _Refusal(NamedTuple):
    until: float
    jobs: int
    room: dict[str, Any]


class Refusals:
    """What a process has been refused a moment ago, so that it need not ask again; see ``REMEMBERED``.

    Only where the queue rejects, and of jobs without a key: what a key names may be there, and is answered.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Refusal] = {}
        self._lock = threading.Lock()

    def answers(self, queue: str, jobs: Sequence[NewJob]) -> list[Accepted] | None:
        """What the door would say to as many jobs; None: ask it."""
        known = self._known.get(queue)
        left = known.until - time.monotonic() if known is not None else 0.0
        if known is None or left <= 0 or len(jobs) < known.jobs or any(job.key is not None for job in jobs):
            return None
        room = json.dumps(known.room | {"retry_after": round(left, 3)})
        return [refused_for(job, room) for job in jobs]

    def learn(self, queue: str, jobs: Sequence[NewJob], answers: Sequence[Accepted]) -> None:
        """Remember what the door has said."""
        told = without_room(answers)
        room = json.loads(told.room or "{}") if told is not None else {}
        with self._lock:
            if room.get("when_full") == "reject" and not room.get("never") and room.get("retry_after"):
                wait = min(float(room["retry_after"]), REMEMBERED)
                self._known[queue] = _Refusal(time.monotonic() + wait, len(jobs), room)
            elif told is None:
                self._known.pop(queue, None)
