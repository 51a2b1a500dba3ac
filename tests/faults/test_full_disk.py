"""The volume of the server is full: what was accepted is there, and done, when there is space again."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tenure import TenureError, embedded
from tests.apps import load as app
from tests.faults.outage import bear
from tests.faults.volume import Volume, all_of_it, its_log, mounted
from tests.worker.busy import Load
from tests.worker.processes import Bench

Server = Callable[[Volume, Path], AbstractContextManager[embedded.Engine]]


@pytest.mark.parametrize("server", [all_of_it, its_log])
def test_what_was_accepted_is_done_when_a_full_volume_has_space_again(
    home: Path, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers are told, workers wait with patience, and all go on by themselves once the server does."""
    monkeypatch.setattr("tenure.store.postgres._PATIENCE", 1.0)  # of a producer, with a server that does not come back
    with (
        mounted(home.with_name(f"{home.name}-volume")) as volume,
        server(volume, home) as engine,
        contextlib.closing(Bench(engine.dsn, tmp_path)) as bench,
    ):
        load = Load(bench)
        load.offer(plain=200, effects=40)
        worker = load.start(concurrency=4)
        load.goes_on()
        volume.fill()
        while _accepts_more(load):
            pass
        bear([worker], 2.0)
        assert "No space left on device" in (engine.data.parent / "server.log").read_text()

        volume.heal()
        engine.ensure()  # one that could not write its log has stopped
        load.offer(plain=20)
        load.is_done()
        assert worker.alive


def _accepts_more(load: Load) -> bool:
    """Whether the queue still takes some jobs of a hundred kilobytes; who is told no may have been heard all the same."""
    try:
        tickets = app.bulky.enqueue_many_sync([{"text": secrets.token_hex(50_000)} for _ in range(10)])
    except TenureError:
        load.promised_all = False
        return False
    load.ids |= {ticket.id for ticket in tickets}
    return True
