"""An environment for each peer, outside the repository: a virtual one for Python, one ``node_modules`` for Node.

They lie in ``$BENCH_HOME`` (default ``~/.cache/tenure-bench``) and come from PyPI and npm by pinned name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from benchmarks.peers.catalogue import NODE, PEERS, PLOT, Peer

_OLDEST_NODE = 22
_PATIENCE = 600  # seconds an installation may take


def home() -> Path:
    """Where the environments and logs are."""
    return Path(os.environ.get("BENCH_HOME") or "~/.cache/tenure-bench").expanduser()


def node_home() -> Path:
    """The directory that holds the Node peers' ``node_modules``."""
    return home() / "node"


def python(peer: Peer) -> Path:
    """The interpreter of a Python peer; Tenure runs in this one's environment."""
    return Path(sys.executable) if not peer.packages else _venv(peer.program.rstrip("_")) / "bin" / "python"


def plotter() -> Path:
    """The interpreter that can draw."""
    return _venv("plot") / "bin" / "python"


def node() -> Path | None:
    """A Node that is new enough: the machine's own, else the one installed from npm."""
    for found in (shutil.which("node"), node_home() / "node_modules" / "node" / "bin" / "node"):
        if found and _node_major(Path(found)) >= _OLDEST_NODE:
            return Path(found)
    return None


def ready(peer: Peer) -> bool:
    """Whether a peer is installed, in the versions that are wanted."""
    if peer.node:
        return node() is not None and _installed(node_home(), _node_packages())
    return not peer.packages or _installed(python(peer).parents[1], peer.packages)


def install(peers: Sequence[Peer]) -> None:
    """Install what is missing. A peer that cannot be installed is told, and left out of the comparison."""
    wanted = {python(peer).parents[1]: peer.packages for peer in peers if peer.packages and not peer.node}
    for place, packages in {**wanted, _venv("plot"): (PLOT,)}.items():
        if not _installed(place, packages):
            _told(place, packages, _install_python)
    if any(peer.node for peer in peers) and not _installed(node_home(), _node_packages()):
        _told(node_home(), _node_packages(), _install_node)


def versions(peer: Peer) -> dict[str, str]:
    """What of a peer is installed: its packages, and its language."""
    if not peer.packages:
        return {"tenure": metadata.version("tenure"), "python": sys.version.split()[0]}
    if peer.node:
        names = [package.rpartition("@")[0] for package in peer.packages]
        read = {name: _node_version(name) for name in names}
        return {**read, "node": _said([str(node()), "--version"]).lstrip("v")}
    names = [re.split(r"[=\[]", package)[0] for package in peer.packages]
    ask = "import importlib.metadata as m, platform, json, sys;"
    ask += "print(json.dumps({n: m.version(n) for n in sys.argv[1:]} | {'python': platform.python_version()}))"
    found: dict[str, str] = json.loads(_said([str(python(peer)), "-c", ask, *names]))
    return found


def _venv(name: str) -> Path:
    return home() / "venv" / name


def _installed(place: Path, packages: Sequence[str]) -> bool:
    """A stamp says what was installed last, so other pins are another installation."""
    stamp = place / "installed.json"
    return stamp.exists() and json.loads(stamp.read_text()) == list(packages)


def _told(place: Path, packages: Sequence[str], install: Callable[[Path, Sequence[str]], None]) -> None:
    print(f"installing {', '.join(packages)} into {place}", file=sys.stderr)
    place.mkdir(parents=True, exist_ok=True)
    try:
        install(place, packages)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"  this failed, so it is left out: {error}", file=sys.stderr)
    else:
        (place / "installed.json").write_text(json.dumps(list(packages)))


def _install_python(place: Path, packages: Sequence[str]) -> None:
    _run([sys.executable, "-m", "venv", "--clear", str(place)])
    _run([str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages])


def _install_node(place: Path, packages: Sequence[str]) -> None:
    (place / "package.json").write_text('{"private": true}')
    _run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--save-exact", *packages], cwd=place)


def _node_packages() -> tuple[str, ...]:
    own = shutil.which("node")
    peers = tuple(package for peer in PEERS if peer.node for package in peer.packages)
    return peers if own and _node_major(Path(own)) >= _OLDEST_NODE else (*peers, NODE)


def _node_major(program: Path) -> int:
    try:
        return int(_said([str(program), "--version"]).lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def _node_version(package: str) -> str:
    read: dict[str, str] = json.loads((node_home() / "node_modules" / package / "package.json").read_text())
    return read["version"]


def _said(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()  # noqa: S603


def _run(command: Sequence[str], cwd: Path | None = None) -> None:
    subprocess.run(command, check=True, timeout=_PATIENCE, cwd=cwd, stdout=sys.stderr)  # noqa: S603
