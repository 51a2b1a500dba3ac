"""Twenty payments through a provider that fails after it has done the work, and a worker that is killed before it confirms.

Run it from the root of the repository with ``make example-payment``, or ``python -m examples.payment.run``. It uses the
embedded PostgreSQL, or the server that ``$TENURE_DSN`` names, in a schema of its own that is dropped at the end. It ends
with 0 if a worker was killed, each key was charged exactly once and each job has ended; else with 1.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from examples.payment.jobs import TABLE, app, charge, pay_out, transfer
from examples.payment.provider import Fault, Provider
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from tenure import Kind, Record, State, Ticket, embedded

ROOT = Path(__file__).parents[2]

PAYMENTS: dict[Kind, int] = {charge: 12, transfer: 6, pay_out: 2}
FAULTS: dict[str, tuple[Fault, ...]] = {
    "payments/charge/order-2": ("error",),
    "payments/charge/order-4": ("drop", "error"),
    "payments/charge/order-6": ("hang",),
    "payments/charge/order-8": ("throttle", "drop"),
    "payments/transfer/order-14": ("drop",),
    "payments/transfer/order-16": ("error",),
    "payouts/pay_out/order-20": ("drop",),
}
KILL_AT = 4
"""How often the first worker comes to confirm a payment; there it is killed, with whatever else it was doing."""

TIMEOUT = "1.5"
"""Seconds that a call waits for its answer."""

_PATIENCE = 90.0  # seconds after which what has not ended will not
_LOOK = 0.1


def main() -> int:
    """Run it; answers the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up as after Ctrl-C
    with ExitStack() as stack:
        dsn = os.environ.get("TENURE_DSN") or stack.enter_context(embedded.attach()).dsn
        dsn, schema = stack.enter_context(own_schema(dsn))
        provider = stack.enter_context(Provider())
        stack.enter_context(app)
        app.point_at(dsn, schema)
        app.migrate()
        for key, faults in FAULTS.items():
            provider.plan(key, *faults)
        tickets = enqueued()
        say(f"{len(tickets)} payments accepted; the provider fails after the work for {len(FAULTS)} of them")
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        environment = os.environ | {
            "TENURE_DSN": dsn,
            "TENURE_SCHEMA": schema,
            "PAYMENT_URL": provider.url,
            "PAYMENT_TIMEOUT": TIMEOUT,
        }
        killed = until_killed(environment, log)
        records = until_ended(tickets, environment, log)
        if told(records, provider) and killed:
            return 0
        say(log.read_text()[-4000:])
        return 1


def enqueued() -> dict[str, Ticket]:
    """Accept the payments; answers their tickets by idempotency key."""
    kinds = [kind for kind, number in PAYMENTS.items() for _ in range(number)]
    return {
        f"{kind.queue}/{kind.name}/order-{order}": kind.enqueue_sync(
            order_id=order, cents=order * 100, key=f"order-{order}"
        )
        for order, kind in enumerate(kinds, 1)
    }


def until_killed(environment: dict[str, str], log: Path) -> bool:
    """One worker until it is killed; whether it was."""
    fault = {"TENURE_FAULTS": f"effect.before_dedup=kill@{KILL_AT}"}
    end = time.monotonic() + _PATIENCE
    with worker(environment | fault, log, "--queues", "payments") as victim:
        while victim.poll() is None and time.monotonic() < end:
            time.sleep(_LOOK)
        if victim.returncode != -signal.SIGKILL:
            say(f"worker {victim.pid} should have been killed, and was not")
            return False
    say(f"worker {victim.pid} was killed between a call and its confirmation; another one goes on")
    return True


def until_ended(tickets: dict[str, Ticket], environment: dict[str, str], log: Path) -> dict[str, Record]:
    """Another worker until every job has ended; what has become of the jobs."""
    end = time.monotonic() + _PATIENCE
    with worker(environment, log) as survivor:
        while True:
            records = looked_up(tickets)
            ended = all(record.state.ended for record in records.values())
            if ended or survivor.poll() is not None or time.monotonic() > end:
                return records
            time.sleep(_LOOK)


def looked_up(tickets: dict[str, Ticket]) -> dict[str, Record]:
    """What has become of the jobs by now."""
    records = {key: ticket.look_up_sync() for key, ticket in tickets.items()}
    return {key: record for key, record in records.items() if record is not None}


def told(records: dict[str, Record], provider: Provider) -> bool:
    """Print what happened to each key; whether all is well."""
    table = Table("key", Column("calls", justify="right"), Column("charges", justify="right"), "state", box=SIMPLE_HEAD)
    for key, record in records.items():
        table.add_row(key, str(provider.called(key)), str(provider.charges[key]), ended_how(record))
    Console().print(table)
    once = sum(provider.charges[key] == 1 for key in records)
    ended = sum(record.state.ended for record in records.values())
    say(f"{once} of {len(records)} keys were charged exactly once, {ended} of {len(records)} jobs have ended")
    return once == ended == sum(PAYMENTS.values())


def ended_how(record: Record) -> str:
    """The state of a job, and of a dead one the first words of why."""
    if record.state != State.DEAD:
        return record.state
    failures = json.loads(record.history or "[]")
    return f"dead: {failures[-1]['message'].partition(':')[0]}" if failures else "dead"


@contextmanager
def worker(environment: dict[str, str], log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process, told to stop at the end, and made to if it does not."""
    command = [sys.executable, "-m", "tenure", "worker", "examples.payment.jobs:app", "--grace", "5s", *options]
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - our own module
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def own_schema(dsn: str) -> Iterator[tuple[str, str]]:
    """A schema for the queue and the payments, gone afterwards; a DSN that finds the table there, and the schema's name."""
    schema = f"tenure_example_payment_{os.getpid()}"
    given = conninfo_to_dict(dsn).get("options") or ""
    own = make_conninfo(dsn, options=f"{given} -c search_path={schema}".strip())
    with psycopg.connect(own, autocommit=True) as conn:
        conn.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        conn.execute(TABLE)
        try:
            yield own, schema
        finally:
            conn.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))


def say(line: str) -> None:
    """One line, at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
