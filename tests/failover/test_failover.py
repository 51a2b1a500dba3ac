"""The primary dies with all its processes under load, and a standby takes its place; the clients find it by themselves."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tenure.chaos.proxy import Proxy
from tests.apps import counted
from tests.conftest import PG15, missing
from tests.failover.servers import Pair, ask, pair
from tests.support.producer import enqueue, keyed, producing
from tests.support.work import APP, Work, at_work, kept, longest_pause, make_queue
from tests.worker.ledger import until
from tests.worker.processes import Bench

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")

LOAD = 60  # promises before and after


@pytest.mark.parametrize("major", [18, 15])
def test_a_fail_over_to_a_synchronous_standby_loses_nothing(major: int, base: Path, tmp_path: Path) -> None:
    with pair(base, _programs(major)) as servers:
        servers.make_synchronous()
        with at_work(servers.dsn, tmp_path) as work:
            work.producer.await_promises(LOAD)
            servers.primary.crash()
            died = time.monotonic()
            servers.promote()
            work.producer.await_promises(LOAD)
            promised = work.producer.stop()

            assert kept(promised, work.done())
            sys.stdout.write(f"no promise for {longest_pause(promised):.1f} s, {work.runs_again()} ran again\n")
            assert min(promise.asked for promise in promised.values()) < died
            assert max(promise.asked for promise in promised.values()) > died


def test_a_fail_over_to_an_asynchronous_standby_loses_what_was_not_sent_and_nothing_else(
    base: Path, tmp_path: Path
) -> None:
    """The address of the server moves. What was accepted after the last that was sent is gone as if it had never been."""
    with (
        pair(base) as servers,
        Proxy(servers.primary.dsn) as address,
        at_work(address.dsn(), tmp_path) as work,
    ):
        work.producer.await_promises(LOAD)
        safe = work.producer.promised().keys()
        servers.await_everything()
        servers.stop_sending()
        stopped = time.monotonic()
        work.producer.await_promises(LOAD)
        servers.primary.crash()
        acknowledged = work.producer.promised()
        address.lead_to(servers.standby.dsn)
        servers.promote()
        work.producer.await_promises(LOAD)
        promised = work.producer.stop()

        done = work.done()
        lost = {n for n in promised if n not in done}
        never_sent = {n for n, promise in acknowledged.items() if promise.asked > stopped}
        assert len(never_sent) >= LOAD // 2, "too few to say anything"
        assert never_sent <= lost
        assert not lost & safe
        assert lost <= acknowledged.keys(), "what was accepted by the new primary is there"
        assert kept({n: promise for n, promise in promised.items() if n not in lost}, done)
        assert not kept(promised, done)
        sys.stdout.write(f"{len(lost)} of {len(promised)} lost, {work.runs_again()} ran again\n")
        _ask_again(work, address.dsn(), lost)


def _ask_again(work: Work, dsn: str, lost: set[int]) -> None:
    """A producer that still has its requests makes them again: under their keys what is there is there, all else is new."""
    requests = sorted(n for n in work.producer.promised() if keyed(n))
    before = work.done()
    counted.app.point_at(dsn)
    with counted.app:
        ids = {n: enqueue(n) for n in requests}
    done = work.done()
    assert {n: done[n] for n in requests} == ids
    assert done.keys() - before.keys() == {n for n in lost if keyed(n)}
    assert {n: done[n] for n in before} == before


def test_an_old_primary_that_comes_back_runs_jobs_again_unless_it_is_fenced(base: Path, tmp_path: Path) -> None:
    """It is a server like any other: which one is the right one is for whoever promotes to say."""
    with pair(base) as servers:
        _left_behind(servers)
        new, old = (
            Bench(engine.dsn, _made(tmp_path / name))
            for name, engine in (("new", servers.standby), ("old", servers.primary))
        )
        try:
            for bench in (new, old):
                bench.start(APP, concurrency=1)
                [(id,)] = bench.ask("select id from tenure.jobs union select id from tenure.archive")
                bench.await_state(id)
                assert bench.count("archive") == 1
                assert bench.ask("select count(*) from written") == [(1,)]
            assert len({line.id for bench in (new, old) for line in bench.ledger.lines("ran")}) == 1, "one job, twice"
        finally:
            new.close()
            old.close()


def test_an_old_primary_that_comes_back_accepts_and_runs_nothing_where_it_was_synchronous(
    base: Path, tmp_path: Path
) -> None:
    """Its commits wait for a standby that is none any more, so nobody is told that anything has happened."""
    with pair(base) as servers:
        servers.make_synchronous()
        _left_behind(servers)
        old = Bench(servers.primary.dsn, tmp_path)
        try:
            old.start(APP, concurrency=1)
            until(lambda: old.ask(_WAITS.format("register_kinds")), "the worker's first commit waits")
            with producing(old.dsn, tmp_path / "promises.jsonl") as producer:
                until(lambda: old.ask(_WAITS.format("accept")), "the producer's waits, too")
                assert producer.promised() == {}
                assert old.ledger.lines("ran") == []
        finally:
            old.close()


_WAITS = "select 1 from pg_stat_activity where wait_event = 'SyncRep' and query like '-- {}%'"


def _left_behind(servers: Pair) -> None:
    """A job is accepted, the primary dies, the standby takes its place; and then the old one is started again."""
    make_queue(servers.primary.dsn)
    counted.app.point_at(servers.primary.dsn)
    with counted.app:
        enqueue(1)
    servers.await_everything()
    servers.primary.crash()
    servers.promote()
    servers.primary.ensure()
    timelines = [ask(engine.dsn, _TIMELINE)[0][0] for engine in (servers.primary, servers.standby)]
    assert timelines == [1, 2]


_TIMELINE = "select ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int"


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _programs(major: int) -> Path | None:
    if major == 18:
        return None
    if not (PG15 / "pg_basebackup").exists():
        missing("no PostgreSQL 15 programs")
    return PG15
