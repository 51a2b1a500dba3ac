"""A whole life of jobs, each process in the role of its part: producers enqueue, workers run, keep house and redrive."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import psycopg
import pytest

from tenure.drivers import run
from tenure.drivers.psycopg import Psycopg
from tenure.errors import JobFailed, ServerUnsuitable
from tenure.store import protocol as ops
from tenure.store.acceptance import accepting_again
from tests.apps import roles
from tests.cli.conftest import tenure
from tests.grants.conftest import Cast
from tests.store.steps import claim, complete, new, offer, shift, take
from tests.worker.processes import Bench

APP = "tests.apps.roles:app"


@pytest.fixture
def bench(cast: Cast, tmp_path: Path) -> Iterator[Bench]:
    """Workers in their role, on a table for effects that was granted apart; this process is a producer."""
    with psycopg.connect(cast.dsn, autocommit=True) as admin:
        admin.execute(roles.TABLE)
        admin.execute(f'grant insert on public.paid to "{cast.names["worker"]}"')
    bench = Bench(cast.dsn, tmp_path)
    roles.app.point_at(cast.login("producer"))
    yield bench
    roles.app.close()
    bench.close()


def burst(bench: Bench, cast: Cast) -> None:
    """A worker does what is due; nothing that it tried was refused."""
    worker = bench.start(APP, dsn=cast.login("worker"), burst=True, children=1)
    assert worker.ended() == 0, worker.log
    assert "permission denied" not in worker.log
    assert "housekeeping failed" not in worker.log


def test_a_life_of_jobs_in_the_roles_of_producer_and_worker(bench: Bench, cast: Cast) -> None:
    paid = roles.pay.enqueue_sync(order_id=1, key="order-1")
    doubled = roles.double.enqueue_sync(n=21)
    stumbled = roles.stumble.enqueue_sync()
    passed = roles.pass_on.enqueue_sync(order_id=2)
    refused = roles.refuse.enqueue_sync()
    many = roles.pay.enqueue_many_sync([{"order_id": n} for n in range(100, 250)])
    burst(bench, cast)

    assert (paid.result_sync(), doubled.result_sync(), passed.result_sync()) == (1, 42, None)
    assert roles.pay.enqueue_sync(order_id=1, key="order-1").result_text == "1"
    assert roles.pay.enqueue_sync(order_id=2, key="order-2").answer == "same"
    assert {ticket.result_sync() for ticket in many} == set(range(100, 250))
    with pytest.raises(JobFailed, match="ended dead") as failed:
        refused.result_sync()
    assert failed.value.failure is None  # the history is not the producer's to read

    listed = tenure("dead", "list", "--json", dsn=cast.login("viewer")).jsons
    assert [(one["id"], one["reason"]) for one in listed] == [(str(refused.id), "permanent")]
    assert tenure("dead", "redrive", str(refused.id), dsn=cast.login("worker")).code == 0
    burst(bench, cast)
    assert (refused.result_sync(), stumbled.result_sync(timeout="30s")) == (2, 2)
    assert sorted(bench.ask("select order_id from public.paid")) == [(n,) for n in (1, 2, *range(100, 250))]
    assert bench.count("jobs") == bench.count("dead") == 0


def test_a_worker_keeps_the_archive_in_its_role(cast: Cast) -> None:
    worker, owner = cast.store("worker"), cast.conn("owner")
    [(today,)] = owner.execute("select (clock_timestamp() at time zone 'UTC')::date")
    past, tomorrow = today - timedelta(days=30), today + timedelta(days=1)
    owner.execute(f"drop table tenure.{partition(tomorrow)}")
    owner.execute(
        f"create table tenure.{partition(past)} partition of tenure.archive"
        f" for values from ('{past} 00:00:00+00') to ('{past + timedelta(days=1)} 00:00:00+00')"
    )
    old = take(worker)
    complete(worker, old)
    owner.execute("update tenure.archive set ended_at = %s where id = %s", [f"{past} 12:00+00", old.id])
    young = take(worker)
    complete(worker, young)

    assert worker.run(ops.Upkeep()) == [f"made {partition(tomorrow)}", f"dropped {partition(past)}"]
    assert worker.run(ops.Upkeep()) == []
    assert worker.run(ops.LookUp(None, [old.id, young.id])).keys() == {young.id}
    [(owners,)] = owner.execute("select array_agg(distinct tableowner) from pg_tables where schemaname = 'tenure'")
    assert owners == [cast.names["owner"]]


def partition(day: date) -> str:
    return f"archive_{day:%Y%m%d}"


# ------------------------------------------------------------------------------------------------------- producers


def test_a_producer_enqueues_in_its_own_transaction(bench: Bench, cast: Cast) -> None:
    conn = cast.conn("producer")
    with conn.transaction(force_rollback=True):
        roles.pay.enqueue_sync(order_id=1, conn=conn)
    with conn.transaction():
        kept = roles.pay.enqueue_sync(order_id=2, key="order-2", conn=conn)
    assert bench.ask("select id from tenure.jobs") == [(kept.id,)]


def test_a_producer_replaces_what_was_never_claimed_and_takes_over_a_key_that_is_over(cast: Cast) -> None:
    producer, worker = cast.store("producer"), cast.store("worker")

    def answer(n: int, replace: bool = False) -> str:
        return offer(producer, new({"n": n}, key="a", replace=replace), key_ttl=60.0)[0].answer

    assert [answer(1), answer(1), answer(2), answer(2, replace=True)] == ["new", "same", "conflict", "replaced"]
    leased = claim(worker)[0]
    worker.run(ops.Dedup("q", leased.job.idempotency_key, "", leased.id, None))
    complete(worker, leased)
    assert [answer(2), answer(3, replace=True)] == ["same", "conflict"]
    shift(cast.store("owner"), 61)
    assert answer(3) == "new"
    [(left,)] = cast.admin.execute("select count(*) from tenure.dedup")
    assert left == 0


def test_a_producer_names_a_job_by_id_or_key_and_sees_its_state_and_result(cast: Cast) -> None:
    producer, worker = cast.store("producer"), cast.store("worker")
    leased = take(worker, key="a")
    assert producer.run(ops.Follow("q", [leased.id]))[leased.id].state == "running"
    complete(worker, leased, '{"secret": 1}')
    assert producer.run(ops.Follow("q", [leased.id]))[leased.id].result == '{"secret": 1}'
    held = producer.run(ops.LookUpKey("q", "a"))
    assert held is not None
    assert (held.job_id, held.result) == (leased.id, '{"secret": 1}')
    with pytest.raises(ServerUnsuitable, match="permission denied"):
        producer.run(ops.LookUp("q", [leased.id]))


def test_a_lost_answer_is_found_out_in_a_producers_role(cast: Cast) -> None:
    producer, worker = cast.store("producer"), cast.store("worker")
    job = new({"n": 1})
    op = ops.Accept("q", "work", 1, "work", 3, 3600.0, 10_000, [job])
    assert producer.run(op)[0].answer == "new"
    [leased] = claim(worker)
    complete(worker, leased, "7")
    with cast.conn("producer") as conn:
        [again] = run(accepting_again(op, producer._said), Psycopg(conn))
    assert (again.id, again.answer, again.result) == (job.id, "new", "7")
    assert claim(worker) == []


# ------------------------------------------------------------------------------------------------- on the command line


def test_the_command_line_works_for_each_part(bench: Bench, cast: Cast, tmp_path: Path) -> None:
    owner, producer, viewer = cast.login("owner"), cast.login("producer"), cast.login("viewer")
    assert tenure("migrate", APP, "--dsn", owner, dsn=None).code == 0
    told = tenure("enqueue", "pay", "--json", '{"order_id": 1}', "--key", "a", "--as-json", dsn=producer)
    assert (told.code, told.json["answer"]) == (0, "new")
    lines = tmp_path / "jobs.jsonl"
    lines.write_text('{"kind": "pay", "args": {"order_id": 5}}\n' * 300)
    assert tenure("enqueue", "--from", str(lines), dsn=producer).code == 0
    assert tenure("jobs", "show", told.json["id"], dsn=viewer).code == 0
    assert tenure("status", "--json", dsn=viewer).json["pending"] == 301
    assert tenure("queue", "set", "default", "--retention", "1", dsn=owner).code == 0
    assert tenure("jobs", "cancel", told.json["id"], dsn=cast.login("worker")).code == 0


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("producer", ["jobs", "list"]),
        ("producer", ["status"]),
        ("viewer", ["queue", "set", "q", "--owner", "me"]),
        ("worker", ["queue", "set", "q", "--retention", "0"]),
        ("worker", ["queue", "resume", "--all"]),
        ("worker", ["migrate"]),
        ("viewer", ["worker", APP, "--burst"]),
        ("stranger", ["status"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_a_command_that_is_not_for_this_role_ends_with_3_and_says_why(cast: Cast, part: str, words: list[str]) -> None:
    told = tenure(*words, dsn=cast.login(part))
    assert told.code == 3, told
    assert "The role of this DSN may not do that: permission denied for " in told.err
    assert "tenure grants" in told.err
    assert "Traceback" not in told.err
