"""The network of a run: each worker and each producer has a way to the server of its own, which can be broken alone."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tenure.chaos.proxy import Proxy

_SLOW = 0.03  # seconds that a slow network takes


class Way:
    """The way of one process, and of whoever comes after it in its place.

    Args:
        proxy: what it leads through.
    """

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self._until = 0.0
        self._alone = False

    @property
    def whole(self) -> bool:
        """Whether nothing is done to it alone."""
        return not self._alone

    def entered(self) -> str:
        """The DSN for a process that begins there: what was done to another one alone is over."""
        if self._alone:
            self.heal()
        return self.proxy.dsn()

    def disturb(self, how: str, seconds: float, *, alone: bool) -> None:
        """Break it in one of the ways of ``plan.NETWORK``.

        Args:
            seconds: how long; a drop takes no time.
            alone: it is this one's; then what happens to all meanwhile spares it, or it would end too soon.
        """
        if self._alone and not alone:
            return
        match how:
            case "drop":
                self.proxy.drop()
                return
            case "latency":
                self.proxy.latency(_SLOW)
            case _:
                getattr(self.proxy, how)()
        self._until, self._alone = time.monotonic() + seconds, alone

    def heal(self, now: float = float("inf")) -> None:
        """Undo what has lasted long enough."""
        if 0 < self._until <= now:
            self.proxy.heal()
            self._until, self._alone = 0.0, False


class Network:
    """All of them.

    Args:
        dsn: the server.
        workers, producers: how many there are.
    """

    def __init__(self, dsn: str, workers: int, producers: int) -> None:
        self._proxies = [Proxy(dsn) for _ in range(workers + producers)]
        self._open = ExitStack()
        self.ways = [Way(proxy) for proxy in self._proxies]
        self.workers = self.ways[:workers]
        self.producers = self.ways[workers:]

    def __enter__(self) -> Self:
        with self._open:
            for proxy in self._proxies:
                self._open.enter_context(proxy)
            self._open = self._open.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, exc, trace)

    def disturb(self, how: str, seconds: float) -> None:
        """Do the same to all ways that nothing is done to alone."""
        for way in self.ways:
            way.disturb(how, seconds, alone=False)

    def heal(self, now: float = float("inf")) -> None:
        """Undo what has lasted long enough."""
        for way in self.ways:
            way.heal(now)
