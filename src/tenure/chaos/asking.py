"""Writes down what a worker asks the queue to do with the jobs that it holds: each settlement, before it is sent.

So there is evidence outside the database of who wanted a job to be completed, given up or given back, under which lease.
What was written and never sent, because its process was killed in between, does no harm: the checker looks for what the
queue took and nobody asked for.

An effect that was undone and is to be made again in place is told, too: its handler runs twice under one lease, and that
is as it should be.
"""

from __future__ import annotations

from typing import Any

from tenure.chaos.ledger import Ledger
from tenure.effects.attempt import Attempt
from tenure.effects.company import Companies
from tenure.effects.effect import AloneError
from tenure.effects.run import Effects, wants_again
from tenure.worker.leases import Held
from tenure.worker.outcome import Asked
from tenure.worker.settler import Item, Settler


def write_down(ledger: Ledger) -> None:
    """From now on, all that this process asks for."""
    put, put_all = Settler.put, Settler.put_all

    def telling(self: Settler, held: Held, asked: Asked) -> None:
        _note(ledger, held, asked[0])
        put(self, held, asked)

    def telling_all(self: Settler, op: Any, items: list[Item]) -> None:
        for held, _ in items:
            _note(ledger, held, op)
        put_all(self, op, items)

    Settler.put = telling  # type: ignore[method-assign]
    Settler.put_all = telling_all  # type: ignore[method-assign]
    Effects._once = _telling_what_is_undone(ledger, Effects._once)  # type: ignore[method-assign]
    Companies.run = _telling_what_is_undone(ledger, Companies.run)  # type: ignore[method-assign]


def _telling_what_is_undone(ledger: Ledger, made: Any) -> Any:
    """Around what makes an effect."""

    async def telling(self: Any, attempt: Attempt, **more: Any) -> Any:
        try:
            return await made(self, attempt, **more)
        except (Exception, AloneError) as error:
            if isinstance(error, AloneError) or wants_again(error):
                job = attempt.effect.job
                ledger.note("undone", id=str(job.id), claim=job.claims)
            raise

    return telling


def _note(ledger: Ledger, held: Held, op: type[Any]) -> None:
    job = held.job
    ledger.note("asked", id=str(job.id), claim=job.claims, token=str(held.token), what=op.__name__.lower())
