"""Somebody else's service: takes each delivery once, however often it is sent. ``uvicorn catalog_export.receiver:site``

It keeps what it has answered under the request's Idempotency-Key, in the same transaction as its work. It can be told to
have a bad day: ``PUT /moods`` with a list, one mood for each coming call.

======= ============================================================
mood    what becomes of the call
======= ============================================================
busy    429 with Retry-After, before the work
refuse  400, before the work
down    503, before the work
lose    the work is done, and the answer is a 500
hang    the work is done, and no answer comes before the caller goes
======= ============================================================
"""

import asyncio
import hashlib
import os
import sqlite3
from collections import deque
from contextlib import closing

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

KEPT = os.environ.get("RECEIVER_DB", "receiver.sqlite")
TABLES = """
create table if not exists answers (key text primary key, sha256 text not null, receipt text not null);
create table if not exists works (key text not null);  -- nothing keeps a key from being here twice but the code below
create table if not exists calls (key text not null);
"""
LONG = 60.0

moods: deque[str] = deque()


async def take(request: Request) -> Response:
    """A delivery: the work is done at the first call of its key, and every call of the key gets the same answer."""
    key = request.headers.get("idempotency-key")
    if not key:
        return JSONResponse({"error": "Send an Idempotency-Key."}, 400)
    content = await request.body()
    mood = moods.popleft() if moods else ""
    with closing(sqlite3.connect(KEPT)) as kept, kept:
        kept.execute("insert into calls values (?)", [key])
    if mood == "busy":
        return JSONResponse({"error": "Not now."}, 429, {"Retry-After": "1"})
    if mood in ("refuse", "down"):
        return JSONResponse({"error": mood}, 400 if mood == "refuse" else 503)
    answer = _worked(key, hashlib.sha256(content).hexdigest())
    if mood == "lose":
        return JSONResponse({"error": "Something went wrong, and nobody can say when."}, 500)
    if mood == "hang":
        await asyncio.sleep(LONG)
    return answer


def _worked(key: str, sha256: str) -> Response:
    """The work and what is remembered of it, in one commit of this service's own."""
    with closing(sqlite3.connect(KEPT)) as kept, kept:
        kept.execute("begin immediate")  # two calls of one key come one after the other
        known = kept.execute("select sha256, receipt from answers where key = ?", [key]).fetchone()
        if known and known[0] != sha256:
            return JSONResponse({"error": "This key was another delivery."}, 422)
        if not known:
            kept.execute("insert into works values (?)", [key])
            [number] = kept.execute("select count(*) from works").fetchone()
            known = (sha256, f"/deliveries/{number}")
            kept.execute("insert into answers values (?, ?, ?)", [key, *known])
    return JSONResponse({"sha256": sha256}, 201, {"Location": known[1]})


async def seen(_: Request) -> JSONResponse:
    """Every key with the number of its calls and of its works, and what was delivered."""
    with closing(sqlite3.connect(KEPT)) as kept:
        found = kept.execute(
            "select key, count(*), (select count(*) from works w where w.key = c.key),"
            " (select sha256 from answers a where a.key = c.key) from calls c group by key"
        ).fetchall()
    return JSONResponse([dict(zip(("key", "calls", "works", "sha256"), row, strict=True)) for row in found])


async def change(request: Request) -> Response:
    """What the coming calls meet."""
    moods.clear()
    moods.extend(await request.json())
    return Response(status_code=204)


with closing(sqlite3.connect(KEPT)) as _kept:
    _kept.executescript(TABLES)
site = Starlette(
    routes=[
        Route("/deliveries", take, methods=["POST"]),
        Route("/deliveries", seen),
        Route("/moods", change, methods=["PUT"]),
    ]
)
