"""Names that others chose are refused where they name something of ours, else kept as they are, and inert where shown."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from psycopg import sql

from tenure import Conflict, State, Tenure
from tenure.errors import ConfigError
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import LookUpKey, SetQueue
from tests.apps import hostile
from tests.apps.hostile import EVIL, FORGED
from tests.cli.conftest import Answer, Cli, command, environment
from tests.store.steps import bury, dead, look, new, offer, take
from tests.worker.processes import Bench

HOSTILE = {
    "quotes": "'\"`",
    "a statement": "q'; drop schema tenure cascade; --",
    "an identifier": 'q"; drop schema tenure cascade; --',
    "dollars": "$1 $body$ $$",
    "percents": "%s %(id)s %n %",
    "braces": "{} {0} {accept} {mine} {role}",
    "backslashes": "\\ \\x1b \\' \\\\",
    "HTML": "<script>alert(1)</script><img src=x onerror=alert(1)>&amp;\"'",
    "markup": "[bold red]x[/] [link=file:///etc/passwd]y[/link] :smile:",
    "a new line": f"q\n{FORGED}",
    "escape codes": "q\x1b[2J\x1b]0;title\x07\x1b[31m",
    "C1 escape codes": "q\x9b31m\x9d0;title\x9c",
    "a turn of the writing": "q\u202egnp.exe\u2066\u2069",
    "invisible": "q\u200f\u2028\U000e0041",
    "a path": "../../nowhere/passwd",
    "an option": "--dsn=postgresql://elsewhere",
    "very long": "q" * 20_000,
}
"""Texts that PostgreSQL can keep, and that something on the way might take for more than text."""

UNKEEPABLE = {"NUL": "q\0", "half of a character": "q\ud800"}

IN_A_TERMINAL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
"""What a terminal acts on; line breaks and tabs are our own."""

SHORT = {name: text for name, text in HOSTILE.items() if len(text) < 500}
"""Those that a key may be."""

TOGETHER = {
    "all of it": "".join(SHORT.values()),
    "a line": f"q\n{FORGED}\n",
    "an option": HOSTILE["an option"],
    "very long": HOSTILE["very long"],
}
"""For what is tried in many places."""


@pytest.fixture
def tables(dsn: str, store: PostgresStore) -> Iterator[None]:
    """The tables and what is in them, before and after a command that changes nothing."""
    offer(store, new(key="decoy"))
    dead(store, "exhausted")
    before = everything(dsn)
    yield
    assert everything(dsn) == before


def everything(dsn: str) -> list[object]:
    """Every table, and every job."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        tables = conn.execute(
            "select schemaname, tablename from pg_tables where schemaname !~ '^(pg_|info)'"
        ).fetchall()
        jobs = conn.execute(
            "select id, queue, state from tenure.jobs union all select id, queue, state from tenure.dead"
        )
        return [sorted(tables), sorted(map(str, jobs.fetchall()))]


def inert(answer: Answer) -> bool:
    """Whether what a command said does nothing to a terminal, and JSON is JSON."""
    said = answer.out + answer.err
    return not IN_A_TERMINAL.search(said) and FORGED not in said.splitlines()


# ------------------------------------------------------------------------------------------------- names of our own


@pytest.mark.parametrize("text", [*HOSTILE.values(), *UNKEEPABLE.values()], ids=[*HOSTILE, *UNKEEPABLE])
def test_nothing_is_called_by_a_hostile_name(text: str) -> None:
    app = Tenure()

    async def handler() -> None: ...

    for options in ({"name": text}, {"queue": text}, {"aliases": [text]}):
        with pytest.raises(ConfigError) as refused:
            app.job(**options)(handler)
        assert len(str(refused.value)) < 1000
        assert not IN_A_TERMINAL.search(str(refused.value))
    kind = app.job()(handler)
    with pytest.raises(ConfigError):
        kind.request(queue=text)
    with pytest.raises(ConfigError):
        Tenure(schema=text)
    assert list(app.kinds) == ["handler"]


def test_a_key_is_a_value_and_kept_as_it_is(cli: Cli, store: PostgresStore) -> None:
    for text in SHORT.values():
        [told] = offer(store, new({text: text}, key=text, headers=json.dumps({text: text})))
        assert told.answer == "new"
        assert [again.answer for again in offer(store, new({text: text}, key=text))] == ["same"]
        record = look(store, told.id)
        assert (record.key, json.loads(record.payload)) == (text, {text: text})
        assert json.loads(record.headers or "") == {text: text}
        assert getattr(store.run(LookUpKey("q", text)), "job_id", None) == told.id
        assert cli("jobs", "list", f"--key={text}", "--json").json["key"] == text
        shown = cli("jobs", "show", f"--key={text}", "--queue=q")
        assert (shown.code, inert(shown)) == (0, True), text
    listed = cli("jobs", "list")
    assert len(listed.out.splitlines()) == len(SHORT) + 1
    assert inert(listed)


def test_a_conflict_names_a_key_and_does_nothing(cli: Cli, store: PostgresStore) -> None:
    with Tenure(store.dsn) as app:

        @app.job(name="work", queue="q2")
        async def work(other: int) -> None: ...

        for text in SHORT.values():
            offer(store, new(key=text), queue="q2", version=2)
            refused = cli("enqueue", "work", f"--key={text}", "--json", '{"other": 1}')
            assert (refused.code, inert(refused)) == (1, True), text
            with pytest.raises(Conflict) as conflict:
                work.enqueue_sync(other=1, key=text)
            assert conflict.value.key == text
            assert not IN_A_TERMINAL.search(str(conflict.value))
        for_programs = cli("enqueue", "work", f"--key={text}", "--json", '{"other": 1}', "--as-json")
        assert json.loads(for_programs.err)["key"] == text


def test_whose_a_queue_is_is_kept_and_shown_as_text(cli: Cli, store: PostgresStore) -> None:
    for text in HOSTILE.values():
        told = cli("queue", "set", "q", f"--owner={text}")
        assert (told.code, inert(told)) == (0, True), text
        assert store.run(SetQueue("q")).owner == text
        assert inert(cli("status"))
    assert [row["owner"] for row in cli("status", "--json").jsons if row["queue"] == "q"] == [text]


def test_what_a_failure_is_called_is_kept_and_shown_as_text(cli: Cli, store: PostgresStore) -> None:
    for text in HOSTILE.values():
        failure = json.dumps({"type": text, "message": text, "traceback": text, "worker": text, text: text})
        leased = take(store)
        assert bury(store, leased, "permanent", failure) == "settled"
        for how in ([], ["--json"]):
            shown = cli("dead", "show", leased.id, *how)
            assert (shown.code, inert(shown)) == (0, True), text
        assert cli("dead", "list", f"--error={text}", "--json").json["id"] == str(leased.id)
    assert inert(cli("dead", "list"))


# ------------------------------------------------------------------------------------------------- words of a command

NOTHING_FOUND = [
    ["jobs", "list", "--queue={}"],
    ["jobs", "list", "--kind={}"],
    ["jobs", "list", "--key={}"],
    ["dead", "list", "--queue={}"],
    ["dead", "list", "--kind={}"],
    ["dead", "list", "--error={}"],
    ["dead", "redrive", "--queue={}"],
    ["dead", "discard", "--kind={}"],
    ["dead", "discard", "--error={}"],
    ["jobs", "show", "--key={}"],
    ["jobs", "show", "--key=k", "--queue={}"],
]
"""Filters: they find nothing, and change nothing."""

REFUSED = [
    ["jobs", "list", "--state={}"],
    ["jobs", "list", "--schema={}"],
    ["jobs", "show", "--", "{}"],
    ["jobs", "cancel", "--", "{}"],
    ["jobs", "list", "--", "{}"],
    ["dead", "list", "--reason={}"],
    ["dead", "list", "--older-than={}"],
    ["dead", "list", "--after={}"],
    ["dead", "redrive", "--all", "--as-kind={}"],
    ["enqueue", "--", "{}"],
    ["enqueue", "work", "--queue={}"],
    ["enqueue", "work", "--json={}"],
    ["enqueue", "work", "--headers={}"],
    ["enqueue", "work", "--delay={}"],
    ["enqueue", "work", "--at={}"],
    ["enqueue", "--from={}"],
    ["queue", "set", "--paused", "--", "{}"],
    ["queue", "set", "q", "--retention={}"],
    ["queue", "set", "q", "--slo={}"],
    ["kind", "set", "--lease=5s", "--", "{}"],
    ["kind", "set", "work", "--lease={}"],
    ["worker", "--", "{}"],
    ["worker", "tests.apps.basic:app", "--queues={}"],
    ["migrate", "--", "{}"],
    ["migrate", "--schema={}"],
    ["chaos", "--plant={}"],
    ["chaos", "--faults={}"],
    ["bench", "--", "{}"],
    ["--", "{}"],
]
"""Everything else: what it names there is not, or cannot be."""


def words(args: list[str], text: str) -> list[str]:
    """A command line with a text in it."""
    return [arg.replace("{}", text) for arg in args]


@pytest.mark.parametrize("text", TOGETHER.values(), ids=TOGETHER)
def test_a_filter_is_a_value_and_nothing_else(cli: Cli, tables: None, text: str) -> None:
    for args in NOTHING_FOUND:
        for how in ([], ["--json"]):
            answer = cli(*words(args, text), *how)
            assert answer.code in (0, 1), args
            assert inert(answer), args
            if how:
                assert all(isinstance(json.loads(line), dict) for line in (answer.out + answer.err).splitlines()), args


@pytest.mark.parametrize("text", TOGETHER.values(), ids=TOGETHER)
def test_a_word_that_cannot_be_is_refused_in_words(cli: Cli, tables: None, text: str) -> None:
    for args in REFUSED:
        answer = cli(*words(args, text))
        assert answer.code in (1, 2), args
        assert answer.out == "", args
        assert inert(answer), args


def test_bytes_that_are_no_text_are_told_as_that(cli: Cli, tables: None) -> None:
    for args in NOTHING_FOUND:
        answer = cli(*words(args, "q\udcff"))
        assert answer.code == 2, args
        assert inert(answer), args


def test_a_role_is_a_name_in_the_sql_that_is_printed(cli: Cli, dsn: str) -> None:
    """What is printed is SQL for psql, and says the name as it is: it is read back by the server as one name."""
    with psycopg.connect(dsn) as conn:
        for text in SHORT.values():
            answer = cli("grants", f"--viewer={text}", "--json")
            if len(text.encode()) > 63:
                assert (answer.code, answer.out) == (2, ""), text
                continue
            with conn.transaction(force_rollback=True):
                conn.execute(sql.SQL("create role {}").format(sql.Identifier(text)))
                conn.execute(answer.json["sql"].encode())
                may = conn.execute("select has_table_privilege(%s, 'tenure.jobs', 'select')", [text]).fetchone()
                assert may == (True,), text


# ----------------------------------------------------------------------------------------------- a terminal, and a log


def raw_in_terminal(*args: object, dsn: str) -> str:
    """What a command sends to a terminal, escape codes and all."""
    ours, theirs = pty.openpty()
    settings = {"COLUMNS": "500", "LINES": "24", "TERM": "xterm-256color", "NO_COLOR": ""}
    with subprocess.Popen(command(*args), env=environment(dsn, **settings), stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        said = b""
        with suppress(OSError):  # how a terminal says that nobody is there any more
            while part := os.read(ours, 65536):
                said += part
        os.close(ours)
    return said.decode()


STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""What our own tables and messages have."""


def test_a_terminal_gets_no_escape_code_that_somebody_else_wrote(dsn: str, store: PostgresStore) -> None:
    evil = "\x1b[7mq\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r"
    store.run(SetQueue("q", {"owner": evil}))
    offer(store, new({evil: evil}, key=evil))
    letter = dead(store, failure=json.dumps({"type": evil, "message": evil, "traceback": evil}))
    shown: list[list[object]] = [
        ["status"],
        ["jobs", "list"],
        ["dead", "list"],
        ["dead", "show", letter],
        ["jobs", "show", f"--key={evil}"],
    ]
    mistakes: list[list[object]] = [
        ["jobs", "list", evil],
        [f"--{evil}"],
        ["jobs", "show", evil],
        ["grants", f"--viewer={evil}"],
    ]
    for args in [*shown, *mistakes]:
        said = raw_in_terminal(*args, dsn=dsn)
        assert "\x1b[7m" not in said, args
        text = STYLE.sub("", said).replace("\r\n", "\n")
        assert not IN_A_TERMINAL.search(text), args
        assert "\\x1b" in text, args  # it is told, and does nothing


def test_a_line_of_the_log_at_the_margin_is_a_record(bench: Bench) -> None:
    bench.use(hostile.app)
    tickets = [hostile.on_loop.enqueue_sync(), hostile.in_child.enqueue_sync()]
    worker = bench.start("tests.apps.hostile:app", burst=True, children=1)
    assert worker.ended() == 0
    said = worker.log.splitlines()
    assert not IN_A_TERMINAL.search(worker.log)
    record = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ tenure[\w.\[\]]* ")
    below = [line for line in said if not record.match(line)]
    assert below, "the traceback of the hook is not there"
    assert [line for line in below if not line.startswith("    ")] == []
    assert [line for line in said if line.startswith(FORGED)] == []
    assert worker.log.count("forged") >= len(tickets), "what was to be told apart is not there at all"
    for ticket in tickets:
        kept = json.loads(bench.await_state(ticket.id, State.DEAD).history or "[]")
        assert kept[-1]["message"] == f"{EVIL}\ufffd", "the history has it all"
