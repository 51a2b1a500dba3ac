"""The catalogue's app in a worker that dies at a step of the example's own, where Tenure has no fault point.

``DIE_AT`` names the step. ``PAUSE_AT`` names a gate instead: there it waits before it writes a file.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx
from examples.catalog_export import files, jobs
from examples.catalog_export.jobs import app

from tenure.faultpoints import Gate

__all__ = ["app"]

STEPS = ("file.before_name", "file.after_name", "post.before", "post.after")

_keep = files.keep
_post = httpx.AsyncClient.post
_rename = Path.replace


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _dying_before_name(part: Path, target: Path) -> Path:
    _die()
    return _rename(part, target)


def _pausing(directory: Path, job: str, content: bytes) -> str:
    Gate(Path(os.environ["PAUSE_AT"])).wait()
    return _keep(directory, job, content)


def _dying_after_name(directory: Path, job: str, content: bytes) -> str:
    _keep(directory, job, content)
    _die()
    raise AssertionError("unreachable")


async def _dying_before_post(*_arguments: Any, **_more: Any) -> httpx.Response:
    _die()
    raise AssertionError("unreachable")


async def _dying_after_post(client: httpx.AsyncClient, *arguments: Any, **more: Any) -> httpx.Response:
    await _post(client, *arguments, **more)
    _die()
    raise AssertionError("unreachable")


match os.environ.get("DIE_AT"):
    case "file.before_name":
        Path.replace = _dying_before_name  # type: ignore[method-assign,assignment]
    case "file.after_name":
        vars(jobs)["keep"] = _dying_after_name
    case "post.before":
        httpx.AsyncClient.post = _dying_before_post  # type: ignore[method-assign]
    case "post.after":
        httpx.AsyncClient.post = _dying_after_post  # type: ignore[method-assign,assignment]
if "PAUSE_AT" in os.environ:
    vars(jobs)["keep"] = _pausing
