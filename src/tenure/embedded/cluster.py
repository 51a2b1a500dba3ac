"""One cluster: made, configured, started, found alive.

Everything here runs behind the door (`Home.door`). initdb works in a temporary directory that is renamed when it is
complete, so a half-made cluster is never seen. PostgreSQL's programs get an almost empty environment, so that neither
``PG*`` nor secrets reach them, and a file for their output, never a pipe: the server would keep it open.

A server that died leaves its pid file, socket and socket lock behind, and PostgreSQL refuses to start while any process
has the number in them: they go once the kernel says that no process of that server is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping

from tenure.embedded import conf
from tenure.embedded.account import Account, bare_environment
from tenure.embedded.binaries import Binaries
from tenure.embedded.home import PATIENCE, Home, lock_file
from tenure.embedded.watch import held, postmaster, stop_server, stopping, trim_log, try_lock
from tenure.errors import EngineError

DATABASE = ROLE = "tenure"
SCRATCH = "new-"  # prefix of directories that are being made or deleted; leftovers go at the next start
_INITDB = ("--username=tenure", "--encoding=UTF8", "--locale=C", "--data-checksums")
_DOORS = ("--auth-local=trust", "--auth-host=scram-sha-256")  # the socket is ours alone; TCP takes a password
_ATTEMPTS = 3  # somebody may kill the server while it starts
# A variable of libpq's that would lead a connection astray, and the parameter that outvotes it.
_OUTVOTED = {
    "PGHOSTADDR": ("hostaddr", ""),
    "PGOPTIONS": ("options", ""),
    "PGCLIENTENCODING": ("client_encoding", "UTF8"),
    "PGTARGETSESSIONATTRS": ("target_session_attrs", "any"),
    "PGREQUIREAUTH": ("require_auth", "none"),
    "PGCHANNELBINDING": ("channel_binding", "disable"),
    "PGGSSENCMODE": ("gssencmode", "disable"),
    "PGSSLMODE": ("sslmode", "disable"),
    "PGSSLNEGOTIATION": ("sslnegotiation", "postgres"),
    "PGMINPROTOCOLVERSION": ("min_protocol_version", "3.0"),
}


def major_of(data: Path) -> int | None:
    """Major of an existing cluster; None where there is none."""
    try:
        return int((data / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None


def dsn(home: Home, database: str = DATABASE) -> str:
    """The address of the server, complete enough that no ``PG*`` variable of this process changes its meaning."""
    outvoting = {name: value for variable, (name, value) in _OUTVOTED.items() if variable in os.environ}
    return make_conninfo(host=str(home.socket_dir), port=conf.port(home), user=ROLE, dbname=database, **outvoting)


def _tidy(home: Home) -> None:
    """Remove what a killed initdb left; the door keeps living starters out, and an orphan's last files go the next time."""
    for left_over in home.base.glob(f"{SCRATCH}*"):
        shutil.rmtree(left_over, ignore_errors=True)


def create(home: Home, binaries: Binaries, user: Account) -> None:
    """initdb: UTF-8, C locale, checksums; complete or not at all."""
    _tidy(home)
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=home.base))
    user.own(scratch)
    new = scratch / "data"
    said = scratch / "initdb.log"
    try:
        if code := _run([binaries.bin / "initdb", "-D", new, *_INITDB, *_DOORS], said, user, cwd=scratch):
            raise EngineError(
                f"initdb of {binaries} ended with {code}. Its last words:\n{_tail(said)}\n",
                kept="Nothing was created.",
                hint="Is the disk full, or is a limit on memory or processes too low?",
            )
        conf.include(new)
        new.rename(home.data)
        _sync(home.base)  # or a power cut might leave the cluster, and what is committed into it, under the other name
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def running(home: Home) -> Binaries | None:
    """The binaries of the live server, whoever started it; None where none lives."""
    major = major_of(home.data)
    if major is None or not alive(home):
        return None
    try:
        program = (home.data / "postmaster.opts").read_text().split(' "-D"')[0]
    except FileNotFoundError:
        return None
    return Binaries(Path(program).parent, major)


def answers(home: Home) -> bool:
    """True when the server accepts connections."""
    return PGconn.ping(f"{dsn(home, 'postgres')} connect_timeout=2".encode()) == Ping.OK


def alive(home: Home) -> bool:
    """True when something of a server lives, even if it does not answer yet or any more."""
    return held(home.server) or postmaster(home.data) is not None


def bring_up(home: Home, binaries: Binaries, user: Account, settings: Mapping[str, str] | None) -> None:
    """Return as soon as the server answers, starting it if it does not live.

    Args:
        home: the base directory, its door held.
        binaries: what to start it with.
        user: who runs it.
        settings: for the configuration file; None leaves the file as it is.

    Raises:
        EngineError: it does not start, or lives and does not answer for `PATIENCE` seconds.
        TimeoutError: its predecessor does not stop.
    """
    deadline = time.monotonic() + PATIENCE
    attempts = 0
    while True:
        if not alive(home):
            attempts += 1
            _tidy(home)
            _start(home, binaries, user, settings, forgiving=attempts < _ATTEMPTS)
        elif answers(home):
            return
        elif postmaster(home.data) is None or stopping(home.data):
            # Orphans of a killed postmaster; or somebody else's SIGTERM, after which it waits for its clients to go.
            stop_server(home.base)
            deadline = time.monotonic() + PATIENCE
        if time.monotonic() > deadline:
            raise EngineError(
                f"The PostgreSQL in {home.base} does not answer. The end of its log:\n{_tail(home.log)}\n",
                kept="Its data was not touched.",
                hint="A long recovery after a crash only needs time: try again. If its socket is out of sight (another"
                " container, a cleaned /tmp), stop it, by force, and try again.",
            )
        time.sleep(0.05)  # each look leaves a line in its log


def _start(
    home: Home, binaries: Binaries, user: Account, settings: Mapping[str, str] | None, *, forgiving: bool
) -> None:
    """Start a server that does not live; returns without one when the last is still in the way, or if `forgiving`."""
    with lock_file(home.server) as lock:
        if not try_lock(lock, fcntl.LOCK_EX):  # somebody is just looking whether it is held
            return
        _make_socket_dir(home, user)
        _remove_remains(home)
        if settings is not None or not (home.data / conf.NAME).exists():
            conf.write(home, settings or {}, user)
        trim_log(home.log)
        home.log.touch(mode=0o600)
        user.own(home.log)
        before = home.log.stat().st_size
        command: list[str | Path] = [binaries.bin / "pg_ctl", "start", "-D", home.data, "-l", home.log]
        command += ["-w", "-t", "60", "-s"]
        # Working in the data directory from its first moment on, it is found by whoever has to stop it.
        if _run(command, home.log, user, cwd=home.data, inherit=lock) == 0:
            return
    words = _tail(home.log, before)
    if forgiving or "lock file" in words or "shared memory block" in words or postmaster(home.data):
        return
    raise EngineError(
        f"{binaries} did not start on {home.data}. The end of its log:\n{words}\n",
        kept="The data is as it was.",
        hint=f"The whole log is {home.log}.",
    )


def _remove_remains(home: Home) -> None:
    (home.data / "postmaster.pid").unlink(missing_ok=True)
    for socket in home.socket_dir.glob(".s.PGSQL.*"):  # and its lock file
        socket.unlink()


def _make_socket_dir(home: Home, user: Account) -> None:
    path = home.socket_dir
    made = False
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
        made = True
    if made or path.parent == home.base:  # ours; the data, and so the user, may have changed hands
        user.own(path)
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != user.uid or state.st_mode & 0o077:
        raise EngineError(
            f"{path}, the directory for the socket, is not a directory that belongs to {user.name} alone.",
            kept="Nothing was started.",
            hint="Remove it, or set TENURE_HOME to another path (below 80 characters needs no directory in /tmp).",
        )


def create_database(home: Home) -> bool:
    """Make sure that the database exists; False when the server does not let us look.

    It may be full of connections: then they are in the database, so it is there.
    """
    try:
        with psycopg.connect(dsn(home, "postgres"), autocommit=True, connect_timeout=10) as conn:
            if not conn.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
    except psycopg.OperationalError:
        return False
    return True


def _run(command: list[str | Path], output: Path, user: Account, *, cwd: Path, inherit: int | None = None) -> int:
    with output.open("ab") as file:
        return subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=bare_environment(),
            cwd=cwd,
            pass_fds=() if inherit is None else (inherit,),
            check=False,
            timeout=300,
            **user.popen(),
        ).returncode


def _tail(log: Path, start: int = 0, lines: int = 15) -> str:
    """The last lines of `log`, from byte `start` on."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start if start <= end else 0, end - 16384))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return "(there is none)"
    return "\n".join(text.splitlines()[-lines:])


@contextlib.contextmanager
def explained(home: Home, *, kept: str = "Its data was not touched.") -> Iterator[None]:
    """Turn what the operating system or the server refuses into an EngineError."""
    try:
        yield
    except (OSError, psycopg.Error, subprocess.SubprocessError) as error:
        raise EngineError(
            f"The embedded PostgreSQL in {home.base} cannot be used: {str(error).rstrip('. ')}.",
            kept=kept,
            hint="Check that the directory belongs to you and that the disk is not full, or set TENURE_HOME.",
        ) from error
