"""Enqueues a file of jobs: the good lines are accepted, the bad ones reported by number.

A block of lines is read, checked and accepted, one statement for each kind and queue in it, before the next is read. So
memory is bounded, and when the database goes away everything before a known line is settled: what the error says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from tenure.bounds import Refusals
from tenure.cli import failures, show
from tenure.cli.enqueue import Given
from tenure.cli.lines import Line, Offer, lines, parsed
from tenure.errors import Refused, TenureError
from tenure.job import Accepted, NewJob
from tenure.offer import accept, refusal
from tenure.registered import Registered, find
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Accept, KindRow

BLOCK = 1000
BLOCK_BYTES = 8 * 1024 * 1024
MOST_SHOWN = 20


class Bulk:
    """One run over a file.

    Args:
        rows: the kinds the database knows.
        max_bytes: limit of a payload's stored text.
        as_json: bad lines are reported as JSON.
    """

    def __init__(
        self, store: PostgresStore, rows: list[KindRow], given: Given, *, max_bytes: int, as_json: bool
    ) -> None:
        self.counts: Counter[str] = Counter(new=0, same=0, refused=0)
        self._store = store
        self._rows = rows
        self._given = given
        self._max_bytes = max_bytes
        self._as_json = as_json
        self._kinds: dict[str, Registered] = {}

    def run(self, file: BinaryIO, size: int | None) -> None:
        """Accept what can be; ``size`` in bytes is for the progress bar.

        Raises:
            StoreUnavailable, OutcomeUnknown: the database went away; a note on stderr says how far it got.
        """
        settled = 0
        block: list[Line] = []
        try:
            with show.progress() as bar:
                for block in _blocks(lines(file)):
                    self._accept(block)
                    settled = block[-1].number
                    bar("bytes", block[-1].read, size)
        except BaseException:
            show.note(_how_far(settled, block))
            raise

    def _accept(self, block: list[Line]) -> None:
        refused: dict[int, TenureError] = {}
        try:
            for op, numbers in self._batches(block, refused):
                try:
                    answers = accept(self._store, op, Refusals())
                except Refused as error:
                    refused |= dict.fromkeys(numbers, error)
                else:
                    self._count(op, numbers, answers, refused)
        finally:
            self._report(refused)

    def _batches(self, block: list[Line], refused: dict[int, TenureError]) -> Iterator[tuple[Accept, list[int]]]:
        """The operations for a block, each with the numbers of its lines; what cannot be offered is refused."""
        batches: dict[tuple[Registered, str], list[tuple[int, NewJob]]] = {}
        for line in block:
            try:
                offer = parsed(line)
                kind = self._kind(offer)
                kind.check(offer.job.payload)
                queue = offer.queue or self._given.queue or kind.queue
            except TenureError as error:
                refused[line.number] = error
            else:
                batches.setdefault((kind, queue), []).append((line.number, offer.job))
        for (kind, queue), jobs in batches.items():
            yield (
                kind.accept([job for _, job in jobs], max_bytes=self._max_bytes, queue=queue),
                [number for number, _ in jobs],
            )

    def _kind(self, offer: Offer) -> Registered:
        name = offer.kind or self._given.kind
        if name is None:
            raise Refused(
                "The line names no kind.", hint='Write {"kind": ...}, or name it: tenure enqueue KIND --from.'
            )
        if name not in self._kinds:
            self._kinds[name] = find(self._rows, name, self._given.version)
        return self._kinds[name]

    def _count(self, op: Accept, numbers: list[int], answers: list[Accepted], refused: dict[int, TenureError]) -> None:
        for number, job, accepted in zip(numbers, op.jobs, answers, strict=True):
            if told := refusal(op, job, accepted):
                refused[number] = told
            else:
                self.counts[accepted.answer] += 1

    def _report(self, refused: dict[int, TenureError]) -> None:
        for number, error in sorted(refused.items()):
            self.counts["refused"] += 1
            if self.counts["refused"] > MOST_SHOWN:
                continue
            if self._as_json:
                failures.report(error, as_json=True, line=number)
            else:
                show.error(f"line {number}: {error.what}", [f"  {error.hint}"] if error.hint else [])


def _blocks(source: Iterable[Line]) -> Iterator[list[Line]]:
    block: list[Line] = []
    size = 0
    for line in source:
        block.append(line)
        size += len(line.text or b"")
        if len(block) >= BLOCK or size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _how_far(settled: int, block: list[Line]) -> str:
    begun = block and block[-1].number > settled
    open_lines = f"some of lines {block[0].number} to {block[-1].number} may be accepted, " if begun else ""
    return (
        f"Stopped: up to line {settled} everything is settled, {open_lines}nothing after that is. Lines with a key"
        " can be enqueued again: that never stores a second job."
    )
