"""Django: the transaction of ``atomic`` is the job's, and nothing has to wait for ``on_commit``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from tenure.kind import Kind
from tests.drivers import djangos
from tests.drivers.conftest import Watch
from tests.drivers.djangos import a_database, postgres


class Sorry(Exception):
    """Rolls a transaction back."""


@pytest.fixture
def atomic_requests() -> bool:
    return False


@pytest.fixture(autouse=True)
def database(dsn: str, watch: Watch, atomic_requests: bool) -> Iterator[None]:
    with a_database({**postgres(dsn), "ATOMIC_REQUESTS": atomic_requests}):
        yield


def note(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into notes values (%s)", [text])


def test_a_job_enqueued_in_atomic_needs_no_on_commit(work: Kind, watch: Watch) -> None:
    """It is seen by nobody before the commit, and by everybody from the commit on: before ``on_commit`` is even called."""
    seen: list[list[Any]] = []
    with transaction.atomic():
        note("mine")
        transaction.on_commit(lambda: seen.append(watch.jobs))
        ticket = work.enqueue_sync(1, conn=connection)
        assert (watch.jobs, watch.notes) == ([], [])
    assert seen == [[ticket.id]]
    assert (watch.jobs, watch.notes) == ([ticket.id], ["mine"])


def test_a_job_enqueued_in_atomic_goes_with_its_rollback(work: Kind, watch: Watch) -> None:
    with suppress(Sorry), transaction.atomic():
        note("mine")
        work.enqueue_sync(1, key="a", conn=connection)
        raise Sorry
    assert (watch.jobs, watch.notes) == ([], [])
    with transaction.atomic():
        assert work.enqueue_sync(1, key="a", conn=connection).answer == "new"


def test_a_job_enqueued_in_a_nested_atomic_goes_with_that_one_alone(work: Kind, watch: Watch) -> None:
    with transaction.atomic():
        kept = work.enqueue_sync(1, key="a", conn=connection)
        with suppress(Sorry), transaction.atomic():
            work.enqueue_sync(2, key="b", conn=connection)
            raise Sorry
        with transaction.atomic(savepoint=False):
            too = work.enqueue_sync(3, key="b", conn=connection)
    assert too.answer == "new"
    assert watch.jobs == [kept.id, too.id]


def test_a_job_is_not_lost_where_on_commit_would_be(work: Kind, watch: Watch) -> None:
    """A process that dies between the commit and ``on_commit`` has committed the job as well."""

    def die() -> None:
        raise Sorry

    with suppress(Sorry), transaction.atomic():
        transaction.on_commit(die)
        transaction.on_commit(lambda: work.enqueue_sync(2))
        ticket = work.enqueue_sync(1, conn=connection)
    assert watch.jobs == [ticket.id]


def test_in_a_transaction_that_is_to_be_rolled_back_django_says_so_itself(work: Kind, watch: Watch) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            work.enqueue_sync(1, conn=connection)
    assert watch.jobs == []


@pytest.mark.parametrize("atomic_requests", [True])
def test_a_view_with_atomic_requests_needs_no_atomic(work: Kind, watch: Watch, atomic_requests: bool) -> None:
    def order(request: Any, number: int) -> HttpResponse:
        note(f"order {number}")
        work.enqueue_sync(number, key=f"order-{number}", conn=connection)
        assert watch.jobs == []
        if number == 2:
            raise Sorry
        return HttpResponse()

    djangos.urlpatterns[:] = [path("<int:number>/", order)]
    client = Client(raise_request_exception=False)
    assert client.get("/2/").status_code == 500
    assert (watch.jobs, watch.notes) == ([], [])
    assert client.get("/1/").status_code == 200
    assert (len(watch.jobs), watch.notes) == (1, ["order 1"])


def test_another_database_of_the_project_is_handed_over_by_its_name(work: Kind, watch: Watch, dsn: str) -> None:
    with a_database(postgres(dsn), "other"), transaction.atomic("other"):
        ticket = work.enqueue_sync(1, conn=connections["other"])
        assert watch.jobs == []
    assert watch.jobs == [ticket.id]


def test_queries_that_django_logs_are_logged(work: Kind, watch: Watch) -> None:
    connection.force_debug_cursor = True
    with transaction.atomic():
        work.enqueue_sync(1, note="100 %s", conn=connection)
    assert any("100 %s" in query["sql"] for query in connection.queries)
    assert len(watch.jobs) == 1
