"""The leader of a cluster dies, and the cluster finds another by itself: so do workers and producers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import Server
from tests.failover.cluster import NODES, PATIENCE, cluster
from tests.support.work import at_work, kept, longest_pause

LOAD = 60  # promises before and after


@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="users and processes are handled as on Linux")
def test_a_cluster_that_fails_over_by_itself_loses_nothing(pg18: Server, base: Path, tmp_path: Path) -> None:
    with (
        cluster(base, pg18.engine.bin, pg18.engine.data) as servers,
        at_work(servers.dsn, tmp_path) as work,
    ):
        work.producer.await_promises(LOAD)
        old = servers.await_leader(NODES - 1)
        old.kill()
        work.producer.await_promises(LOAD, PATIENCE)
        new = servers.await_leader(NODES - 2)
        servers.start(old)
        assert servers.await_leader(NODES - 1) is new, "the old one comes back as a standby of the new one"
        promised = work.producer.stop()

        assert new is not old
        assert kept(promised, work.done())
        sys.stdout.write(f"no promise for {longest_pause(promised):.1f} s, {work.runs_again()} ran again\n")
