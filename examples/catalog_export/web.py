"""HTTP: ask for an export, and look what has become of it. ``uvicorn catalog_export.web:site``"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tenure import Conflict, Refused, TenureError

from .jobs import app, export_course
from .status import status

LONGEST = 4096  # bytes of a request
PATIENCE = 10.0  # seconds to wait for the database


async def ask(request: Request) -> JSONResponse:
    """Accept an export: 202 once it is committed, and the same answer whenever the same request comes again."""
    asked = await _asked(request)
    async with asyncio.timeout(PATIENCE):
        ticket = await export_course.enqueue(course=asked["course"], key=asked["operation"])
    where = f"/exports/{ticket.id}"
    return JSONResponse({"id": str(ticket.id), "status": where}, 202, {"Location": where})


async def show(request: Request) -> JSONResponse:
    """What has become of an export, and of its delivery."""
    async with asyncio.timeout(PATIENCE):
        told = await status(request.path_params["id"])
    return JSONResponse(told) if told else _problem(404, "There is no such export.")


async def _asked(request: Request) -> dict[str, str]:
    body = b""
    async for chunk in request.stream():
        if len(body := body + chunk) > LONGEST:
            raise HTTPException(413, f"A request has at most {LONGEST} bytes.")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "The body is not JSON.") from None
    if not isinstance(asked, dict) or {name: type(value) for name, value in asked.items()} != _EXPECTED:
        raise HTTPException(422, 'Send {"operation": "...", "course": "..."}, both of them text.')
    return asked


_EXPECTED = {"operation": str, "course": str}


def _problem(status: int, title: str, headers: Mapping[str, str] | None = None, **more: str) -> JSONResponse:
    return JSONResponse({"title": title, "status": status, **more}, status, headers, "application/problem+json")


async def _failed(_: Request, error: Exception) -> JSONResponse:
    match error:
        case Conflict():
            return _problem(409, "This operation is another export.", held=error.held, given=error.given)
        case Refused():
            return _problem(422, error.what)
        case HTTPException():
            return _problem(error.status_code, error.detail, error.headers)
        case _:  # it may even be accepted: asking again with the same operation is safe
            return _problem(503, "The database is away. Ask again with the same operation.", {"Retry-After": "5"})


@asynccontextmanager
async def _lifespan(_: Starlette) -> AsyncIterator[None]:
    async with app:
        yield


site = Starlette(
    routes=[Route("/exports", ask, methods=["POST"]), Route("/exports/{id:uuid}", show)],
    exception_handlers=dict.fromkeys((HTTPException, TenureError, TimeoutError), _failed),
    lifespan=_lifespan,
)
