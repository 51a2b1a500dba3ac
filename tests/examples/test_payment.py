"""Payments through a provider: real workers, a real HTTP server that counts by key, and whatever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from examples.payment import jobs, run
from examples.payment.jobs import charge, nothing_was_done, pay_out, transfer
from examples.payment.provider import RETRY_AFTER, Fault, Provider

from tenure import Kind, Record, State, Ticket
from tests.cli.conftest import here
from tests.conftest import Server
from tests.docs.pages import blocks
from tests.worker.ledger import until
from tests.worker.processes import Bench, Process

ROOT = Path(__file__).parents[2]
orders = count(1)


class Shop(Bench):
    """A bench with the table of the payments, and their provider."""

    def __init__(self, dsn: str, directory: Path, provider: Provider) -> None:
        super().__init__(dsn, directory)
        self.provider = provider
        self.ask(jobs.TABLE)

    def work(self, *, faults: str = "", url: str = "", timeout: float = 10, **options: Any) -> Process:
        """Start a worker; ``url`` is where it believes the provider to be, ``timeout`` how long it waits for an answer."""
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("PAYMENT_URL", url or self.provider.url)
            environment.setenv("PAYMENT_TIMEOUT", str(timeout))
            return self.start("examples.payment.jobs:app", faults=faults, children=1, **options)

    def pay(self, kind: Kind, *faults: Fault, cents: int = 100) -> tuple[str, Ticket]:
        """Accept a payment whose calls meet these faults; answers its idempotency key, and its ticket."""
        order = next(orders)
        key = f"{kind.queue}/{kind.name}/order-{order}"
        self.provider.plan(key, *faults)
        with jobs.app as app:
            app.point_at(self.dsn)
            return key, kind.enqueue_sync(order_id=order, cents=cents, key=f"order-{order}")

    def victims(self, kind: Kind, points: list[str]) -> list[str]:
        """For each point a payment whose worker is killed there; answers their keys once all are dead."""
        killed = [self.work(faults=f"{point}=kill", concurrency=1, prefetch=0) for point in points]
        until(lambda: self.count("workers") == len(killed), "all victims at work")
        keys = [self.pay(kind)[0] for _ in points]
        for victim, point in zip(killed, points, strict=True):
            assert victim.ended() == -signal.SIGKILL, point
        return keys

    def redrive(self, ticket: Ticket, *options: str) -> None:
        """Decide that a dead letter is run once more."""
        answer = here("dead", "redrive", ticket.id, *options, TENURE_DSN=self.dsn)
        assert answer.code == 0, answer.err

    def await_call(self, key: str, number: int = 1) -> None:
        """Wait until the provider was called so often."""
        until(lambda: self.provider.called(key) >= number, f"call {number} of {key}")

    def await_work(self, key: str) -> None:
        """Wait until the provider has done the work."""
        until(lambda: self.provider.charges[key], f"the work of {key}")

    def await_snooze(self, ticket: Ticket) -> None:
        """Wait until a job was deferred."""
        until(lambda: (record := self.record(ticket.id)) and record.deferrals, "the snooze")

    def retry_now(self, ticket: Ticket) -> None:
        """Do not wait for a job's time."""
        assert here("jobs", "retry-now", ticket.id, TENURE_DSN=self.dsn).code == 0

    def counted(self, key: str) -> tuple[int, int]:
        """How often the provider was called, and how often it did the work."""
        return self.provider.called(key), self.provider.charges[key]

    def books(self) -> dict[str, str]:
        """What our own table says, by key."""
        return dict(self.ask("select key, state from payments"))


@pytest.fixture
def shop(dsn: str, tmp_path: Path) -> Iterator[Shop]:
    """A shop of the test's own, in which nobody works yet."""
    with Provider() as provider, closing(Shop(dsn, tmp_path, provider)) as shop:
        yield shop


@pytest.fixture(scope="module")
def open_shop(pg18: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop with a worker for tests that leave it alive; each of them has payments of its own."""
    dsn = pg18.fresh()
    with Provider() as provider, closing(Shop(dsn, tmp_path_factory.mktemp("shop"), provider)) as shop:
        shop.work()
        yield shop
    pg18.drop(dsn)


# -------------------------------------------------------------------------------------------------- the idempotency key


def test_the_key_is_the_same_in_every_attempt_and_after_a_redrive(open_shop: Shop) -> None:
    key, ticket = open_shop.pay(charge, "throttle", "decline")
    open_shop.await_state(ticket.id, State.DEAD)
    open_shop.redrive(ticket)
    done = open_shop.await_state(ticket.id)

    order = done.key and int(done.key.removeprefix("order-"))
    assert [call.key for call in open_shop.provider.calls if call.body["order"] == order] == 3 * [key]
    assert (done.claims, done.redrives) == (3, 1)


def test_without_a_key_of_the_producer_it_is_the_jobs_id(open_shop: Shop) -> None:
    order = next(orders)
    with jobs.app as app:
        app.point_at(open_shop.dsn)
        later = charge.enqueue_sync(order_id=order, cents=100, delay=3600)
    key = str(later.id)
    open_shop.provider.plan(key, "throttle", "decline")
    open_shop.retry_now(later)
    open_shop.await_state(later.id, State.DEAD)
    open_shop.redrive(later, "--as-kind", "transfer")
    open_shop.await_state(later.id)

    assert [call.key for call in open_shop.provider.calls if call.body["order"] == order] == 3 * [key]


def test_the_key_survives_a_redrive_as_another_kind_with_another_payload(open_shop: Shop) -> None:
    key, ticket = open_shop.pay(charge, "decline")
    open_shop.await_state(ticket.id, State.DEAD)
    open_shop.redrive(ticket, "--as-kind", "transfer", "--payload", '{"order_id": 0, "cents": 900}')
    done = open_shop.await_state(ticket.id)

    assert (done.kind, done.id) == ("transfer", ticket.id)
    calls = [(call.path, call.body["cents"]) for call in open_shop.provider.calls if call.key == key]
    assert calls == [("/charges", 100), ("/transfers", 900)]
    assert open_shop.books()[key] == "paid"


def test_a_redrive_with_another_amount_does_not_charge_again(open_shop: Shop) -> None:
    """The provider has done the work under this key: it refuses to do something else."""
    key, ticket = open_shop.pay(charge, "error", "decline")
    open_shop.await_state(ticket.id, State.DEAD)
    open_shop.redrive(ticket, "--payload", '{"order_id": 0, "cents": 900}')
    open_shop.await_call(key, 3)
    dead = open_shop.await_state(ticket.id, State.DEAD)

    assert "422" in last_failure(dead)
    assert open_shop.counted(key) == (3, 1)
    assert open_shop.books()[key] == "reserved", "a later refusal does not take back what an earlier call has done"


# ---------------------------------------------------------------------------------------- a provider with keys: repeat


def test_a_provider_that_fails_after_the_work_charges_once(shop: Shop) -> None:
    """It answers 500, or not at all, or too late, or one after the other."""
    plans: list[list[Fault]] = [["error"], ["drop"], ["hang"], ["drop", "error", "drop"]]
    payments = [shop.pay(charge, *faults) for faults in plans]
    shop.work(timeout=1.5)
    for (key, ticket), faults in zip(payments, plans, strict=True):
        assert shop.await_state(ticket.id).attempts > len(faults)
        assert shop.provider.called(key) > len(faults)
        assert shop.provider.charges[key] == 1
        assert shop.books()[key] == "paid"


def test_killed_between_call_and_confirm_it_is_called_twice_and_charged_once(shop: Shop) -> None:
    """Killed before the reservation or after the commit it is called once."""
    keys = shop.victims(
        charge, ["handler.running", "effect.before_dedup", "effect.before_commit", "effect.after_commit"]
    )
    assert sorted(shop.counted(key) for key in keys) == [(0, 0), (1, 1), (1, 1), (1, 1)]
    assert sorted(shop.books().values()) == ["paid", "reserved", "reserved"], "confirmations went with their workers"
    shop.work()
    until(lambda: list(shop.books().values()) == 4 * ["paid"], "all confirmed")

    assert sorted(shop.counted(key) for key in keys) == [(1, 1), (1, 1), (2, 1), (2, 1)]
    assert shop.count("archive", "state = 'done'") == 4


def test_a_declined_card_does_not_use_up_attempts(open_shop: Shop) -> None:
    key, ticket = open_shop.pay(charge, "decline")
    dead = open_shop.await_state(ticket.id, State.DEAD)

    assert (dead.reason, dead.attempts, dead.max_attempts) == ("permanent", 1, 10)
    assert "402" in last_failure(dead)
    assert open_shop.counted(key) == (1, 0)
    assert open_shop.books()[key] == "refused"


def test_retry_after_is_honoured_and_spends_no_attempt(open_shop: Shop) -> None:
    key, ticket = open_shop.pay(charge, "throttle")
    done = open_shop.await_state(ticket.id)

    first, second = (call.at for call in open_shop.provider.calls if call.key == key)
    assert second - first >= RETRY_AFTER
    assert (done.attempts, done.claims, done.deferrals) == (1, 2, 1)
    assert open_shop.provider.charges[key] == 1


def test_a_key_that_the_provider_has_forgotten_is_looked_up_and_not_charged_again(open_shop: Shop) -> None:
    """A dead letter may be redriven after a week; a provider's keys live for a day or so."""
    key, ticket = open_shop.pay(charge, "error", "decline")
    open_shop.await_state(ticket.id, State.DEAD)
    open_shop.provider.forget_keys()
    open_shop.ask(f"update payments set reserved_at = reserved_at - interval '1 week' where key = '{key}'")  # noqa: S608
    open_shop.redrive(ticket)
    open_shop.await_state(ticket.id)

    assert open_shop.counted(key) == (2, 1)
    assert open_shop.provider.looked_up[key] == 1
    assert open_shop.books()[key] == "paid"


def test_a_key_that_is_accepted_again_after_its_time_is_answered_from_the_books(open_shop: Shop) -> None:
    """The reservation lives longer than the queue's memory of the key."""
    key, ticket = open_shop.pay(charge)
    done = open_shop.await_state(ticket.id)
    open_shop.ask(f"delete from tenure.keys where key = '{done.key}'")  # noqa: S608 - as its time to live would
    open_shop.ask(f"delete from tenure.dedup where dedup_key = '{key}'")  # noqa: S608
    with jobs.app as app:
        app.point_at(open_shop.dsn)
        again = charge.enqueue_sync(order_id=0, cents=100, key=done.key)
    assert (again.answer, again.id != ticket.id) == ("new", True)

    assert open_shop.await_state(again.id).result == done.result
    assert open_shop.counted(key) == (1, 1)


# ------------------------------------------------------------------------------------------------ without keys: look up


def test_without_keys_the_look_up_decides(open_shop: Shop) -> None:
    """The work was done and the answer lost: it is found, and there is no second call."""
    key, ticket = open_shop.pay(transfer, "drop")
    open_shop.await_state(ticket.id)

    assert open_shop.counted(key) == (1, 1)
    assert open_shop.provider.looked_up[key] == 1
    assert open_shop.books()[key] == "paid"


def test_without_keys_what_was_lost_is_called_again_once_it_is_certain(open_shop: Shop) -> None:
    """That the look-up shows nothing counts when the call is over at the provider's side too."""
    key, ticket = open_shop.pay(transfer, "lose")
    open_shop.await_call(key)
    open_shop.provider.release(key)
    open_shop.await_snooze(ticket)
    assert open_shop.counted(key) == (1, 0)
    open_shop.ask(f"update payments set called_at = called_at - interval '1 minute' where key = '{key}'")  # noqa: S608
    open_shop.retry_now(ticket)
    done = open_shop.await_state(ticket.id)

    assert open_shop.counted(key) == (2, 1)
    assert done.attempts == 2, "waiting has spent none"


# -------------------------------------------------------------------------------------------- neither: a human decides


def test_neither_is_parked_as_a_dead_letter_and_not_doubled(open_shop: Shop) -> None:
    key, ticket = open_shop.pay(pay_out, "drop")
    dead = open_shop.await_state(ticket.id, State.DEAD)
    assert (dead.reason, dead.attempts) == ("permanent", 2)
    assert f"uncertain: {key} may have been paid out" in last_failure(dead)

    open_shop.redrive(ticket)
    until(lambda: open_shop.count("dead", f"id = '{ticket.id}' and redrives = 1"), "its second burial")
    assert open_shop.counted(key) == (1, 1), "a redrive alone decides nothing"


def test_neither_told_to_stop_during_the_call_it_is_parked(shop: Shop) -> None:
    """After the grace time the handler is cancelled and its job released; what the provider did nobody knows."""
    key, ticket = shop.pay(pay_out, "hold")
    stopped = shop.work(grace="0")
    shop.await_call(key)
    stopped.terminate()
    assert stopped.ended() == 0
    shop.work()
    dead = shop.await_state(ticket.id, State.DEAD)

    assert "uncertain" in last_failure(dead)
    assert shop.provider.called(key) == 1


def test_the_owner_decides_about_the_parked(open_shop: Shop) -> None:
    """One of them was paid out, the other one was not; the provider's people say which."""
    paid, paid_ticket = open_shop.pay(pay_out, "drop")
    unpaid, unpaid_ticket = open_shop.pay(pay_out, "lose")
    open_shop.await_call(unpaid)
    open_shop.provider.release(unpaid)
    for ticket in (paid_ticket, unpaid_ticket):
        open_shop.await_state(ticket.id, State.DEAD)
    open_shop.ask(f"update payments set state = 'paid', receipt = 'statement of 3 May' where key = '{paid}'")  # noqa: S608
    open_shop.ask(f"update payments set state = 'refused' where key = '{unpaid}'")  # noqa: S608
    for ticket in (paid_ticket, unpaid_ticket):
        open_shop.redrive(ticket)
        open_shop.await_state(ticket.id)

    assert open_shop.counted(paid) == (1, 1)
    assert open_shop.counted(unpaid) == (2, 1)


def test_what_certainly_was_not_done_is_tried_again_and_not_parked(open_shop: Shop) -> None:
    key, ticket = open_shop.pay(pay_out, "throttle")
    assert open_shop.await_state(ticket.id).attempts == 1
    assert open_shop.counted(key) == (2, 1)


# ------------------------------------------------------------------------------------- killed during and after the call


def test_killed_before_the_call_it_is_made_later_or_parked(shop: Shop) -> None:
    """The reservation is there, and nothing has reached the provider; nobody can see that."""
    keys, tickets = zip(*(shop.pay(kind) for kind in (charge, transfer, pay_out)), strict=True)
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections, and reads nothing
        victim = shop.work(url=f"http://127.0.0.1:{deaf.getsockname()[1]}")
        until(lambda: shop.books() == dict.fromkeys(keys, "reserved"), "the reservations")
        victim.kill()
    shop.work()
    shop.await_snooze(tickets[1])
    shop.ask("update payments set called_at = called_at - interval '1 minute'")
    shop.retry_now(tickets[1])
    for ticket, state in zip(tickets, (State.DONE, State.DONE, State.DEAD), strict=True):
        shop.await_state(ticket.id, state)

    assert [shop.counted(key) for key in keys] == [(1, 1), (1, 1), (0, 0)]


def test_killed_while_the_call_is_under_way_it_is_waited_for(shop: Shop) -> None:
    """With keys the repeat is told 409; without, the look-up shows nothing yet, and another call would be a second one.

    No transaction is open meanwhile.
    """
    charged, charge_ticket = shop.pay(charge, "hold")
    transferred, transfer_ticket = shop.pay(transfer, "hold")
    victim = shop.work()
    for key in (charged, transferred):
        shop.await_call(key)
    assert (
        shop.ask("select pid from pg_stat_activity where datname = current_database() and state ~ 'in transaction'")
        == []
    )
    victim.kill()
    shop.work()
    for ticket in (charge_ticket, transfer_ticket):
        shop.await_snooze(ticket)
    for key in (charged, transferred):
        assert shop.provider.charges[key] == 0
        shop.provider.release(key)
        shop.await_work(key)
    shop.retry_now(transfer_ticket)
    for ticket in (charge_ticket, transfer_ticket):
        assert shop.await_state(ticket.id).attempts == 2, "one was spent by the kill, none by waiting"

    assert shop.provider.called(charged) >= 3
    assert shop.provider.charges[charged] == 1
    assert shop.counted(transferred) == (1, 1)


def test_killed_after_the_work_it_is_looked_up_or_parked_where_there_are_no_keys(shop: Shop) -> None:
    transferred, transfer_ticket = shop.pay(transfer, "hang")
    paid_out, pay_out_ticket = shop.pay(pay_out, "hang")
    victim = shop.work()
    for key in (transferred, paid_out):
        shop.await_work(key)
    victim.kill()
    assert shop.books() == {transferred: "reserved", paid_out: "reserved"}
    shop.work()
    shop.await_state(transfer_ticket.id)
    dead = shop.await_state(pay_out_ticket.id, State.DEAD)

    assert "uncertain" in last_failure(dead)
    assert shop.books() == {transferred: "paid", paid_out: "reserved"}
    assert (shop.counted(transferred), shop.counted(paid_out)) == ((1, 1), (1, 1))


@pytest.mark.parametrize(
    ("error", "certain"),
    [
        *((status, True) for status in (400, 401, 402, 403, 404, 429)),
        *((status, False) for status in (408, 409, 422, 500, 502, 503, 504)),
        (httpx.ConnectError("refused"), True),
        (httpx.ConnectTimeout("nobody there"), True),
        (httpx.PoolTimeout("too busy to send it"), True),
        (httpx.ReadTimeout("no answer"), False),
        (httpx.WriteError("while sending"), False),
        (httpx.RemoteProtocolError("hung up"), False),
    ],
    ids=lambda value: value if isinstance(value, int) else type(value).__name__,
)
def test_only_a_clear_no_counts_as_nothing_done(error: int | httpx.HTTPError, certain: bool) -> None:
    if isinstance(error, int):
        request = httpx.Request("POST", "http://provider.example/charges")
        error = httpx.HTTPStatusError("no", request=request, response=httpx.Response(error, request=request))
    assert nothing_was_done(error) is certain


# --------------------------------------------------------------------------------------------------- run again in place


def test_a_confirmation_that_is_run_again_in_place_repeats_the_call_or_is_parked(open_shop: Shop) -> None:
    """The database takes the confirmation back once (40001), and the handler runs again within the same attempt."""
    open_shop.ask(
        "create sequence confirmations;"
        "create function refused_once() returns trigger language plpgsql as $$ begin"
        " if nextval('confirmations') <= 2 then raise exception 'again' using errcode = '40001'; end if;"
        " return new; end $$;"
        "create trigger refused_once before update on payments for each row"
        " when (new.state = 'paid' and new.cents = 40001) execute function refused_once()"
    )
    charged, charge_ticket = open_shop.pay(charge, cents=40001)
    open_shop.await_state(charge_ticket.id)
    open_shop.ask("select setval('confirmations', 1)")
    paid_out, pay_out_ticket = open_shop.pay(pay_out, cents=40001)
    dead = open_shop.await_state(pay_out_ticket.id, State.DEAD)

    assert open_shop.counted(charged) == (3, 1)
    assert open_shop.counted(paid_out) == (1, 1)
    assert dead.attempts == 1
    assert "uncertain" in last_failure(dead)


# ------------------------------------------------------------------------------------------------- as a reader runs it


def test_the_example_charges_every_key_once_and_leaves_nothing_behind(dsn: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "examples.payment.run"],
        cwd=ROOT,
        env=os.environ | {"TENURE_DSN": dsn},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "was killed between a call and its confirmation" in ended.stdout
    payments = sum(run.PAYMENTS.values())
    assert f"{payments} of {payments} keys were charged exactly once" in ended.stdout
    assert "dead: uncertain" in ended.stdout
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select from pg_namespace where nspname like '%example%'").fetchall() == []


def test_the_page_shows_the_example_as_it_is() -> None:
    page = ROOT / "docs/how-to/outside-effects.md"
    shown = [block.text for block in blocks(page) if block.language == "python"]
    source = (ROOT / "examples/payment/jobs.py").read_text("utf-8")
    assert shown
    assert [text for text in shown if text not in source] == []


def last_failure(record: Record) -> str:
    """What the last attempt died of."""
    return str(json.loads(record.history or "[]")[-1]["message"])
