"""A job that was first claimed too long ago is not let in: the row of an earlier effect may be gone."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tenure import ConfigError, Job, MayDuplicate, Permanent, once
from tenure.policy import Policy, Verdict, classify

DAY = 86_400.0
MONTH = 30 * DAY


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    conn = sqlite3.connect(tmp_path / "elsewhere.db")
    yield conn
    conn.close()


def a_job(**more: Any) -> Job:
    now = datetime.now(UTC)
    plain = Job(uuid4(), "q", "work", 1, "{}", 5, 1, 1, 10, 1, 0, 0, 0, False, None, None, None, None, now, now, 30.0)
    return plain._replace(**more)


def test_a_job_is_known_by_its_idempotency_key(db: sqlite3.Connection) -> None:
    keyed = a_job(key="order-7", key_queue="mail", key_kind="send")
    keyless = a_job()
    with db, once(db, keyed), once(db, keyless):
        pass
    keys = {key for (key,) in db.execute("select dedup_key from tenure_once")}
    assert keys == {"mail/send/order-7", str(keyless.id)}
    with db, once(db, "mail/send/order-7") as effect:
        assert effect.done


@pytest.mark.parametrize(
    ("ttl", "age", "refused"),
    [
        (None, 0.0, False),
        (None, MONTH - 1, False),
        (None, MONTH, True),
        (7 * DAY, 7 * DAY - 1, False),
        (7 * DAY, 7 * DAY, True),
        (90 * DAY, 89 * DAY, False),
        (90 * DAY, 90 * DAY, True),
    ],
)
def test_a_job_is_refused_from_its_time_on(
    db: sqlite3.Connection, ttl: float | None, age: float, refused: bool
) -> None:
    job = a_job(age=age, once_ttl=ttl)
    if not refused:
        with db, once(db, job) as effect:
            assert not effect.done
        return
    with pytest.raises(MayDuplicate, match=f"redrive {job.id} --may-duplicate"), once(db, job):
        raise AssertionError("it was let in")
    assert not db.in_transaction


def test_time_goes_on_while_the_handler_runs(db: sqlite3.Connection) -> None:
    claimed_a_while_ago = a_job(age=MONTH - 50, claimed=time.monotonic() - 60)
    with pytest.raises(MayDuplicate), once(db, claimed_a_while_ago):
        raise AssertionError("it was let in")
    just_claimed = a_job(age=MONTH - 50, claimed=time.monotonic() + 1)  # no clock goes back
    with db, once(db, just_claimed) as effect:
        assert not effect.done


def test_it_is_refused_although_its_row_is_still_there(db: sqlite3.Connection) -> None:
    """Who is refused on some days and not on others would not know what to rely on."""
    job = a_job()
    with db, once(db, job):
        pass
    with pytest.raises(MayDuplicate), once(db, job._replace(age=MONTH)):
        raise AssertionError("it was let in")


@pytest.mark.parametrize(("ttl", "days"), [(None, 31), (7 * DAY, 8), (90 * DAY, 91)])
def test_the_row_outlives_the_last_attempt_by_a_day(db: sqlite3.Connection, ttl: float | None, days: int) -> None:
    with db, once(db, a_job(once_ttl=ttl, age=DAY)):
        pass
    [(kept,)] = db.execute("select julianday(expires_at) - julianday(made_at) from tenure_once")
    assert kept == pytest.approx(days, abs=0.001)


def test_the_time_of_a_job_is_its_kinds_to_say(db: sqlite3.Connection) -> None:
    with pytest.raises(ConfigError, match="once_ttl"):
        once(db, a_job(), ttl="7d")


def test_the_refusal_is_permanent_whatever_the_kind_says() -> None:
    error = MayDuplicate("id", 40 * DAY, MONTH)
    assert isinstance(error, Permanent)
    assert "40 days ago" in str(error)
    assert classify(error, Policy(transient=Exception)) == Verdict("permanent")


@pytest.mark.parametrize("ttl", ["59s", "3651d", "x", -1, True])
def test_a_once_ttl_that_cannot_be_is_refused(ttl: Any) -> None:
    with pytest.raises(ConfigError, match="once_ttl"):
        Policy(once_ttl=ttl)
