"""What is decided about dead letters, carried out page by page: redrive or discard.

One that cannot be redriven as asked (its payload does not fit the other kind) is reported and left where it is; the others
go on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from itertools import count
from typing import Protocol
from uuid import UUID

from tenure.cli import failures, show
from tenure.cli.common import by_queue
from tenure.errors import PayloadTooLarge, Refused, TenureError, UnknownKind
from tenure.faultpoints import point
from tenure.job import Record
from tenure.registered import Registered, find
from tenure.store.jsonb import jsonb_text
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Discard, KindRow, Redrive, Revived

MOST_SHOWN = 20


class Decision(Protocol):
    """What is done with dead letters."""

    done: str

    def check(self, record: Record) -> None:
        """Raise a TenureError if it cannot be done with this one."""

    def act(self, store: PostgresStore, queue: str, records: list[Record]) -> list[UUID]:
        """Do it; answers those it was done with."""


class Discarding:
    """dead -> cancelled (discarded)."""

    done = "discarded"

    def check(self, record: Record) -> None:
        """Any dead letter can be discarded."""

    def act(self, store: PostgresStore, queue: str, records: list[Record]) -> list[UUID]:
        """Discard them."""
        return store.run(Discard(queue, [record.id for record in records]))


class Redriving:
    """dead -> pending.

    Args:
        rows: the kinds the database knows.
        rate: how many a second become available; None is all at once.
        payload: replaces that of the job.
        as_kind: the kind to run them as.
        now: what time it is by the queue's clock.
        may_duplicate: also those whose effects in another database may be forgotten.
        out_of_order: also those that jobs of their ordering key have not waited for.
        max_bytes: limit of the payload's stored text.

    Raises:
        UnknownKind: nobody registered ``as_kind``.
        PayloadTooLarge: ``payload`` is.
    """

    done = "redriven"

    def __init__(
        self,
        rows: list[KindRow],
        *,
        rate: float | None,
        payload: str | None,
        as_kind: str | None,
        max_bytes: int,
        now: datetime,
        may_duplicate: bool = False,
        out_of_order: bool = False,
    ) -> None:
        self._rows = rows
        self._rate = rate
        self._payload = payload
        self._kind = None if as_kind is None else find(rows, as_kind)
        self._max_bytes = max_bytes
        self._now = now
        self._may_duplicate = may_duplicate
        self._out_of_order = out_of_order
        self._places = count()
        self._start = time.monotonic()

    def check(self, record: Record) -> None:
        """See that a changed payload or another kind goes with the rest, and that what it did is not forgotten."""
        self._require_young(record)
        self._require_order(record)
        if self._payload is None and self._kind is None:
            return
        kind = self._kind or find(self._rows, record.kind, record.version)
        payload = record.payload if self._payload is None else self._payload
        kind.check(payload)
        if self._payload is not None and len(jsonb_text(payload).encode()) > self._max_bytes:
            raise PayloadTooLarge(f"The payload has more stored text than {self._max_bytes} bytes.")

    def act(self, store: PostgresStore, queue: str, records: list[Record]) -> list[UUID]:
        """Redrive them, the later ones with a growing delay if there is a rate."""
        kind = self._kind
        name, version = (kind.name, kind.version) if kind else (None, None)
        again, passed = self._may_duplicate, self._out_of_order
        items = [Revived(record.id, self._delay(), self._payload, name, version, again, passed) for record in records]
        point("redrive.before")
        moved = store.run(Redrive(queue, items))
        if moved and self._payload is not None:
            show.note(_about_its_effect(kind or find(self._rows, records[0].kind, records[0].version), records[0]))
        return moved

    def _require_young(self, record: Record) -> None:
        """A worker would not run it either; here somebody can still decide otherwise."""
        if self._may_duplicate or record.first_claimed_at is None:
            return
        ttl = self._once_ttl(record.kind)
        age = (self._now - record.first_claimed_at).total_seconds()
        if ttl is not None and age >= ttl:
            raise Refused(
                f"It was first claimed {show.span(age)} ago; effects of its kind in other databases are remembered for"
                f" {show.span(ttl)}, and what it did may be done again.",
                kept="",
                hint="If that does no harm: --may-duplicate",
            )

    def _require_order(self, record: Record) -> None:
        """One that the others have passed would come after jobs that were accepted later."""
        if record.order_key is not None and not record.blocks and not self._out_of_order:
            raise Refused(
                f"Jobs of its ordering key {record.order_key!r} have not waited for it: it would run out of order.",
                kept="",
                hint="If that does no harm: --out-of-order",
            )

    def _once_ttl(self, name: str) -> float | None:
        """That of the kind which will run it, as its newest version declares it."""
        try:
            return (self._kind or find(self._rows, name)).once_ttl
        except UnknownKind:
            return None

    def _delay(self) -> float:
        if self._rate is None:
            return 0.0
        return max(0.0, next(self._places) / self._rate - (time.monotonic() - self._start))


def _about_its_effect(kind: Registered, record: Record) -> str:
    """What other arguments mean for it: a natural key is made of them anew, an idempotency key stays what it was."""
    if kind.has_natural_key:
        return (
            f"The effect of this job is unique by the natural key that {kind.name} makes of its arguments. If these make"
            " another key, it is another effect; what was done under the old key is not undone."
        )
    return (
        f"The effect of this job stays unique by its original key: what it did for {_key(record)} before,"
        " it will not do again with other arguments."
    )


def _key(record: Record) -> str:
    return str(record.id) if record.key is None else f"key {record.key!r}"


class Tally:
    """What came of a decision: how many of each queue, kind and reason it was done with, and how many it was not."""

    def __init__(self, *, as_json: bool) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.refused = 0
        self.missed = 0
        self._as_json = as_json

    @property
    def done(self) -> int:
        """How many it was done with."""
        return self.counts.total()

    def refuse(self, id: UUID, error: TenureError) -> None:
        """Report one that it cannot be done with."""
        self.refused += 1
        if self.refused > MOST_SHOWN:
            return
        if self._as_json:
            failures.report(error, as_json=True, id=id)
        else:
            show.error(f"{id}: {error.what}", [f"  {error.hint}"] if error.hint else [])

    def add(self, records: list[Record], ids: Iterable[UUID]) -> None:
        """Count those it was done with; the others somebody else has taken meanwhile."""
        done = set(ids)
        self.missed += len(records) - len(done)
        self.counts.update((r.queue, r.kind, r.reason or "") for r in records if r.id in done)


def decide(
    store: PostgresStore, pages: Iterable[list[Record]], decision: Decision, tally: Tally, *, dry_run: bool
) -> None:
    """Carry a decision out, page by page; with ``dry_run`` only count."""
    with show.progress() as bar:
        for page in pages:
            for queue, records in by_queue(_possible(page, decision, tally)).items():
                ids = [record.id for record in records] if dry_run else decision.act(store, queue, records)
                tally.add(records, ids)
            bar(decision.done, tally.done)


def _possible(page: list[Record], decision: Decision, tally: Tally) -> list[Record]:
    found = []
    for record in page:
        try:
            decision.check(record)
        except TenureError as error:
            tally.refuse(record.id, error)
        else:
            found.append(record)
    return found
