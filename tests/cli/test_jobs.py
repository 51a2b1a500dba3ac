"""``tenure jobs``: looked at and changed by id, whatever their queue."""

from __future__ import annotations

import json
from datetime import datetime
from uuid import UUID, uuid4

import pytest

from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Cancel
from tests.cli.conftest import Cli
from tests.store.steps import accept, bury, claim, complete, dead, look, offer, reclaim, retry, set_queue, take
from tests.store.steps import new as new_job


@pytest.fixture
def jobs(store: PostgresStore) -> dict[str, UUID]:
    """A job in each state."""
    done = take(store)
    complete(store, done, '{"sum": 1.50}')
    cancelled = accept(store)[0]
    store.run(Cancel("q", [cancelled]))
    running = take(store)
    [pending] = accept(store, delay=3600.0)
    return {"done": done.id, "cancelled": cancelled, "running": running.id, "pending": pending, "dead": dead(store)}


def test_the_list_is_newest_first_and_filtered(cli: Cli, store: PostgresStore, jobs: dict[str, UUID]) -> None:
    offer(store, new_job(key="k"), kind="mail.send", queue="mail")
    listed = cli("jobs", "list", "--queue", "q", "--json").jsons
    assert [job["id"] for job in listed] == [str(jobs[s]) for s in ("pending", "running", "cancelled", "done")]
    assert [job["state"] for job in cli("jobs", "list", "--state", "running", "--json").jsons] == ["running"]
    assert [job["queue"] for job in cli("jobs", "list", "--kind", "mail.send", "--json").jsons] == ["mail"]
    assert [job["key"] for job in cli("jobs", "list", "--key", "k", "--json").jsons] == ["k"]
    assert cli("jobs", "list", "--queue", "none").out == ""


def test_the_list_is_a_table_that_names_the_next_page(cli: Cli, store: PostgresStore) -> None:
    ids = [str(id) for id in reversed(accept(store, 5))]
    seen: list[str] = []
    more: list[str] = []
    while True:
        answer = cli("jobs", "list", "--limit", 2, *more)
        header, *rows = answer.out.splitlines()
        assert header.split()[:4] == ["id", "queue", "kind", "state"]
        seen += [row.split()[0] for row in rows]
        if not answer.err:
            break
        more = answer.err.removeprefix("More: ").split()
    assert seen == ids


def test_everything_about_a_job_is_shown(cli: Cli, store: PostgresStore) -> None:
    failure = json.dumps({"type": "TimeoutError", "message": "too slow", "traceback": "Traceback:\n  line 1"})
    offer(store, job := new_job('{"n": 1.50}', key="k", headers='{"trace": "t"}'))
    retry(store, claim(store)[0], failure=failure)
    complete(store, reclaim(store, job.id), '{"sum": 1.50}')
    answer = cli("jobs", "show", job.id)
    shown = answer.out
    assert answer.code == 0
    for words in ("state", "done", "k", '"n": 1.50', '"trace": "t"', '"sum": 1.50', "TimeoutError: too slow", "line 1"):
        assert words in shown
    told = cli("jobs", "show", job.id, "--json").json
    assert told["history"][0]["type"] == "TimeoutError"
    assert told["payload"] == {"n": 1.5}
    assert '"payload": {"n": 1.50}' in cli("jobs", "show", job.id, "--json").out


def test_people_see_times_of_their_zone(cli: Cli, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    [id] = accept(store)
    accepted = look(store, id).accepted_at
    line = next(line for line in cli("jobs", "show", id).out.splitlines() if line.startswith("accepted"))
    shown = datetime.fromisoformat(line.split()[1])
    assert shown == accepted.replace(microsecond=0)
    assert shown.utcoffset() == accepted.astimezone().utcoffset()
    assert cli("jobs", "show", id, "--json").json["accepted_at"] == accepted.isoformat()


def test_dead_letters_are_shown_too(cli: Cli, jobs: dict[str, UUID]) -> None:
    assert "dead (permanent)" in cli("jobs", "show", jobs["dead"]).out


def test_pending_jobs_are_cancelled_and_running_ones_asked(
    cli: Cli, store: PostgresStore, jobs: dict[str, UUID]
) -> None:
    answer = cli("jobs", "cancel", jobs["pending"], jobs["running"], "--json")
    assert answer.code == 0
    assert [line["answer"] for line in answer.jsons] == ["cancelled", "asked"]
    assert look(store, jobs["pending"]).reason == "asked"
    assert look(store, jobs["running"]).cancel


def test_jobs_of_several_queues_at_once(cli: Cli, store: PostgresStore) -> None:
    ids = [*accept(store), *accept(store, queue="other")]
    assert [line["answer"] for line in cli("jobs", "cancel", *ids, "--json").jsons] == ["cancelled", "cancelled"]


def test_what_could_not_be_changed_is_told(cli: Cli, jobs: dict[str, UUID]) -> None:
    unknown = uuid4()
    answer = cli("jobs", "cancel", jobs["done"], jobs["dead"], unknown, jobs["pending"], jobs["pending"])
    assert answer.code == 1
    told = dict(line.split(maxsplit=1) for line in answer.out.splitlines()[1:])
    assert {id: answer.strip() for id, answer in told.items()} == {
        str(jobs["pending"]): "cancelled",
        str(jobs["done"]): "unchanged: done",
        str(jobs["dead"]): "unchanged: dead",
        str(unknown): "unknown",
    }
    assert "tenure dead" in answer.err


def test_a_scheduled_job_is_made_available(cli: Cli, store: PostgresStore, jobs: dict[str, UUID]) -> None:
    assert cli("jobs", "retry-now", jobs["pending"]).code == 0
    assert [leased.id for leased in claim(store)] == [jobs["pending"]]
    assert cli("jobs", "retry-now", jobs["pending"], "--json").json["answer"] == "unchanged: running"


def test_priority_is_changed(cli: Cli, store: PostgresStore, jobs: dict[str, UUID]) -> None:
    assert cli("jobs", "set-priority", 0, jobs["pending"]).code == 0
    assert look(store, jobs["pending"]).priority == 0
    assert cli("jobs", "set-priority", 0, jobs["running"]).code == 1
    assert cli("jobs", "set-priority", 10, jobs["pending"]).code == 2


def test_an_unknown_job_is_said_to_be_unknown(cli: Cli) -> None:
    id = uuid4()
    answer = cli("jobs", "show", id)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == f"There is no job {id} (any more).\n"
    assert json.loads(cli("jobs", "show", id, "--json").err)["what"] == f"There is no job {id} (any more)."


@pytest.mark.parametrize("args", [["show", "x"], ["cancel"], ["cancel", "1;drop table"], ["list", "--state", "dead"]])
def test_what_is_no_id_or_state_is_usage(cli: Cli, args: list[str]) -> None:
    assert cli("jobs", *args).code == 2


def test_filters_are_values_and_nothing_else(cli: Cli, jobs: dict[str, UUID]) -> None:
    for filter in ("--queue", "--kind", "--key"):
        for value in ("' or true --", "q'; drop table tenure.jobs; --", "%", "\\", "{}", "%(queue)s"):
            assert cli("jobs", "list", filter, value, "--json") == (0, "", "")
    assert len(cli("jobs", "list", "--json").jsons) == 4


def test_what_a_dead_job_died_of_stands_in_its_history(cli: Cli, store: PostgresStore) -> None:
    leased = take(store)
    bury(store, leased, "permanent", '{"type": "ValueError", "message": ""}')
    assert "attempt 1, " in cli("jobs", "show", leased.id).out
    assert ": ValueError\n" in cli("jobs", "show", leased.id).out


def test_dead_letters_have_a_list_of_their_own(cli: Cli) -> None:
    assert "tenure dead list" in cli("jobs", "list", "--state", "dead").err


def test_a_job_is_shown_by_its_key(cli: Cli, store: PostgresStore) -> None:
    offer(store, job := new_job('{"n": 1}', key="order-42"))
    assert cli("jobs", "show", "--key", "order-42", "--queue", "q", "--json").json["id"] == str(job.id)
    assert cli("jobs", "show", "--key", "order-42", "--json").json["id"] == str(job.id)
    missing = cli("jobs", "show", "--key", "order-42", "--queue", "mail")
    assert (missing.code, "Queue 'mail' has no key 'order-42'" in missing.err) == (1, True)
    assert "No queue has a key 'order-43'" in cli("jobs", "show", "--key", "order-43").err


def test_a_key_of_two_queues_is_asked_back(cli: Cli, store: PostgresStore) -> None:
    offer(store, new_job('{"n": 1}', key="k"))
    offer(store, new_job('{"n": 1}', key="k"), queue="q2")
    answer = cli("jobs", "show", "--key", "k")
    assert (answer.code, "Queues q, q2 have a key 'k' each" in answer.err) == (1, True)


def test_what_is_due_already_need_not_be_made_available(cli: Cli, store: PostgresStore) -> None:
    [id] = accept(store)
    answer = cli("jobs", "retry-now", id, "--json")
    assert (answer.code, answer.json["answer"]) == (0, "due already")


def test_a_key_remembers_the_result_of_a_job_that_its_queue_did_not_keep(cli: Cli, store: PostgresStore) -> None:
    set_queue(store, retention=0)
    offer(store, job := new_job('{"n": 1}', key="k"))
    complete(store, claim(store)[0], '{"sum": 1.50}')
    told = cli("jobs", "show", "--key", "k", "--queue", "q", "--json")
    assert (told.json["id"], told.json["state"], told.json["kind"]) == (str(job.id), "done", "work")
    assert '"result": {"sum": 1.50}' in told.out
    shown = cli("jobs", "show", "--key", "k", "--queue", "q").out
    assert "done" in shown
    assert '"sum": 1.50' in shown
    assert cli("jobs", "show", job.id).code == 1


@pytest.mark.parametrize("args", [[], [str(uuid4()), "--key", "k"]], ids=["neither", "both"])
def test_a_job_is_named_by_its_id_or_its_key(cli: Cli, args: list[str]) -> None:
    answer = cli("jobs", "show", *args)
    assert (answer.code, "Give the ID of a job, or --key" in answer.err) == (2, True)
