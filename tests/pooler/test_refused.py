"""A pooler in transaction mode that nobody has named is found out, and what cannot work behind one is refused in words."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tenure import ConfigError, ServerUnsuitable, Tenure
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Now, Status
from tests.cli.conftest import here
from tests.conftest import Server
from tests.support.pgbouncer import kept_in_sessions, pooling
from tests.worker.processes import Bench


def test_an_app_that_does_not_name_it_is_refused(pooled: str) -> None:
    with Tenure(pooled) as app:
        with pytest.raises(ServerUnsuitable, match="the same session") as refused:
            app.store.run(Status())
        assert 'Tenure(pooler="transaction")' in (refused.value.hint or "")
    with Tenure(pooled, pooler="transaction") as app:
        assert app.store.run(Status()) == []


def test_a_worker_that_does_not_name_it_ends_and_says_why(dsn: str, pooled: str, tmp_path: Path) -> None:
    bench = Bench(dsn, tmp_path)
    worker = bench.start("tests.apps.basic:app", dsn=pooled)
    try:
        assert worker.ended() == 3
        assert "pooler in transaction mode" in worker.log
    finally:
        bench.close()


@pytest.mark.parametrize("words", [("status",), ("migrate",), ("jobs", "list"), ("dead", "list")], ids=" ".join)
def test_commands_take_the_environments_word_for_it(pooled: str, words: tuple[str, ...]) -> None:
    refused = here(*words, TENURE_DSN=pooled)
    assert (refused.code, refused.out) == (3, "")
    assert "TENURE_POOLER=transaction" in refused.err
    assert here(*words, TENURE_DSN=pooled, TENURE_POOLER="transaction").code == 0


def test_upkeep_through_it_prepares_nothing(pooled: str, dsn: str) -> None:
    """It says one statement for each partition: more often than it takes for psycopg to prepare it."""
    store = PostgresStore(pooled, "anew", prepare=False)
    store.migrate()
    store.close()
    with psycopg.connect(dsn) as conn:
        partitions = "select count(*) from pg_inherits where inhparent = 'anew.archive'::regclass"
        assert (conn.execute(partitions).fetchone() or (0,))[0] > 6
    assert kept_in_sessions(pooled) == []


@pytest.mark.parametrize("named", [{}, {"TENURE_POOLER": "transaction"}], ids=["not named", "named"])
@pytest.mark.parametrize("words", [("bench", "process"), ("bench", "pinned"), ("chaos",)], ids=" ".join)
def test_what_is_tried_out_needs_the_server_itself(pooled: str, words: tuple[str, ...], named: dict[str, str]) -> None:
    refused = here(*words, "--dsn", pooled, **named)
    assert (refused.code, refused.out) == (3, "")
    assert "There is a pooler in transaction mode before the server." in refused.err
    assert "Name the server itself with --dsn" in refused.err


@pytest.mark.parametrize("sessions", [2, 1])
def test_a_pooler_in_session_mode_is_as_good_as_none(pg18: Server, base: Path, dsn: str, sessions: int) -> None:
    with (
        pooling(pg18.engine, base, mode="session", sessions=sessions) as pooler,
        Tenure(pooler.dsn(dsn)) as app,
    ):
        assert app.store.run(Status()) == []


def test_a_statement_that_another_client_has_prepared_names_the_pooler(pg18: Server, base: Path, dsn: str) -> None:
    with pooling(pg18.engine, base, sessions=1) as pooler:
        one, other = PostgresStore(pooler.dsn(dsn)), PostgresStore(pooler.dsn(dsn))
        with pytest.raises(ServerUnsuitable, match="prepared") as refused:  # noqa: PT012 - one of them, at some time
            for _ in range(20):
                one.run(Now())
                other.run(Now())
        assert "pooler in transaction mode" in (refused.value.hint or "")
        one.close()
        other.close()


@pytest.mark.parametrize(
    ("setting", "told"),
    [("default_transaction_isolation = 'serializable'", "'serializable'"), ("datestyle = 'German'", "'German, DMY'")],
)
def test_settings_of_the_database_that_cannot_be_changed_behind_it_are_refused(
    pooled: str, dsn: str, setting: str, told: str
) -> None:
    name = dsn.rsplit("dbname=", 1)[1]
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"alter database {name} set {setting}".encode())
    with Tenure(pooled, pooler="transaction") as app, pytest.raises(ServerUnsuitable, match=told):
        app.store.run(Status())
    with Tenure(dsn) as app:
        assert app.store.run(Status()) == []


def test_another_mode_is_no_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="statement"):
        Tenure(pooler="statement")  # type: ignore[arg-type]
    monkeypatch.setenv("TENURE_POOLER", "session")
    with pytest.raises(ConfigError, match="session"):
        Tenure()
    monkeypatch.setenv("TENURE_POOLER", "transaction")
    assert Tenure().pooler == "transaction"
