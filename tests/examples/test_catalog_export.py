"""The catalogue's exports: what the example promises, each by name, and all of it with the worker killed at each step."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from examples.catalog_export import check, files, jobs, stage, web
from examples.catalog_export.catalog import load
from examples.catalog_export.jobs import app

from tenure import Backoff, State, Ticket
from tenure.chaos.proxy import Proxy
from tenure.faultpoints import Gate
from tenure.store.protocol import SetQueue
from tests.examples.dying import STEPS
from tests.examples.page import shown, unanswered
from tests.examples.school import APP, DYING, EXAMPLE, FOR_DELIVERIES, FOR_EXPORTS, School
from tests.worker.here import burst, finish
from tests.worker.ledger import until
from tests.worker.processes import ROOT, Process


def ask(client: httpx.Client, operation: object = "spring", course: object = "chess") -> httpx.Response:
    return client.post("/exports", json={"operation": operation, "course": course})


# ------------------------------------------------------------------------------------------------------ the catalogue


def test_the_catalogue_has_real_courses_with_real_lessons(school: School) -> None:
    courses = school.ask("select c.title, count(*) from courses c join lessons l on l.course = c.code group by c.title")
    assert len(courses) >= 12
    assert min(lessons for _, lessons in courses) >= 5
    summaries = [summary for (summary,) in school.ask("select summary from lessons")]
    assert len(set(summaries)) == len(summaries)
    assert min(map(len, summaries)) > 40
    assert "lorem" not in " ".join(summaries).lower()


def test_loading_again_changes_nothing(school: School) -> None:
    before = school.catalogue()
    with psycopg.connect(school.dsn) as conn:
        load(conn)
    assert school.catalogue() == before


# ------------------------------------------------------------------------------------------- an operation of one's own


def test_the_same_operation_and_course_are_the_same_job(school: School) -> None:
    with school.site() as client:
        first, again = ask(client), ask(client)
    burst(app, queues=("exports",))
    with school.site() as client:
        after_its_end = ask(client)
    assert {answer.status_code for answer in (first, again, after_its_end)} == {202}
    assert first.content == again.content == after_its_end.content
    assert first.headers["location"] == after_its_end.headers["location"] == f"/exports/{first.json()['id']}"
    assert school.count("archive", "queue = 'exports'") == 1


def test_of_many_equal_requests_at_once_one_job_comes(school: School) -> None:
    with school.site() as client, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: ask(client), range(24)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert school.count("jobs") == 1


def test_the_same_operation_with_another_course_is_a_conflict(school: School) -> None:
    with school.site() as client:
        first, other = ask(client), ask(client, course="statistics")
        told = client.get(first.json()["status"]).json()
    assert other.status_code == 409
    assert other.headers["content-type"] == "application/problem+json"
    assert len(other.json()["held"]) == len(other.json()["given"]) == 64
    assert other.json()["held"] != other.json()["given"]
    assert told["state"] == "pending"
    assert school.ask("select payload ->> 'course' from tenure.jobs") == [("chess",)]


# ---------------------------------------------------------------------------------------------------------- the export


def test_the_worker_writes_the_file_and_the_result_row(school: School) -> None:
    ticket = school.exported("spanish-a1")
    school.require_right({"spanish-a1": ticket})
    done = school.known(ticket)
    assert done.state is State.DONE
    assert json.loads(done.result or "")["minutes"] == 510
    [file] = school.exports.iterdir()
    assert "¿cuánto cuesta?" in file.read_text("utf-8")


def test_row_dedup_completion_and_delivery_are_one_commit(school: School) -> None:
    """Each row of PostgreSQL knows the transaction that wrote it."""
    ticket = school.exported()
    [writers] = school.rows(
        "select e.xmin::text, d.xmin::text, a.xmin::text, j.xmin::text"
        " from exports e, tenure.dedup d, tenure.archive a, tenure.jobs j"
        " where e.job_id = %s and d.job_id = e.job_id and a.id = e.job_id and j.id = e.delivery",
        ticket.id,
    )
    assert len(set(writers)) == 1


def test_a_job_cannot_have_two_result_rows(school: School) -> None:
    ticket = school.exported()
    with psycopg.connect(school.dsn) as conn, pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute("insert into exports select * from exports where job_id = %s", [ticket.id])


def test_an_export_is_one_snapshot_of_a_course_and_its_lessons(school: School) -> None:
    """While somebody renames course and lessons together, no file has a course of one time and lessons of another."""
    over = threading.Event()

    def rename() -> None:
        with psycopg.connect(school.dsn) as conn:
            for turn in itertools.count():
                if over.is_set():
                    return
                conn.execute("update courses set title = %s where code = 'chess'", [f"Turn {turn}"])
                conn.execute("update lessons set title = %s where course = 'chess'", [f"Turn {turn}"])
                conn.commit()

    with ThreadPoolExecutor(1) as threads:
        renaming = threads.submit(rename)
        try:
            requests = [jobs.export_course.request(course="chess", key=str(number)) for number in range(60)]
            jobs.export_course.enqueue_many_sync(requests)
            burst(app, queues=("exports",))
        finally:
            over.set()
        renaming.result()
    exported = [json.loads(path.read_bytes()) for path in school.exports.iterdir()]
    assert len(exported) == 60
    assert all({lesson["title"] for lesson in one["lessons"]} == {one["title"]} for one in exported)


# ------------------------------------------------------------------------------------------------------------- failures


def test_a_transient_failure_returns_to_pending_with_a_future_time(school: School) -> None:
    school.exports.rmdir()
    school.retry_after(Backoff("1h", "1h"))
    with school.site() as client:
        where = ask(client).json()["status"]
    burst(app, queues=("exports",))
    with school.site() as client:
        told = client.get(where).json()
    assert (told["state"], told["attempts"], told["max_attempts"], told["reason"]) == ("pending", 1, 3, None)
    [(ahead,)] = school.rows("select %s::timestamptz - now() > interval '50 minutes'", told["due"])
    assert ahead
    assert (told["error"], told["result"], told["delivery"]) == (None, None, None)


def test_after_the_third_attempt_it_is_failed_with_the_reason(school: School) -> None:
    school.exports.rmdir()
    with school.site() as client:
        where = ask(client).json()["status"]
    finish(app, ticket_of(where))
    with school.site() as client:
        told = client.get(where).json()
        again = ask(client)
    assert (told["state"], told["attempts"], told["reason"]) == ("dead", 3, "exhausted")
    [history] = school.ask("select history from tenure.dead")[0]
    assert [failure["type"] for failure in history] == ["FileNotFoundError"] * 3
    assert again.json()["status"] == where, "the failed job still stands for the operation"
    assert str(school.exports) not in json.dumps(told), "where our disk is, is our own affair"


def test_what_was_failed_can_be_exported_after_all(school: School) -> None:
    school.exports.rmdir()
    ticket = school.export()
    finish(app, ticket)
    school.exports.mkdir()
    with school.site(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENURE_DSN", school.dsn)
        redrive = [sys.executable, "-m", "tenure", "dead", "redrive", str(ticket.id)]
        subprocess.run(redrive, check=True, capture_output=True)
    burst(app, queues=("exports",))
    school.require_right({"chess": ticket})


def test_a_permanent_input_error_does_not_use_up_the_attempts(school: School) -> None:
    with school.site() as client:
        where = ask(client, course="alchemy").json()["status"]
    burst(app)
    with school.site() as client:
        told = client.get(where).json()
    assert (told["state"], told["reason"]) == ("dead", "permanent")
    assert (told["attempts"], told["max_attempts"]) == (1, 3)
    assert told["error"] == "there is no course 'alchemy'"
    assert school.ask("select count(*) from exports") == [(0,)]
    assert list(school.exports.iterdir()) == []


def test_a_course_that_is_created_after_the_request_is_exported(school: School) -> None:
    """Why the door does not look whether there is such a course."""
    with school.site() as client:
        where = ask(client, course="pottery").json()["status"]
    school.ask("insert into courses values ('pottery', 'Pottery on the Wheel', 'Crafts')")
    ticket = ticket_of(where)
    burst(app, queues=("exports",))
    school.require_right({"pottery": ticket})


# ----------------------------------------------------------------------------------------------------------------- HTTP


def test_the_http_is_about_sixty_lines() -> None:
    lines = (EXAMPLE / "web.py").read_text("utf-8").splitlines()
    code = [line for line in lines if line.strip() and not line.strip().startswith(("#", '"""'))]
    assert 50 <= len(code) <= 70


def test_it_is_202_with_a_status_url_and_not_before_the_commit(school: School) -> None:
    """While the acceptance cannot commit, there is no answer; when the answer is there, everybody sees the job."""
    with school.site() as client, ThreadPoolExecutor(1) as threads, psycopg.connect(school.dsn) as holder:
        ask(client, "warm", "chess")
        holder.execute("lock table tenure.keys in share row exclusive mode")
        answer = threads.submit(ask, client)
        until(
            lambda: school.ask("select 1 from pg_stat_activity where wait_event_type = 'Lock'"),
            "the acceptance to wait",
        )
        assert not answer.done()
        assert school.count("jobs") == 1
        holder.rollback()
        accepted = answer.result(30)
        assert school.count("jobs", f"id = '{accepted.json()['id']}'") == 1
        assert accepted.status_code == 202
        assert client.get(accepted.headers["location"]).json()["state"] == "pending"


def test_an_acceptance_that_takes_too_long_is_503_and_can_be_repeated(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "PATIENCE", 0.5)
    with school.site() as client:
        with psycopg.connect(school.dsn) as holder:
            holder.execute("lock table tenure.keys in share row exclusive mode")
            assert ask(client).status_code == 503
            holder.rollback()
        monkeypatch.setattr(web, "PATIENCE", 10.0)
        assert ask(client).status_code == 202
    assert school.count("jobs") == 1


def test_while_the_database_is_away_it_is_503(school: School) -> None:
    app.close()
    with Proxy(school.dsn) as proxy:
        app.point_at(proxy.dsn())
        with school.site() as client:
            where = ask(client, "before").json()["status"]
            proxy.refuse()
            for answer in (ask(client), client.get(where)):
                assert answer.status_code == 503
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.headers["retry-after"]
                assert proxy.dsn() not in answer.text
            proxy.heal()
            assert ask(client).status_code == 202
            assert client.get(where).status_code == 200
    app.point_at(school.dsn)


def test_an_acceptance_whose_answer_is_lost_is_503_and_its_repeat_is_the_same_job(school: School) -> None:
    app.close()
    with Proxy(school.dsn) as proxy:
        app.point_at(proxy.dsn())
        with school.site() as client:
            cut = proxy.cut_after(lambda statement: statement.startswith(b"-- accept:"))
            lost = ask(client)
            cut.wait()
            [(id,)] = school.ask("select id from tenure.jobs")
            again = ask(client)
    app.point_at(school.dsn)
    assert lost.status_code in (202, 503)
    assert again.status_code == 202
    assert again.json()["id"] == str(id)
    assert school.count("jobs") == 1


HOSTILE = {
    "nothing": (b"", 400),
    "no JSON": (b"operation=spring", 400),
    "half a JSON": (b'{"operation": "spring"', 400),
    "not UTF-8": (b'{"operation": "\xff\xfe", "course": "chess"}', 400),
    "a hundred thousand levels": (b"[" * 2000, 400),
    "a number of any length": (b'{"operation": ' + b"9" * 4000 + b', "course": "chess"}', 422),
    "null": (b"null", 422),
    "a list": (b'["operation", "course"]', 422),
    "no operation": (b'{"course": "chess"}', 422),
    "no course": (b'{"operation": "spring"}', 422),
    "more than was asked for": (b'{"operation": "spring", "course": "chess", "priority": 0}', 422),
    "a number": (b'{"operation": 1, "course": "chess"}', 422),
    "true": (b'{"operation": true, "course": "chess"}', 422),
    "an object": (b'{"operation": {}, "course": "chess"}', 422),
    "a list as course": (b'{"operation": "spring", "course": ["chess"]}', 422),
    "null as course": (b'{"operation": "spring", "course": null}', 422),
    "an empty operation": (b'{"operation": "", "course": "chess"}', 422),
    "a NUL": (rb'{"operation": "a\u0000b", "course": "chess"}', 422),
    "a NUL in the course": (rb'{"operation": "spring", "course": "a\u0000b"}', 422),
    "half a pair": (rb'{"operation": "\ud800", "course": "chess"}', 422),
    "half a pair in the course": (rb'{"operation": "spring", "course": "\ud800"}', 422),
    "a long operation": (json.dumps({"operation": "o" * 501, "course": "chess"}).encode(), 422),
    "a body without end": (b" " * 1_000_000, 413),
}


def test_what_is_hostile_is_refused_in_words(school: School) -> None:
    with school.site() as client:
        for name, (body, status) in HOSTILE.items():
            answer = client.post("/exports", content=body)
            assert (name, answer.status_code) == (name, status)
            assert answer.headers["content-type"] == "application/problem+json", name
            assert answer.json()["status"] == status, name
            assert "Traceback" not in answer.text, name
        assert school.count("jobs") == 0
        longest = ask(client, "ö" * 250)
        quoted = ask(client, "'; drop table exports; --", "<script>alert(1)</script>")
    assert longest.status_code == quoted.status_code == 202


def test_a_status_that_is_not_there_is_404(school: School) -> None:
    ticket = school.exported()
    delivery = school.delivery(ticket)
    with school.site() as client:
        for path in (f"/exports/{uuid4()}", f"/exports/{delivery.id}", "/exports/1", "/exports/%00", "/courses"):
            answer = client.get(path)
            assert (path, answer.status_code) == (path, 404)
            assert answer.headers["content-type"] == "application/problem+json"
        assert client.delete("/exports").status_code == 405


# --------------------------------------------------------------------------------------------------------- the delivery


def test_a_finished_file_is_delivered_under_a_key_of_its_own(school: School) -> None:
    ticket = school.exported()
    burst(app)
    done = school.delivery(ticket)
    assert (done.state, done.attempts) == (State.DONE, 1)
    seen = school.receiver.seen()[school.key(ticket)]
    assert seen == {"calls": 1, "works": 1, "sha256": hashlib.sha256(school.recomputed("chess")).hexdigest()}
    assert json.loads(done.result or "")["receipt"].startswith("/deliveries/")


@pytest.mark.parametrize("mood", ["lose", "hang"])
def test_an_uncertain_delivery_is_repeated_and_worked_on_once(
    school: School, mood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PATIENCE", 1.0)
    ticket = school.exported()
    school.receiver.will(mood)
    finish(app, as_ticket(school.delivery(ticket).id))
    done = school.delivery(ticket)
    assert (done.state, done.attempts) == (State.DONE, 2)
    assert school.receiver.counted(school.key(ticket)) == (2, 1)


def test_a_delivery_that_cannot_reach_the_receiver_is_tried_again(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = school.exported()
    monkeypatch.setattr(jobs, "RECEIVER", "http://127.0.0.1:1/deliveries")
    school.retry_after(Backoff("1h", "1h"))
    burst(app)
    waits = school.delivery(ticket)
    assert (waits.state, waits.attempts) == (State.PENDING, 1)
    assert school.known(ticket).state is State.DONE, "the export is done whether or not it is delivered"


def test_a_busy_receiver_costs_no_attempt(school: School) -> None:
    ticket = school.exported()
    school.receiver.will("busy")
    finish(app, as_ticket(school.delivery(ticket).id))
    done = school.delivery(ticket)
    assert (done.state, done.attempts, done.claims, done.deferrals) == (State.DONE, 1, 2, 1)
    assert school.receiver.counted(school.key(ticket)) == (2, 1)


def test_a_delivery_that_is_refused_is_given_up_at_once(school: School) -> None:
    ticket = school.exported()
    school.receiver.will("refuse")
    finish(app, as_ticket(school.delivery(ticket).id))
    given_up = school.delivery(ticket)
    assert (given_up.state, given_up.reason, given_up.attempts) == (State.DEAD, "permanent", 1)
    with school.site() as client:
        told = client.get(f"/exports/{ticket.id}").json()
    assert (told["state"], told["delivery"]["state"], told["delivery"]["reason"]) == ("done", "dead", "permanent")


def test_a_file_that_was_changed_is_not_delivered(school: School) -> None:
    ticket = school.exported()
    [file] = school.exports.iterdir()
    file.write_bytes(file.read_bytes().replace(b"Chess", b"Go"))
    finish(app, as_ticket(school.delivery(ticket).id))
    assert school.delivery(ticket).reason == "permanent"
    assert school.receiver.counted(school.key(ticket)) == (0, 0)


def test_the_receiver_works_again_for_another_key_and_refuses_a_key_for_another_file(school: School) -> None:
    """What the key is for: without the same key the work would be done twice."""
    one, two = str(uuid4()), str(uuid4())

    def post(key: str, content: bytes) -> httpx.Response:
        return httpx.post(school.receiver.url, content=content, headers={"Idempotency-Key": key})

    first, again, other = post(one, b"file"), post(one, b"file"), post(two, b"file")
    assert first.headers["location"] == again.headers["location"] != other.headers["location"]
    assert (school.receiver.counted(one), school.receiver.counted(two)) == ((2, 1), (1, 1))
    assert post(one, b"another file").status_code == 422
    assert httpx.post(school.receiver.url, content=b"file").status_code == 400


def test_a_worker_killed_while_the_receiver_is_at_work(school: School) -> None:
    ticket = school.exported()
    school.receiver.will("hang")
    victim = school.start(APP, concurrency=1, prefetch=0)
    until(lambda: school.receiver.counted(school.key(ticket)) == (1, 1), "the receiver to have worked")
    victim.kill()
    assert school.start(APP, burst=True, children=1).ended() == 0
    assert school.delivery(ticket).state is State.DONE
    assert school.receiver.counted(school.key(ticket)) == (2, 1)


# -------------------------------------------------------------------------------------------------------------- the kills


def test_the_whole_of_it_with_a_worker_killed_at_each_step(
    school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each victim takes one job and dies at a step of its own: fifteen kills, then two workers that live.

    A queue is paused until its victims are all at work, so that none of them meets a job that another one was killed with.
    """
    monkeypatch.setenv("CATALOG_LEASE", "5s")
    before = school.catalogue()
    with stage.server(tmp_path / "web.log", "web") as base, httpx.Client(base_url=base, timeout=60) as client:
        for_exports = victims(school, "exports", FOR_EXPORTS)
        for_deliveries = victims(school, "deliveries", FOR_DELIVERIES)
        courses = school.courses()[: len(FOR_EXPORTS)]
        asked = {course: ask(client, f"export of {course}", course) for course in courses}
        until(lambda: school.count("workers") == len(for_exports | for_deliveries), "all victims at work")
        killed(school, "exports", for_exports)
        unknown = ask(client, "a slip of the pen", "alchemy")
        assert school.start(APP, queues="exports", burst=True, children=2).ended() == 0
        killed(school, "deliveries", for_deliveries)
        assert school.start(APP, burst=True, children=2).ended() == 0
        told = {course: client.get(answer.json()["status"]).json() for course, answer in asked.items()}
        refused = client.get(unknown.json()["status"]).json()
        repeated = {course: ask(client, f"export of {course}", course) for course in courses}

    tickets = {course: ticket_of(answer.json()["status"]) for course, answer in asked.items()}
    assert {answer.status_code for answer in asked.values()} == {202}
    assert {course: answer.content for course, answer in repeated.items()} == {c: a.content for c, a in asked.items()}
    school.require_right(tickets)
    assert [(one["state"], one["delivery"]["state"]) for one in told.values()] == [("done", "done")] * len(told)
    assert Counter(one["attempts"] for one in told.values()) == {2: 8, 1: 1}, "what was committed is not repeated"
    assert (refused["state"], refused["reason"]) == ("dead", "permanent")
    assert school.count("dedup") == len(tickets)

    seen = school.receiver.seen()
    assert {seen[school.key(ticket)]["works"] for ticket in tickets.values()} == {1}
    calls = Counter(seen[school.key(ticket)]["calls"] for ticket in tickets.values())
    assert calls[1] <= len(tickets) - 2, "at least two had been delivered without the queue knowing it"
    for course, ticket in tickets.items():
        assert seen[school.key(ticket)]["calls"] <= told[course]["delivery"]["attempts"], "no call without a claim"
    for course, ticket in tickets.items():
        assert seen[school.key(ticket)]["sha256"] == hashlib.sha256(school.recomputed(course)).hexdigest()
    assert school.catalogue() == before


def test_a_worker_killed_while_it_reports_a_failure(school: School) -> None:
    """A retry or a burial that was not recorded is a crash: the lease ends, and one attempt is spent."""
    school.exports.rmdir()
    tickets = {}
    for course, point in [
        ("chess", "retry.before"),
        ("alchemy", "bury.before"),
    ]:  # one by one: none takes another's job
        ticket = tickets[course] = school.export(course)
        dying = school.start(APP, queues="exports", faults=f"{point}=kill", concurrency=1, prefetch=0)
        assert dying.ended() == -signal.SIGKILL
        assert school.known(ticket).state is State.RUNNING
        school.exports.mkdir(exist_ok=True)
        assert school.start(APP, queues="exports", burst=True, children=1).ended() == 0

    chess, alchemy = map(school.known, tickets.values())
    assert (chess.state, chess.attempts) == (State.DONE, 2)
    assert (alchemy.reason, alchemy.attempts) == ("permanent", 2)
    school.require_right({"chess": tickets["chess"]})


def test_a_worker_that_wakes_up_late_leaves_the_recorded_file_alone(
    school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped before it wrote its file; meanwhile a lesson was changed, and another worker exported the course."""
    ticket = school.export()
    gate = Gate(tmp_path / "gate")
    with monkeypatch.context() as patch:
        patch.setenv("PAUSE_AT", str(gate.path))
        late = school.start(DYING, queues="exports", concurrency=1, prefetch=0)
    gate.await_arrival()
    late.stop()
    old = school.recomputed("chess")
    school.ask("update lessons set minutes = 100 where course = 'chess'")
    assert school.start(APP, queues="exports", burst=True, children=1).ended() == 0
    school.require_right({"chess": ticket})
    [(recorded,)] = school.ask("select file from exports")

    gate.open()
    late.go_on()
    late.terminate()
    late.ended()
    there = {path.name: path.read_bytes() for path in school.exports.iterdir()}
    assert there.pop(recorded) == school.recomputed("chess")
    assert list(there.values()) == [old], "it wrote what it had read, under another name"
    assert school.ask("select job_id, file from exports") == [(ticket.id, recorded)]


# --------------------------------------------------------------------------------------------------------- make example


def test_make_example_catalog_runs_it_end_to_end(base: Path, tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipe = re.search(r"^example-catalog:.*\n\t@?\$\(BIN\)/python (.+)$", makefile, re.MULTILINE)
    assert recipe
    environment = {**os.environ, "TENURE_HOME": str(base / "pg18"), "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, *recipe[1].split()], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = ended.stdout.splitlines()
    assert said[-1].startswith("Everything is there, once.")
    assert sum(line.startswith("ok ") for line in said) == 12
    assert unanswered(shown("make example-catalog"), ended.stdout) == [], "as the tutorial shows it"
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_the_checks_see_what_is_wrong(school: School) -> None:
    ticket = school.exported()
    with psycopg.connect(school.dsn, autocommit=True) as conn:
        before = check.catalogue(conn)
        assert check.files(conn, school.exports) == []
        (school.exports / "stray.json").write_text("{}")
        assert check.files(conn, school.exports) == ["stray.json has no row"]
        conn.execute("update exports set sha256 = 'other' where job_id = %s", [ticket.id])
        assert len(check.files(conn, school.exports)) == 2
        conn.execute("update lessons set minutes = minutes where course = 'chess'")
        assert check.catalogue(conn) != before
        assert len(check.files(conn, school.exports)) == 2
        conn.execute("update lessons set minutes = minutes + 1 where course = 'chess'")
        assert len(check.files(conn, school.exports)) == 3


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / ".job-left.part").write_bytes(b"half")
    name = files.keep(tmp_path, "job", b"content")
    assert files.keep(tmp_path, "job", b"content") == name
    other = files.keep(tmp_path, "job", b"changed")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"content", other: b"changed"}


def victims(school: School, queue: str, steps: list[str]) -> dict[tuple[str, str], Process]:
    """For each step a worker that takes one job of a queue and dies there, once the queue goes on."""
    school.store.run(SetQueue(queue, {"paused": True}))
    started = {}
    for step in steps:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DIE_AT", step)
            target, faults = (DYING, "") if step in STEPS else (APP, f"{step}=kill")
            started[queue, step] = school.start(target, queues=queue, faults=faults, concurrency=1, prefetch=0)
    return started


def killed(school: School, queue: str, victims: dict[tuple[str, str], Process]) -> None:
    """Let the queue go on, and wait until all its victims are dead."""
    school.store.run(SetQueue(queue, {"paused": False}))
    for step, process in victims.items():
        assert process.ended() == -signal.SIGKILL, step


def ticket_of(status: str) -> Ticket:
    """A ticket for the export of a status URL."""
    return as_ticket(UUID(status.rpartition("/")[2]))


def as_ticket(id: UUID) -> Ticket:
    """A ticket for a job that is known by its id."""
    return Ticket("exports", id, "new", State.PENDING, None, None, app)
