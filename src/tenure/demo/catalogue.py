"""The demonstration's application: catalogues Python modules, one row each, as an effect."""

from __future__ import annotations

import ast
import asyncio
import hashlib
from pathlib import Path
from typing import LiteralString

from psycopg import AsyncConnection, sql

from tenure.app import Tenure
from tenure.policy import Backoff

app = Tenure()

TABLES = """
create table {schema}.catalogue (
    module text primary key, lines int not null, functions int not null, classes int not null, sha256 text not null
);
create table {schema}.applications (module text primary key, times int not null);
"""


@app.job(queue="demo", effect=True, lease="3s", backoff=Backoff("1s", "5s"))
async def catalogue_module(tx: AsyncConnection, module: str, path: str) -> dict[str, int]:
    """Read, parse and count a module; one row in the catalogue, one more application."""
    source = await asyncio.to_thread(Path(path).read_bytes)
    lines, functions, classes = counted(source)
    await tx.execute(
        _in_schema(
            "insert into {schema}.catalogue values (%s, %s, %s, %s, %s) on conflict (module) do update set"
            " lines = excluded.lines, functions = excluded.functions, classes = excluded.classes, sha256 = excluded.sha256"
        ),
        [module, lines, functions, classes, hashlib.sha256(source).hexdigest()],
    )
    # Counted, not overwritten: an effect that happened twice would show here.
    await tx.execute(
        _in_schema(
            "insert into {schema}.applications as a values (%s, 1) on conflict (module) do update set times = a.times + 1"
        ),
        [module],
    )
    return {"lines": lines, "functions": functions, "classes": classes}


def counted(source: bytes) -> tuple[int, int, int]:
    """Lines, functions and classes of a module's source."""
    functions = classes = 0
    for node in ast.walk(ast.parse(source)):
        functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        classes += isinstance(node, ast.ClassDef)
    return len(source.splitlines()), functions, classes


def _in_schema(text: LiteralString) -> sql.Composed:
    return sql.SQL(text).format(schema=sql.Identifier(app.schema))
