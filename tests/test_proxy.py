"""The broken network of the other tests: each way of breaking does what it says, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tenure.chaos.proxy import COMMIT, Connection, Cut, Proxy
from tenure.chaos.wire import Matcher, Wire
from tests.support.properties import given, st

ADMIN = "host=127.0.0.1 port=5432 user=postgres dbname=postgres connect_timeout=5"
Client = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """DSN of a database of these tests' own."""
    name = f"proxy_{uuid.uuid4().hex}"
    try:
        admin = psycopg.connect(ADMIN, autocommit=True)
    except psycopg.OperationalError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no PostgreSQL at 127.0.0.1:5432: {error}")
    with admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        dsn = make_conninfo(ADMIN, dbname=name)
        with psycopg.connect(dsn) as conn:
            conn.execute("create table kept (id text primary key)")
        yield dsn
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def direct(database: str) -> Iterator[Client]:
    """A connection that does not go through the proxy."""
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    with Proxy(database) as proxy:
        yield proxy


@pytest.fixture
def row() -> str:
    """A row nobody else writes."""
    return uuid.uuid4().hex


def is_kept(direct: Client, row: str) -> bool:
    return direct.execute("select 1 from kept where id = %s", (row,)).fetchone() is not None


def pid_of(client: Client) -> int:
    return client.info.backend_pid


def is_alive(direct: Client, pid: int) -> bool:
    return direct.execute("select 1 from pg_stat_activity where pid = %s", (pid,)).fetchone() is not None


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def is_closed(client: socket.socket) -> bool:
    """Whether the other side has closed; it shows as a reset where it had not read everything."""
    client.settimeout(30)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def answers(proxy: Proxy) -> bool:
    with psycopg.connect(proxy.dsn()) as client:
        return client.execute("select 42").fetchone() == (42,)


# -- modes ------------------------------------------------------------------------------------------------------------


def test_it_forwards_until_told_otherwise(proxy: Proxy) -> None:
    assert answers(proxy)
    assert answers(proxy)


def test_it_lets_a_client_that_prefers_tls_go_on_without(proxy: Proxy) -> None:
    with psycopg.connect(proxy.dsn(sslmode="prefer", gssencmode="prefer")) as client:
        assert client.execute("select 42").fetchone() == (42,)


def test_it_forwards_large_messages_both_ways(proxy: Proxy) -> None:
    text = "é" * 1_000_000
    with psycopg.connect(proxy.dsn()) as client:
        assert client.execute("select %s", (text,)).fetchone() == (text,)


def test_it_forwards_a_cancel_request(proxy: Proxy, direct: Client) -> None:
    with psycopg.connect(proxy.dsn(), autocommit=True) as client:
        errors: list[BaseException] = []

        def sleep() -> None:
            try:
                client.execute("select pg_sleep(60)")
            except psycopg.errors.QueryCanceled as error:
                errors.append(error)

        thread = threading.Thread(target=sleep)
        thread.start()
        active = "select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
        eventually(lambda: direct.execute(active, (pid_of(client),)).fetchone())
        client.cancel_safe()
        thread.join()
        assert len(errors) == 1


def test_it_reaches_a_server_on_a_unix_socket() -> None:
    startup = struct.pack("!ii", 8, 196608)
    ready = b"Z" + struct.pack("!i", 5) + b"I"
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as server:
        server.bind(str(Path(directory) / ".s.PGSQL.7777"))
        server.listen()
        with (
            Proxy(f"host={directory} port=7777") as proxy,
            socket.create_connection(("127.0.0.1", proxy.port)) as client,
        ):
            client.sendall(startup)
            with server.accept()[0] as accepted:
                assert accepted.recv(100) == startup
                accepted.sendall(ready)
                assert client.recv(100) == ready


def test_it_listens_on_the_loopback_only(proxy: Proxy) -> None:
    assert "host=127.0.0.1" in proxy.dsn()
    assert proxy._listener is not None
    assert proxy._listener.getsockname()[0] == "127.0.0.1"


def test_refused_connections_come_back_on_the_same_port(proxy: Proxy) -> None:
    with psycopg.connect(proxy.dsn()) as client:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            client.execute("select 1")
        with pytest.raises(psycopg.OperationalError, match="refused"):
            psycopg.connect(proxy.dsn())
    proxy.heal()
    assert answers(proxy)


def test_a_server_that_is_away_closes_the_client() -> None:
    with socket.socket() as nobody, Proxy("host=127.0.0.1 port=1") as proxy:
        nobody.connect(("127.0.0.1", proxy.port))
        nobody.sendall(b"\0")
        assert is_closed(nobody)


def test_a_reset_reaches_open_and_new_connections(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port)) as open_one:
        eventually(proxy.connections)
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            open_one.recv(1)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.dsn())
    proxy.heal()
    assert answers(proxy)


def test_a_black_hole_accepts_and_says_nothing(proxy: Proxy) -> None:
    proxy.black_hole()
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(struct.pack("!ii", 8, 80877103))
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.heal()
        assert is_closed(client)


def test_a_black_hole_swallows_a_statement_and_the_close(proxy: Proxy, direct: Client, row: str) -> None:
    client = psycopg.connect(proxy.dsn(), autocommit=True)
    pid = pid_of(client)
    proxy.black_hole()
    client.pgconn.send_query_params(b"insert into kept values ($1)", [row.encode()])
    client.pgconn.flush()
    client.close()
    assert answers_nothing(proxy)
    assert is_alive(direct, pid)
    proxy.heal()
    eventually(lambda: not is_alive(direct, pid))
    assert not is_kept(direct, row)


def answers_nothing(proxy: Proxy) -> bool:
    """Whether a later connection is swallowed, too; everything sent before it has then passed through the proxy."""
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.settimeout(0.2)
        try:
            client.recv(1)
        except TimeoutError:
            return True
    return False


def test_a_statement_in_a_black_hole_ends_when_it_heals(proxy: Proxy) -> None:
    errors: list[BaseException] = []
    with psycopg.connect(proxy.dsn(), autocommit=True) as client:

        def ask() -> None:
            try:
                client.execute("select 1")
            except psycopg.OperationalError as error:
                errors.append(error)

        proxy.black_hole()
        thread = threading.Thread(target=ask)
        thread.start()
        (connection,) = proxy.connections()
        eventually(lambda: connection._lost_bytes)
        assert thread.is_alive()
        proxy.heal()
        thread.join()
    assert len(errors) == 1


def test_an_idle_connection_survives_a_black_hole(proxy: Proxy) -> None:
    with psycopg.connect(proxy.dsn(), autocommit=True) as client:
        proxy.black_hole()
        proxy.heal()
        assert client.execute("select 42").fetchone() == (42,)


def test_latency_delays_both_ways(proxy: Proxy) -> None:
    with psycopg.connect(proxy.dsn(), autocommit=True) as client:
        proxy.latency(0.05)
        began = time.monotonic()
        client.execute("select 1")
        assert time.monotonic() - began >= 0.1


def test_slices_of_one_byte_are_still_the_same_bytes(proxy: Proxy) -> None:
    proxy.slices()
    with psycopg.connect(proxy.dsn()) as client:
        assert client.execute("select %s, repeat('é', 500)", ("ü" * 500,)).fetchone() == ("ü" * 500, "é" * 500)


def test_a_slow_close_is_heard_later(proxy: Proxy, direct: Client) -> None:
    with psycopg.connect(proxy.dsn(), autocommit=True) as client:
        pid = pid_of(client)
        proxy.slow_close(0.3)
        began = time.monotonic()
        direct.execute("select pg_terminate_backend(%s)", (pid,))
        with socket.socket(fileno=os.dup(client.fileno())) as wire:
            wire.setblocking(True)
            while wire.recv(1000):
                pass
        assert time.monotonic() - began >= 0.3


def test_it_leads_to_another_server_from_then_on(proxy: Proxy, database: str) -> None:
    with psycopg.connect(proxy.dsn()) as client:
        proxy.lead_to("host=127.0.0.1 port=1")
        with pytest.raises(psycopg.OperationalError):
            client.execute("select 1")
    proxy.lead_to(database)
    assert answers(proxy)


def test_dropped_connections_may_come_back_at_once(proxy: Proxy) -> None:
    with psycopg.connect(proxy.dsn(), autocommit=True) as client:
        proxy.drop()
        with pytest.raises(psycopg.OperationalError):
            client.execute("select 1")
    assert answers(proxy)


@pytest.mark.parametrize("break_it", [Connection.drop, Connection.reset])
def test_one_connection_is_broken_without_touching_the_others(
    proxy: Proxy, break_it: Callable[[Connection], None]
) -> None:
    with (
        psycopg.connect(proxy.dsn(application_name="heart"), autocommit=True) as heart,
        psycopg.connect(proxy.dsn(application_name="hands"), autocommit=True) as hands,
    ):
        (connection,) = proxy.connections("heart")
        break_it(connection)
        with pytest.raises(psycopg.OperationalError):
            heart.execute("select 1")
        assert hands.execute("select 42").fetchone() == (42,)


def test_one_connection_falls_into_a_black_hole_alone(proxy: Proxy) -> None:
    heart = psycopg.connect(proxy.dsn(application_name="heart"), autocommit=True)
    with psycopg.connect(proxy.dsn(application_name="hands"), autocommit=True) as hands, contextlib.closing(heart):
        (connection,) = proxy.connections("heart")
        connection.black_hole()
        heart.pgconn.send_query(b"select 1")
        heart.pgconn.flush()
        eventually(lambda: connection._lost_bytes)
        assert hands.execute("select 42").fetchone() == (42,)


# -- cuts -------------------------------------------------------------------------------------------------------------


def commit(client: Client, row: str) -> None:
    client.execute("insert into kept values (%s)", (row,))
    client.commit()


def commit_by_itself(client: Client, row: str) -> None:
    client.autocommit = True
    client.execute(sql.SQL("insert into kept values ({})").format(row))


def commit_with_parameters(client: Client, row: str) -> None:
    client.autocommit = True
    client.execute("insert into kept values (%s)", (row,))


def commit_in_a_pipeline(client: Client, row: str) -> None:
    with client.pipeline():
        client.execute("select 1")
        client.execute("insert into kept values (%s)", (row,))
        client.commit()


def commit_a_copy(client: Client, row: str) -> None:
    client.autocommit = True
    with client.cursor().copy("copy kept from stdin") as copy:
        copy.write_row((row,))


def commit_a_binary_copy(client: Client, row: str) -> None:
    client.autocommit = True
    with client.cursor(binary=True).copy("copy kept from stdin") as copy:
        copy.write_row((row,))


WAYS: list[tuple[Callable[[Client, str], None], Matcher]] = [
    (commit, COMMIT),
    (commit, b"COMMIT"),
    (commit_by_itself, b"insert into"),
    (commit_with_parameters, b"INSERT INTO kept"),
    (commit_in_a_pipeline, COMMIT),
    (commit_a_copy, b"copy"),
    (commit_a_binary_copy, lambda statement: b"stdin" in statement),
]
each_way = pytest.mark.parametrize(("work", "matcher"), WAYS, ids=[work.__name__ for work, _ in WAYS])


@each_way
def test_a_cut_before_a_commit_leaves_nothing(
    proxy: Proxy, direct: Client, row: str, work: Callable[[Client, str], None], matcher: Matcher
) -> None:
    cut = proxy.cut_before(matcher)
    with psycopg.connect(proxy.dsn()) as client, pytest.raises(psycopg.OperationalError):
        work(client, row)
    cut.wait()
    assert not is_kept(direct, row)
    assert answers(proxy)


@each_way
def test_a_cut_after_a_commit_leaves_it_committed_and_the_client_ignorant(
    proxy: Proxy, direct: Client, row: str, work: Callable[[Client, str], None], matcher: Matcher
) -> None:
    cut = proxy.cut_after(matcher)
    with psycopg.connect(proxy.dsn()) as client, pytest.raises(psycopg.OperationalError):
        work(client, row)
    cut.wait()
    assert is_kept(direct, row)
    assert answers(proxy)


def test_a_prepared_statement_is_recognised_when_it_is_executed_again(proxy: Proxy, direct: Client) -> None:
    rows = [uuid.uuid4().hex for _ in range(3)]
    cut = proxy.cut_after(b"insert into kept", nth=2)
    with psycopg.connect(proxy.dsn(), autocommit=True) as client:
        client.execute("insert into kept values (%s)", rows[:1], prepare=True)
        with pytest.raises(psycopg.OperationalError):
            client.execute("insert into kept values (%s)", rows[1:2], prepare=True)
    cut.wait()
    assert [is_kept(direct, row) for row in rows] == [True, True, False]


def test_a_cut_after_still_falls_where_a_copy_went_before(proxy: Proxy, direct: Client, row: str) -> None:
    with psycopg.connect(proxy.dsn(), autocommit=True) as client:
        commit_a_binary_copy(client, f"{row}-first")
        cut = proxy.cut_after(b"insert into")
        with pytest.raises(psycopg.OperationalError):
            client.execute("insert into kept values (%s)", (row,))
    cut.wait()
    assert is_kept(direct, row)


def test_a_cut_counts_over_all_connections(proxy: Proxy, direct: Client) -> None:
    rows = [uuid.uuid4().hex for _ in range(3)]
    cut = proxy.cut_before(COMMIT, nth=2)
    with psycopg.connect(proxy.dsn()) as first, psycopg.connect(proxy.dsn()) as second:
        commit(first, rows[0])
        assert not cut.happened
        with pytest.raises(psycopg.OperationalError):
            commit(second, rows[1])
        commit(first, rows[2])
    cut.wait()
    assert [is_kept(direct, row) for row in rows] == [True, False, True]


def test_a_failed_statement_is_cut_after_like_any_other(proxy: Proxy) -> None:
    cut = proxy.cut_after(b"no_such_table")
    with psycopg.connect(proxy.dsn(), autocommit=True) as client, pytest.raises(psycopg.OperationalError):
        client.execute("select * from no_such_table where a = %s", (1,))
    cut.wait()


def test_a_cut_nobody_runs_into_times_out() -> None:
    with pytest.raises(TimeoutError, match="cut before"):
        Cut("before", COMMIT, 1).wait(timeout=0)


@pytest.mark.parametrize(
    ("matcher", "statement", "expected"),
    [
        (COMMIT, b"COMMIT", True),
        (COMMIT, b" commit and chain", True),
        (COMMIT, b"end", True),
        (COMMIT, b"set synchronous_commit = on", False),
        (COMMIT, b"create temp table a () on commit drop", False),
        (COMMIT, b"commit_log", False),
        (b"commit", b"set synchronous_commit = on", False),
        (b"insert into", b"with a as (INSERT INTO b values (1) returning *) table a", True),
        (b"insert into", b"insert  into b", False),
        (lambda statement: len(statement) > 3, b"abcd", True),
    ],
)
def test_a_statement_is_matched_by_word_pattern_or_predicate(
    matcher: Matcher, statement: bytes, expected: bool
) -> None:
    assert Cut("before", matcher, 1).due(statement) is expected


# -- the wire ---------------------------------------------------------------------------------------------------------


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


STARTUP = message(b"", struct.pack("!i", 196608) + b"user\0me\0application_name\0heart\0\0")
FROM_CLIENT = [
    message(b"", struct.pack("!i", 80877104)),
    message(b"", struct.pack("!i", 80877103)),
    STARTUP,
    message(b"Q", b"begin\0"),
    message(b"P", b"s1\0insert\0\0\0"),
    message(b"B", b"p1\0s1\0" + bytes(6)),
    message(b"E", b"p1\0" + bytes(4)),
    message(b"S", b""),
    message(b"Q", b"commit\0"),
    message(b"X", b""),
]
READY = message(b"Z", b"I")
FROM_SERVER = [message(b"R", bytes(4)), READY, message(b"C", b"BEGIN\0"), READY, message(b"1", b""), READY, READY]


def chunks(stream: bytes, sizes: list[int]) -> Iterator[bytes]:
    while stream:
        size = sizes.pop() if sizes else len(stream)
        yield stream[:size]
        stream = stream[size:]


@given(st.lists(st.integers(1, 40)), st.lists(st.integers(1, 40)))
def test_however_the_bytes_arrive_the_same_bytes_are_forwarded(up: list[int], down: list[int]) -> None:
    statements: list[bytes] = []
    wire = Wire(statements.append)
    assert b"".join(wire.from_client(chunk) for chunk in chunks(b"".join(FROM_CLIENT), up)) == b"".join(FROM_CLIENT[2:])
    assert b"".join(wire.from_server(chunk) for chunk in chunks(b"".join(FROM_SERVER), down)) == b"".join(FROM_SERVER)
    assert statements == [b"begin", b"insert", b"commit"]
    assert wire.reply == b"NN"
    assert wire.application_name == "heart"
    assert wire.severed is None


@given(st.lists(st.integers(1, 40)), st.lists(st.integers(1, 40)))
def test_a_cut_after_withholds_only_the_answer_it_waits_for(up: list[int], down: list[int]) -> None:
    cut = Cut("after", b"insert", 1)
    wire = Wire(lambda statement: cut if cut.due(statement) else None)
    for chunk in chunks(b"".join(FROM_CLIENT), up):
        wire.from_client(chunk)
    heard = b"".join(wire.from_server(chunk) for chunk in chunks(b"".join(FROM_SERVER[:6]), down))
    assert heard == b"".join(FROM_SERVER[:4])
    assert wire.severed is cut


# -- what is left behind ----------------------------------------------------------------------------------------------


def test_nothing_is_left_behind(database: str) -> None:
    with Proxy(database) as proxy:
        port, thread = proxy.port, proxy._thread
        client = psycopg.connect(proxy.dsn(), autocommit=True)
        proxy.black_hole()
        with socket.create_connection(("127.0.0.1", port)):
            eventually(lambda: len(proxy.connections()) == 2)
    assert not thread.is_alive()
    with client, pytest.raises(psycopg.OperationalError):
        client.execute("select 1")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_an_error_in_the_block_is_not_hidden(database: str) -> None:
    with pytest.raises(ZeroDivisionError), Proxy(database):
        _ = 1 / 0
