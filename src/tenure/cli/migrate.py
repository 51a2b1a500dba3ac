"""``tenure migrate``: the schema brought up to this code, and an app's kinds made known."""

from __future__ import annotations

from typing import Annotated

import typer

from tenure.cli import show
from tenure.cli.common import AsJson, Dsn, Schema

EXAMPLES = """Examples:

tenure migrate --dsn postgresql://tenure@db/shop

tenure migrate shop.jobs:app"""


def migrate(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:APP]", help="Also register the kinds of this app.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Create the schema or bring it up to date; any number at once will do no harm."""
    from tenure.app import Tenure
    from tenure.loading import load

    app = Tenure() if target is None else load(target)
    app.point_at(dsn, schema)
    with app:
        applied = app.migrate()
    kinds = sorted(app.kinds)
    if as_json:
        show.json_line({"schema": app.schema, "applied": applied, "kinds": kinds})
        return
    show.line(f"Schema {app.schema}: {', '.join(applied) or 'up to date'}.")
    if target is not None:
        show.line(f"Kinds registered: {', '.join(kinds) or 'none'}.")
