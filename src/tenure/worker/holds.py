"""What this worker leaves alone: kinds that are paused or throttled, and those whose downstream does not answer.

Nobody is asked for it when jobs are claimed: a kind that is held is left out of what the claimer knows, and claims cost
what they cost without holds. So a worker looks once a second, at once when it has made a hold itself, and at once when
somebody rings while there is one, for a hold may have ended. What it has claimed meanwhile it gives back.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from tenure.errors import TenureError
from tenure.kind import Kind
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Hold, ListHolds, Slowed, ThrottleKinds

log = logging.getLogger("tenure.worker")

LOOK = 1.0
"""Seconds between two looks."""

LONGEST_THROTTLE = 3600.0
"""Longest time in seconds for which one answer of the other side holds a kind; then its jobs ask again."""

_SHORTEST = 0.02
_LONGER = 0.1  # by less than so many seconds no hold is made longer


class Changed(NamedTuple):
    """What is held now, which of it was not before, and what is not held any more."""

    held: frozenset[Kind]
    newly: frozenset[Kind]
    freed: frozenset[Kind]


class Holds:
    """The holds that concern a worker.

    Args:
        store: where they are.
        kinds: of this worker's app.
        who: this worker's name.
        counts: ``throttles``: holds made because the other side said "not now".
        learned: called with what was found of downstreams, at each look.
        changed: called after each look, and when a hold begins or ends in between.

    ``held`` are the kinds to be left alone.
    """

    def __init__(
        self,
        store: PostgresStore,
        kinds: Collection[Kind],
        who: str,
        counts: Counter[str],
        learned: Callable[[list[Hold]], None],
        changed: Callable[[Changed], None],
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._who = who
        self._counts = counts
        self._learned = learned
        self._changed = changed
        self._found: dict[tuple[str, str, str], Hold] = {}
        self._ends: dict[str, float] = {}  # until when names of kinds are held, as far as the database says
        self._own: dict[str, float] = {}  # the same, as far as it has not been told yet
        self._down: set[str] = set()  # downstreams whose breaker is not closed
        self._asked = asyncio.Event()
        self.held: frozenset[Kind] = frozenset()

    def ask(self) -> None:
        """Look now."""
        self._asked.set()

    def ring(self) -> None:
        """Somebody says that there are jobs: if something is held, its hold may have ended."""
        if self.held:
            self._asked.set()

    def throttled(self, kind: Kind, seconds: float) -> None:
        """The other side wants no calls for so many seconds: the kind is held, here at once."""
        end = time.monotonic() + min(seconds, LONGEST_THROTTLE)
        if end > max(self._own.get(kind.name, 0.0), self._ends.get(kind.name, 0.0)) + _LONGER:
            self._own[kind.name] = end
            self._counts["throttles"] += 1
            self._asked.set()
            self._apply()

    def opened(self, downstream: str) -> None:
        """The breaker of a downstream is open: its kinds are held, here at once."""
        self._down.add(downstream)
        self._asked.set()
        self._apply()

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._pause()):
                    await self._asked.wait()
            except TimeoutError:
                pass
            try:
                await self.look()
            except TenureError as error:
                log.debug("could not look for holds: %s", error.what)
            except Exception:
                log.exception("could not look for holds, and will try again")
            self._apply()  # a hold may have ended, whether anybody can be asked or not

    def _pause(self) -> float:
        now = time.monotonic()
        ends = [end - now for end in (*self._own.values(), *self._ends.values()) if end > now]
        return max(_SHORTEST, min([LOOK, *ends]))

    async def look(self) -> None:
        """Tell the database what is new, and learn what is held.

        Raises:
            TenureError: the database cannot be asked; what was known stands.
        """
        self._asked.clear()
        now = time.monotonic()
        own = {name: end for name, end in self._own.items() if end > now}
        items = [Slowed(name, end - now) for name, end in own.items()]
        await self._store.arun(ThrottleKinds(items, "the other side has asked for it", self._who))
        found = await self._store.arun(ListHolds())
        self._own = {name: end for name, end in self._own.items() if own.get(name) != end and end > now}
        self._learn(found, time.monotonic())

    def _learn(self, found: list[Hold], now: float) -> None:
        kinds = {name for kind in self._kinds for name in _names(kind)}
        downstreams = {kind.downstream for kind in self._kinds}
        mine = [hold for hold in found if hold.name in (kinds if hold.what == "kind" else downstreams)]
        self._ends, self._down = {}, {hold.name for hold in mine if hold.what == "downstream"}
        for hold in mine:
            if hold.what == "kind":
                end = math.inf if hold.remaining is None else now + hold.remaining
                self._ends[hold.name] = max(end, self._ends.get(hold.name, 0.0))
        self._say({hold[:3]: hold for hold in mine})
        self._learned([hold for hold in mine if hold.what == "downstream"])
        self._apply()

    def _apply(self) -> None:
        """Have the worker heed what is held at this moment."""
        now = time.monotonic()
        before, self.held = self.held, frozenset(kind for kind in self._kinds if self._holds(kind, now))
        if self.held or before:
            self._changed(Changed(self.held, self.held - before, before - self.held))

    def _holds(self, kind: Kind, now: float) -> bool:
        if kind.downstream in self._down:
            return True
        return any(now < max(self._own.get(name, 0.0), self._ends.get(name, 0.0)) for name in _names(kind))

    def _say(self, found: dict[tuple[str, str, str], Hold]) -> None:
        """Tell people what has begun and ended."""
        before, self._found = self._found, found
        known = {key[:2] if key[0] == "downstream" else key for key in before}  # a breaker that is probed stays held
        for key, hold in found.items():
            if key not in known and key[:2] not in known:
                _say_begun(hold, [kind.name for kind in self._kinds if kind.downstream == hold.name])
        gone = {key[:2] for key in before} - {key[:2] for key in found}
        for what, name in sorted(gone):
            log.info(
                "%s", f"kind {name} is not held any more" if what == "kind" else f"the breaker of {name} has closed"
            )


def _names(kind: Kind) -> Iterable[str]:
    return (kind.name, *kind.aliases)


def _say_begun(hold: Hold, kinds: list[str]) -> None:
    why = f" ({hold.reason})" if hold.reason else ""
    match hold.cause:
        case "paused":
            log.warning("kind %s is paused%s: its jobs wait until: tenure kind resume %s", hold.name, why, hold.name)
        case "throttled":
            log.info("kind %s is throttled: its jobs wait for %.1f s", hold.name, hold.remaining or 0.0)
        case "open" | "half_open":
            end = "somebody closes it" if hold.remaining is None else "a probe has succeeded"
            log.warning("the breaker of %s is open%s: jobs of %s wait until %s", hold.name, why, ", ".join(kinds), end)
