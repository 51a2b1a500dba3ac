"""Looks at everything that have run out of time: begun again with more of it, beside all else, one at a time.

While somebody holds a snapshot for long, what is dead can grow to more than a statement may read. What waits behind it is
found nevertheless: what is new is claimed and swept from hints on, and meanwhile a connection of its own reads through all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable

from tenure.errors import TenureError

log = logging.getLogger("tenure.worker")


class AtLength:
    """What is to be looked at for long; one of a name at a time, however often it is wanted."""

    def __init__(self) -> None:
        self._wanted: dict[Hashable, Callable[[], Awaitable[None]]] = {}
        self._begin = asyncio.Event()

    def want(self, name: Hashable, look: Callable[[], Awaitable[None]]) -> None:
        """Look, when those that were wanted before have ended; nothing, if it is wanted already or under way."""
        if name not in self._wanted:
            self._wanted[name] = look
            self._begin.set()

    async def run(self) -> None:
        """Look on, until cancelled; the outage or fault of one ends no other."""
        while True:
            await self._begin.wait()
            self._begin.clear()
            while self._wanted:
                name, look = next(iter(self._wanted.items()))
                try:
                    await look()
                except TenureError as error:
                    log.warning("could not look at everything, and will try again: %s", error.what)
                except Exception:
                    log.exception("could not look at everything, and will try again")
                del self._wanted[name]
