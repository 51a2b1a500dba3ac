"""Calls the functions users register, async or not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any


async def run_hooks(hooks: Iterable[Callable[..., Any]], *args: Any) -> None:
    """Call each in turn, and await what it returns if that can be awaited."""
    for hook in hooks:
        answer = hook(*args)
        if inspect.isawaitable(answer):
            await answer
