"""Calls the functions users register, async or not."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any

log = logging.getLogger("tenure.worker")


async def run_hooks(hooks: Iterable[Callable[..., Any]], *args: Any) -> None:
    """Call each in turn, and await what it returns if that can be awaited."""
    for hook in hooks:
        answer = hook(*args)
        if inspect.isawaitable(answer):
            await answer


async def run_harmless(hooks: Iterable[Callable[..., Any]], *args: Any) -> None:
    """The same for hooks whose failure must not harm anybody: it is logged, and the next one is called."""
    for hook in hooks:
        try:
            await run_hooks([hook], *args)
        except Exception:
            log.exception("the hook %s failed", getattr(hook, "__name__", hook))
