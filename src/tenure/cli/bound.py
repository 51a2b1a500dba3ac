"""The bound of a queue on the command line: what is said of it, and how it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.cli import show
from tenure.errors import ConfigError

if TYPE_CHECKING:
    from tenure.store.protocol import QueueRow

RESET = "none"


def given_bound(
    max_depth: str | None,
    max_bytes: str | None,
    when_full: str | None,
    wait_limit: str | None,
    shed: str | None,
    exact: bool | None,
) -> dict[str, Any]:
    """What was said of the bound; none takes a setting back."""
    from tenure.offer import wait

    given: dict[str, Any] = {}
    for option, text in (("max_depth", max_depth), ("max_bytes", max_bytes)):
        if text is not None:
            given[option] = None if text == RESET else _number(option, text)
    for option, text in (("when_full", when_full), ("shed", shed)):
        if text is not None:
            given[option] = None if text == RESET else text
    if wait_limit is not None:
        given["wait_limit"] = None if wait_limit == RESET else wait("--wait-limit", wait_limit)
    if exact is not None:
        given["exact"] = exact
    return given


def _number(option: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ConfigError(
            f"--{option.replace('_', '-')} {text[:20]!r} is no whole number.", hint="Write how many, or none."
        )
    return int(text)


def bound_told(queue: QueueRow) -> tuple[str, str]:
    """What it holds, and what becomes of more."""
    pairs = ((queue.max_depth, "jobs"), (queue.max_bytes, "bytes"))
    held = " and ".join(f"{most:,} {of}" for most, of in pairs if most is not None)
    policy = {"wait": f"wait {show.span(queue.wait_limit)}", "shed": f"shed {queue.shed}"}
    when_full = queue.when_full or ""
    return held + (", exact" if queue.exact else ""), policy.get(when_full, when_full)
