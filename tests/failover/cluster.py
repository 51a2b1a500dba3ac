"""Three PostgreSQL servers under Patroni, which keeps their leader by raft: no other service is needed.

Each is a process of Patroni with the server that it has started. As root they run as the user who runs the embedded server;
Python itself may lie where that user cannot go, so the processes may pass over permissions, and nothing more.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from tenure.embedded.account import Account, account, bare_environment
from tenure.embedded.watch import server_processes, signal_all
from tests.conftest import missing
from tests.support.ports import free_ports
from tests.worker.ledger import until

NODES = 3
PATIENCE = 120.0  # seconds for a cluster to come about, or to have a new leader
_CAPABILITIES = "+dac_override"
_QUIET = 20  # seconds without a word from the leader, after which there is a new one; Patroni's shortest

_STREAMING = (
    "select count(*), count(*) filter (where sync_state = 'sync') from pg_stat_replication where state = 'streaming'"
)


class Node:
    """One of them.

    Args:
        name: its own.
        directory: where its files go.
        ports: of PostgreSQL, Patroni's HTTP and raft.
    """

    def __init__(self, name: str, directory: Path, ports: tuple[int, int, int]) -> None:
        self.name = name
        self.port, self.http, self.raft = ports
        self.data = directory / "data"
        self.config = directory / "patroni.json"
        self.log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, user: Account) -> None:
        """Start Patroni, which starts PostgreSQL."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_as(user), sys.executable, "-m", "patroni", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.config.parent,
                env=bare_environment(),
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL to Patroni and to every process of the server; returns when all are gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        while pids := server_processes(self.data):
            signal_all(pids, signal.SIGKILL)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Ask its server; nothing if that is away."""
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(_dsn(self), autocommit=True) as conn:
            return conn.execute(query.encode()).fetchall()
        return []

    def roles(self) -> list[str]:
        """Who is what, as the cluster has noted it; nothing if its Patroni is away."""
        with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{self.http}/cluster", timeout=5) as answer:
            return [member["role"] for member in json.load(answer)["members"]]
        return []


class Cluster:
    """All of them.

    Args:
        nodes: whoever leads takes jobs.
        user: who runs them.
    """

    def __init__(self, nodes: list[Node], user: Account) -> None:
        self.nodes = nodes
        self._user = user

    @property
    def dsn(self) -> str:
        """Leads to whoever is the leader."""
        return _dsn(*self.nodes, target_session_attrs="read-write")

    def await_leader(self, standbys: int) -> Node:
        """Wait until there is a leader with so many standbys, one of them synchronous; answers the leader.

        The server's word is not enough: whom the cluster has not noted as synchronous yet, it does not promote.
        """

        def found() -> Node | None:
            for node in self.nodes:
                if node.ask(_STREAMING) == [(standbys, 1)] and "sync_standby" in node.roles():
                    return node
            return None

        leader = until(found, f"a leader with {standbys} standbys", PATIENCE)
        assert leader is not None
        return leader

    def start(self, node: Node) -> None:
        """Start one of them, for the first time or again."""
        node.start(self._user)


@contextmanager
def cluster(base: Path, bin_dir: Path, owned: Path) -> Iterator[Cluster]:
    """The cluster, up; nothing is left of it at the end. Without Patroni the test is skipped, or fails with CI=true.

    Args:
        base: a directory that the servers' user can reach.
        bin_dir: PostgreSQL's programs.
        owned: something that belongs to the servers' user.
    """
    if not all(map(importlib.util.find_spec, ("patroni", "pysyncobj"))):
        missing("no Patroni (PyPI: patroni[raft])")
    user = account(owned)
    home = base / f"patroni-{uuid4().hex[:8]}"
    nodes = _made(home, bin_dir, user)
    found = Cluster(nodes, user)
    try:
        for node in nodes:
            found.start(node)
        found.await_leader(NODES - 1)
        yield found
    except Exception:
        for node in nodes:
            sys.stdout.write(f"--- {node.name}\n{node.log.read_text()[-4000:]}\n")
        raise
    finally:
        for node in nodes:
            node.kill()
        shutil.rmtree(home)


def _made(home: Path, bin_dir: Path, user: Account) -> list[Node]:
    ports = iter(free_ports(3 * NODES))
    nodes = [Node(f"n{n}", home / f"n{n}", (next(ports), next(ports), next(ports))) for n in range(1, NODES + 1)]
    for node in nodes:
        directory = node.config.parent
        directory.mkdir(parents=True)
        user.own(directory)
        node.config.write_text(json.dumps(_config(node, nodes, bin_dir)))  # JSON is YAML
    return nodes


def _config(node: Node, nodes: list[Node], bin_dir: Path) -> dict[str, Any]:
    directory = node.config.parent
    http, server = f"127.0.0.1:{node.http}", f"127.0.0.1:{node.port}"
    return {
        "scope": "tenure",
        "name": node.name,
        "restapi": {"listen": http, "connect_address": http},
        "raft": {
            "data_dir": str(directory),
            "self_addr": f"127.0.0.1:{node.raft}",
            "partner_addrs": [f"127.0.0.1:{other.raft}" for other in nodes if other is not node],
        },
        "bootstrap": {
            "dcs": {
                "ttl": _QUIET,
                "loop_wait": 1,
                "retry_timeout": 3,
                "synchronous_mode": True,
                "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": 100}},
            },
            "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
        },
        "postgresql": {
            "listen": server,
            "connect_address": server,
            "data_dir": str(node.data),
            "bin_dir": str(bin_dir),
            "pgpass": str(directory / "pgpass"),
            "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}},
            "parameters": {"unix_socket_directories": str(directory), "shared_buffers": "32MB"},
            "pg_hba": [
                "local all all trust",
                "host all all 127.0.0.1/32 trust",
                "host replication all 127.0.0.1/32 trust",
            ],
        },
    }


def _dsn(*nodes: Node, **more: str) -> str:
    return make_conninfo(
        host=",".join(["127.0.0.1"] * len(nodes)),
        port=",".join(str(node.port) for node in nodes),
        user="postgres",
        dbname="postgres",
        connect_timeout=5,
        **more,
    )


def _as(user: Account) -> list[str]:
    """What stands before a command for it to run as this user: whoever starts Python may go everywhere already."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        missing("no setpriv (Debian package: util-linux)")
    capabilities = [f"--inh-caps={_CAPABILITIES}", f"--ambient-caps={_CAPABILITIES}"]
    return ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups", *capabilities, "env"]
