"""Who owns the schema, who may migrate it, and what applying the grants does."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tenure.errors import ConfigError, SchemaMismatch, ServerUnsuitable
from tenure.store import protocol as ops
from tenure.store.grants import Grants, script
from tenure.store.migrate import migrations
from tenure.store.postgres import PostgresStore
from tests.conftest import Server
from tests.grants.conftest import Cast
from tests.store.steps import accept, claim, complete, take
from tests.support.roles import a_role, as_role

ALL = [f"{migration.number:04} {migration.name}" for migration in migrations()]


@pytest.fixture
def empty(server: Server) -> Iterator[str]:
    """A database without the schema."""
    dsn = server.fresh(template="template0")
    yield dsn
    server.drop(dsn)


def owners(dsn: str) -> set[str]:
    """Of everything in the schema, and of the schema."""
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(
            "select relowner::regrole::text from pg_class where relnamespace = 'tenure'::regnamespace"
            " union select proowner::regrole::text from pg_proc where pronamespace = 'tenure'::regnamespace"
            " union select typowner::regrole::text from pg_type where typnamespace = 'tenure'::regnamespace"
            " union select nspowner::regrole::text from pg_namespace where nspname = 'tenure'"
        ).fetchall()
    return {row[0] for row in rows}


def test_an_owner_migrates_its_schema_without_a_right_on_the_database(empty: str) -> None:
    with a_role(empty, "owner") as owner, a_role(empty, "worker") as worker:
        admin = PostgresStore(empty)
        admin.grant(Grants(owner))
        owned = PostgresStore(as_role(empty, owner))
        assert owned.migrate() == ALL
        assert owned.migrate() == []
        owned.grant(Grants(workers=[worker]))
        assert owners(empty) == {owner}
        working = PostgresStore(as_role(empty, worker))
        working.check()
        assert complete(working, take(working)) == "settled"
        for store in (admin, owned, working):
            store.close()


def test_all_that_was_there_becomes_the_owners(cast: Cast) -> None:
    assert owners(cast.dsn) == {cast.names["owner"]}


def test_the_functions_for_workers_are_the_owners_whoever_migrates(cast: Cast) -> None:
    conn = cast.conn("owner")
    conn.execute("drop function tenure.make_partition, tenure.drop_partition, tenure.follow")
    conn.execute("delete from tenure.migrations where number = 4")
    store = PostgresStore(cast.dsn)
    assert store.migrate() == ["0004 roles"]
    assert owners(cast.dsn) == {cast.names["owner"]}
    store.close()


@pytest.mark.parametrize("part", ["producer", "worker", "viewer", "stranger"])
def test_nobody_but_the_owner_migrates(cast: Cast, part: str) -> None:
    store = cast.store(part)
    with pytest.raises(ServerUnsuitable, match=r"permission denied for schema tenure.*tenure grants"):
        store.migrate()
    cast.conn("owner").execute("delete from tenure.migrations where number = 4")
    with pytest.raises(ServerUnsuitable, match="permission denied for schema tenure"):
        store.migrate()


@pytest.mark.parametrize("part", ["producer", "worker", "viewer", "stranger"])
def test_nobody_but_the_owner_gives_rights(cast: Cast, part: str) -> None:
    """The server would only warn somebody who has a right and may not pass it on."""
    store = cast.store(part)
    for given in (Grants(viewers=[cast.names["stranger"]]), Grants(cast.names[part])):
        with pytest.raises(ServerUnsuitable, match="may not do that"):
            store.grant(given)
    assert owners(cast.dsn) == {cast.names["owner"]}


def test_rights_may_be_given_again_and_by_the_owner(cast: Cast) -> None:
    names = cast.names
    given = Grants(None, [names["producer"], names["stranger"]], [names["worker"]], [names["viewer"]])
    cast.store("owner").grant(given)
    assert accept(cast.store("stranger"))
    assert len(claim(cast.store("worker"))) == 1


def test_one_role_may_have_several_parts(cast: Cast) -> None:
    stranger = cast.names["stranger"]
    cast.store("owner").grant(Grants(None, [stranger], [stranger], [stranger]))
    store = cast.store("stranger")
    assert complete(store, take(store)) == "settled"
    assert len(store.run(ops.ListJobs())) == 1


def test_a_role_that_is_missing_is_told_and_nothing_is_given(cast: Cast) -> None:
    nobody = 'nobody "here"'
    with pytest.raises(ConfigError, match=r'There is no role .* create role "nobody ""here""" login'):
        PostgresStore(cast.dsn).grant(Grants(viewers=[cast.names["stranger"], nobody]))
    with pytest.raises(ServerUnsuitable):
        cast.store("stranger").check()


def test_a_schema_that_is_missing_or_older_is_told(empty: str) -> None:
    with a_role(empty) as somebody:
        store = PostgresStore(empty)
        with pytest.raises(SchemaMismatch, match="no schema 'tenure'"):
            store.grant(Grants(somebody, [somebody]))
        store.migrate()
        with psycopg.connect(empty, autocommit=True) as conn:
            conn.execute("delete from tenure.migrations where number = 4")
        with pytest.raises(SchemaMismatch, match="0004 roles is missing"):
            store.grant(Grants(workers=[somebody]))
        store.close()


@pytest.mark.parametrize("name", ["", "a" * 64, "ä" * 32, "a\0"])
def test_what_cannot_be_a_role_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a role"):
        script(Grants(viewers=[name]), "tenure")


HOSTILE = [
    'a"; drop schema tenure cascade; --',
    "a'; select 1; --",
    "$body$",
    "tenure.jobs",
    "{role}",
    "A b",
    "%s",
    "\\",
]


@pytest.mark.parametrize("schema", ["tenure", "order"])
def test_a_hostile_name_is_a_name(cast: Cast, schema: str) -> None:
    """The script as it is printed, run as one, for roles that are called such things."""
    store = PostgresStore(cast.dsn, schema)
    store.migrate()
    admin = cast.admin
    for name in HOSTILE:
        quoted = sql.Identifier(f"{cast.names['stranger']}{name}")
        admin.execute(sql.SQL("create role {} login").format(quoted))
        try:
            role = f"{cast.names['stranger']}{name}"
            text = script(Grants(role, [role], [role], [role]), schema)
            admin.execute(f"begin; {text} commit;".encode())
            [(owner,)] = admin.execute(
                "select relowner::regrole::oid from pg_class where oid = %s::regclass", [f'"{schema}".jobs']
            )
            assert admin.execute("select rolname from pg_roles where oid = %s", [owner]).fetchall() == [(role,)]
        finally:
            admin.execute(sql.SQL("reassign owned by {} to current_user").format(quoted))
            admin.execute(sql.SQL("drop owned by {}").format(quoted))
            admin.execute(sql.SQL("drop role {}").format(quoted))
    assert complete(store, take(store)) == "settled"
    store.close()
