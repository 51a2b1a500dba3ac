"""``tenure migrate``: the schema brought up to this code, and an app's kinds made known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import show
from tenure.cli.common import AsJson, Dsn, Schema, schema_or_default

if TYPE_CHECKING:
    from tenure.app import Tenure
    from tenure.store.postgres import PostgresStore

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
    from tenure.loading import load
    from tenure.store.protocol import RegisterKinds

    app = None if target is None else load(target)
    rows = [] if app is None else app.rows()
    with _store(app, dsn, schema) as store:
        applied = store.migrate()
        store.run(RegisterKinds(rows))
    kinds = sorted(row.name for row in rows)
    if as_json:
        show.json_line({"schema": store.schema, "applied": applied, "kinds": kinds})
        return
    show.line(f"Schema {store.schema}: {', '.join(applied) or 'up to date'}.")
    if app is not None:
        show.line(f"Kinds registered: {', '.join(kinds) or 'none'}.")


@contextmanager
def _store(app: Tenure | None, dsn: str | None, schema: str | None) -> Iterator[PostgresStore]:
    """The store to migrate, which need not have a schema yet; the options win over the app."""
    from tenure import embedded
    from tenure.store.postgres import PostgresStore

    where = dsn or (app and app._given_dsn) or os.environ.get("TENURE_DSN")
    named = schema or (app.schema if app else schema_or_default(None))
    with ExitStack() as stack:
        if not where:
            where = stack.enter_context(embedded.attach()).dsn
        store = PostgresStore(where, named, prepare=app is None or app.pooler is None)
        yield stack.enter_context(closing(store))
