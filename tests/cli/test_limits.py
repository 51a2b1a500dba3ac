"""``tenure limit``, and what other commands say of limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.limits import Limit
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import KindRow, ListJobs, RegisterKinds
from tests.cli.conftest import Cli
from tests.store.steps import accept, claim, permit

TENANT = {"type": "object", "properties": {"tenant": {}}, "required": ["tenant"]}
LIMIT = Limit("psp", concurrency=2, by="tenant")


@pytest.fixture(autouse=True)
def charge(store: PostgresStore) -> None:
    """A kind with a limit."""
    store.run(RegisterKinds([KindRow("charge", 1, "q", [], False, {"limit": LIMIT.declared}, {}, TENANT)]))


def test_limits_are_listed_with_their_jobs(cli: Cli, store: PostgresStore) -> None:
    accept(store, 5, kind="work", limit_name="psp", limit_key="a", share="")
    permit(store)
    claim(store, limit=1)
    told = cli("limit", "list", "--json").json
    assert told == {
        **{"name": "psp", "policy": {"concurrency": 2}, "operator": {}},
        **{"waiting": 3, "admitted": 1, "running": 1},
    }
    header, row = cli("limit", "list").out.splitlines()
    assert header.split() == ["limit", "concurrency", "rate", "burst", "shares", "waiting", "admitted", "running"]
    assert row.split() == ["psp", "2", "3", "1", "1"]


def test_what_is_set_wins_and_is_taken_back(cli: Cli) -> None:
    told = cli("limit", "set", "psp", "--concurrency", 5, "--rate", 120, "--per", "1m", "--burst", 3, "--json").json
    assert told["operator"] == {"concurrency": 5, "rate": 2.0, "burst": 3}
    assert "5 (set; declared 2)" in cli("limit", "list").out
    assert "2 a second" in cli("limit", "list").out
    told = cli("limit", "set", "psp", "--rate", "none", "--burst", "none", "--json").json
    assert told["operator"] == {"concurrency": 5}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--concurrency", "0"], "would run nothing"),
        (["--concurrency", "many"], "no whole number"),
        (["--rate", "5"], "a rate without a burst"),
        (["--burst", "5"], "a burst without a rate"),
        (["--rate", "x", "--burst", "5"], "no number"),
        (["--per", "1m"], "--per belongs to --rate"),
        ([], "Say what to set"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_the_reason(cli: Cli, options: list[str], said: str) -> None:
    refused = cli("limit", "set", "psp", *options)
    assert refused.code != 0
    assert said in refused.err
    assert cli("limit", "list", "--json").json["operator"] == {}


def test_a_limit_that_nobody_has_declared_cannot_be_set(cli: Cli) -> None:
    refused = cli("limit", "set", "pps", "--concurrency", "1")
    assert refused.code != 0
    assert "There is no limit 'pps'" in refused.err
    assert "psp" in refused.err


def test_a_job_that_is_enqueued_counts_by_its_payload(cli: Cli, store: PostgresStore) -> None:
    id = cli("enqueue", "charge", "--json", '{"tenant": 7}', "--as-json").json["id"]
    [job] = store.run(ListJobs("q"))
    assert (str(job.id), job.limit_name, job.limit_key, job.gate) == (id, "psp", "7", "limit")
    assert "it waits for a permit of its limit" in cli("jobs", "show", id).out


def test_a_payload_that_lacks_what_to_count_by_is_refused(cli: Cli, tmp_path: Path) -> None:
    refused = cli("enqueue", "charge", "--json", '{"tenant": null}')
    assert refused.code != 0
    assert "counts for the limit 'psp' by tenant, which is missing" in refused.err
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"kind": "charge", "args": {"tenant": "a"}}\n{"kind": "charge", "args": {"tenant": 1.5}}\n')
    told = cli("enqueue", "--from", str(file))
    assert "counts for the limit" in told.err
