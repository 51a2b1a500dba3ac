"""``tenure grants``: what each role needs and no more, as SQL to read, or applied."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tenure.cli import show
from tenure.cli.common import AsJson, Dsn, Schema, opened

EXAMPLES = """Examples:

tenure grants --worker mail_worker --producer shop --viewer support

tenure grants --worker mail_worker | psql -v ON_ERROR_STOP=1 "$OWNER_DSN"

tenure grants --owner tenure_owner --apply --dsn postgresql://postgres@db/shop"""


def grants(
    owner: Annotated[
        str | None, typer.Option(help="Role that owns the schema and migrates.", metavar="ROLE", show_default=False)
    ] = None,
    producers: Annotated[
        list[str] | None, typer.Option("--producer", help="Role that enqueues.", metavar="ROLE", show_default=False)
    ] = None,
    workers: Annotated[
        list[str] | None, typer.Option("--worker", help="Role that runs jobs.", metavar="ROLE", show_default=False)
    ] = None,
    viewers: Annotated[
        list[str] | None, typer.Option("--viewer", help="Role that only looks.", metavar="ROLE", show_default=False)
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Run it, as one transaction, instead of printing it.")] = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Print the SQL that gives roles their rights on the schema; nothing is changed without --apply."""
    from tenure.store.grants import Grants, script

    named = Grants(owner, producers or (), workers or (), viewers or ())
    with opened(dsn, schema) as app:
        text = script(named, app.schema)
        if apply:
            app.grant(named)
    if as_json:
        show.json_line({"schema": app.schema, "roles": named.roles, "applied": apply, "sql": text})
    elif apply:
        show.line(f"Schema {app.schema}: rights given to {', '.join(named.roles)}.")
    else:
        whole = f"begin;\n\n{text}\ncommit;"
        # For psql as it is; a person who reads it in a terminal gets no escape codes out of a role's name.
        typer.echo(show.safe(whole, lines=True) if sys.stdout.isatty() else whole)
