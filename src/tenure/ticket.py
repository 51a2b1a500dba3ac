"""What a producer holds of an accepted job: enough to find it again and to wait for its result."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tenure import jsontext
from tenure.errors import JobFailed, Refused, ResultUnavailable, ServerUnsuitable
from tenure.job import Answer, Record, State
from tenure.policy import Duration, duration
from tenure.store.protocol import Follow, KeyRecord, LookUpKey, Whereabouts

if TYPE_CHECKING:
    from tenure.app import Tenure

_PAUSES = (0.005, 0.5)
"""Seconds between two looks at a job that somebody waits for, first and longest."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a producer holds of an accepted job.

    Args:
        queue: the job's queue.
        id: the job.
        answer: ``new``; ``same`` when the key's job was there already; ``replaced`` when it was and now has this content.
            From ``enqueue_many`` also ``conflict``, ``too_large`` and ``no_result``, which stored nothing.
        state: its state when the ticket was made.
        key: its idempotency key.
        result_text: JSON text of its result, if it had ended with one when the ticket was made.
    """

    queue: str
    id: UUID
    answer: Answer
    state: State
    key: str | None
    result_text: str | None = field(repr=False)
    _app: Tenure = field(repr=False, compare=False)
    _joined: bool = field(default=False, repr=False, compare=False)

    async def look_up(self) -> Record | None:
        """What has become of the job; None when it is not known any more."""
        return await self._app.look_up(self.id)

    def look_up_sync(self) -> Record | None:
        """The same from a thread."""
        return self._app.look_up_sync(self.id)

    async def result(self, timeout: Duration | None = None) -> Any:
        """Wait for the job's end; what its handler returned, as JSON values.

        Args:
            timeout: longest wait (seconds, timedelta, ``"30s"``); None waits as long as it takes, a dead letter's
                redrive not included.

        Raises:
            Refused: the ticket is of a request that stored nothing.
            JobFailed: it ended dead or cancelled.
            ResultUnavailable: it is done, and its result is not there: it could not be stored, or is not kept any more.
            TimeoutError: it has not ended in time; it goes on, and can be waited for again.
            As the store's own errors.
        """
        self._require_stored()
        door = await self._app.ready()
        for pause in self._pauses(timeout):
            where = (await door.arun(Follow(self.queue, [self.id])))[self.id]
            if where.state is None and self.key is not None:
                where = self._by_key(await door.arun(LookUpKey(self.queue, self.key)), where.kept)
            if where.state in (State.DEAD, State.CANCELLED):
                raise self._failed(where, await self._seen())
            if self._ended(where) and not self._awaits_commit(where):
                return self._value(where)
            await asyncio.sleep(pause)
        raise self._late(timeout, where)

    def result_sync(self, timeout: Duration | None = None) -> Any:
        """The same from a thread."""
        self._require_stored()
        door = self._app.door
        for pause in self._pauses(timeout):
            where = door.run(Follow(self.queue, [self.id]))[self.id]
            if where.state is None and self.key is not None:
                where = self._by_key(door.run(LookUpKey(self.queue, self.key)), where.kept)
            if where.state in (State.DEAD, State.CANCELLED):
                raise self._failed(where, self._seen_sync())
            if self._ended(where) and not self._awaits_commit(where):
                return self._value(where)
            time.sleep(pause)
        raise self._late(timeout, where)

    async def _seen(self) -> Record | None:
        """What may be known of a job that failed: a producer's role reads no histories, and that it failed is the news."""
        try:
            return await self.look_up()
        except ServerUnsuitable:
            return None

    def _seen_sync(self) -> Record | None:
        try:
            return self.look_up_sync()
        except ServerUnsuitable:
            return None

    def _pauses(self, timeout: Duration | None) -> Iterator[float]:
        end = None if timeout is None else time.monotonic() + duration(timeout)
        pause = _PAUSES[0]
        while end is None or time.monotonic() < end:
            yield pause if end is None else max(0.0, min(pause, end - time.monotonic()))
            pause = min(2 * pause, _PAUSES[1])
        yield 0.0  # a last look, when time is over

    def _by_key(self, held: KeyRecord | None, kept: bool) -> Whereabouts:
        """What the key's row remembers, where it is still this job's."""
        if held is None or held.job_id != self.id:
            return Whereabouts(None, None, kept)
        return Whereabouts(held.state or State.RUNNING, held.result, kept=True)

    def _ended(self, where: Whereabouts) -> bool:
        return where.state is None or State(where.state).ended

    def _awaits_commit(self, where: Whereabouts) -> bool:
        """Whether it may be there once the transaction commits that it was enqueued in."""
        return where.state is None and self._joined and self.answer == "new" and where.kept

    def _require_stored(self) -> None:
        if self.answer in ("conflict", "too_large", "no_result"):
            raise Refused(
                f"There is no result to wait for: the answer to this request was {self.answer}.",
                hint="Look at the answers of enqueue_many before you wait.",
            )

    def _value(self, where: Whereabouts) -> Any:
        if where.state is None:
            raise ResultUnavailable(
                f"Job {self.id} is not known any more: it has ended, and its queue no longer keeps it"
                f"{'; or its transaction has not committed' if self._joined else ''}.",
                hint="A job with an idempotency key keeps its result with the key; see also the queue's retention.",
            )
        value = None if where.result is None else json.loads(where.result)
        if why := jsontext.why_not_stored(value):
            raise ResultUnavailable(
                f"Job {self.id} is done, but its result could not be stored: {why}", kept="What it has done stands."
            )
        return value

    def _failed(self, where: Whereabouts, record: Record | None) -> JobFailed:
        history = json.loads(record.history) if record and record.history else []
        return JobFailed(
            job_id=str(self.id),
            state=str(where.state),
            reason=record.reason if record else None,
            failure=history[-1] if history and where.state == State.DEAD else None,
        )

    def _late(self, timeout: Duration | None, where: Whereabouts) -> TimeoutError:
        seconds = f"{duration(timeout or 0):g} s"
        if where.state is None:
            return TimeoutError(
                f"job {self.id} is not there within {seconds}: its transaction has not committed, or never will"
            )
        return TimeoutError(
            f"job {self.id} has not ended within {seconds}: it is {where.state}, and can be waited for again"
        )
