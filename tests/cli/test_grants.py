"""``tenure grants``: printed to be read, or applied as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.support.roles import a_role, as_role


@pytest.fixture
def role(dsn: str) -> Iterator[str]:
    """A role without any rights."""
    with a_role(dsn) as role:
        yield role


def test_without_apply_the_script_is_printed_and_nothing_is_done(cli: Cli, dsn: str, role: str) -> None:
    told = cli("grants", "--viewer", role)
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("begin;\n")
    assert told.out.endswith("\ncommit;\n")
    assert f'grant usage on schema "tenure" to "{role}";' in told.out
    assert cli("status", dsn=as_role(dsn, role)).code == 3
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(told.out.encode())
    assert cli("status", dsn=as_role(dsn, role)).code == 0


def test_no_database_is_needed_to_print_it(cli: Cli) -> None:
    told = cli("grants", "--worker", "w", "--schema", "other", dsn="host=/nowhere")
    assert told.code == 0
    assert '"other".jobs' in told.out
    assert "tenure.jobs" not in told.out


def test_with_apply_it_is_done(cli: Cli, dsn: str, role: str) -> None:
    told = cli("grants", "--viewer", role, "--producer", role, "--apply")
    assert told == (0, f"Schema tenure: rights given to {role}.\n", "")
    assert cli("status", dsn=as_role(dsn, role)).code == 0
    again = cli("grants", "--viewer", role, "--apply", "--json")
    assert (again.json["schema"], again.json["roles"], again.json["applied"]) == ("tenure", [role], True)


def test_a_role_that_does_not_exist_is_told_with_what_creates_it(cli: Cli, dsn: str, role: str) -> None:
    told = cli("grants", "--viewer", role, "--worker", "no such role", "--apply")
    assert (told.code, told.out) == (2, "")
    assert "There is no role 'no such role' on this server." in told.err
    assert 'create role "no such role" login;' in told.err
    assert cli("status", dsn=as_role(dsn, role)).code == 3


def test_who_does_not_own_the_schema_is_told(cli: Cli, dsn: str, role: str) -> None:
    told = cli("grants", "--viewer", role, "--apply", dsn=as_role(dsn, role))
    assert told.code == 3
    assert "does not own the schema" in told.err or "permission denied" in told.err
    cli("grants", "--worker", role, "--apply")
    told = cli("grants", "--viewer", role, "--apply", dsn=as_role(dsn, role))
    assert told.code == 3
    assert f"{role} does not own the schema" in told.err


def test_no_role_and_no_name_are_usage(cli: Cli) -> None:
    assert cli("grants").code == 2
    assert "No role is named." in cli("grants", "--apply").err
    assert cli("grants", "--worker", "").code == 2
    assert cli("grants", "--worker", "a" * 64, "--apply").code == 2
