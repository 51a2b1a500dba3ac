"""Where something is tried out: a server that is gone afterwards, however it ends, or a database that somebody names.

Ctrl-C, SIGTERM and SIGHUP are heard, and what clears up is not disturbed. ``$TENURE_DSN`` is not looked at: nobody's queue
is to be filled by accident.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from tenure import embedded
from tenure.embedded.engine import Engine
from tenure.errors import ServerUnsuitable, StoreUnavailable
from tenure.store.connections import connect
from tenure.store.pooler import sessions_are_shared
from tenure.worker.wishes import wishes


@contextmanager
def temporary(settings: Mapping[str, str] | None = None) -> Iterator[Engine]:
    """A server in a temporary directory, for the length of the block; nothing is left of it.

    Args:
        settings: as ``embedded.attach``.

    Raises:
        EngineError: none can be started here.
    """
    home = Path(tempfile.mkdtemp(prefix="tenure-"))
    home.chmod(0o711)  # as root, the server runs as another user, who must get in
    try:
        with embedded.attach(home / "pg", settings=settings) as engine:
            yield engine
    finally:
        with undisturbed():
            embedded.wipe(home / "pg", force=True)
            shutil.rmtree(home, ignore_errors=True)


def require_there(dsn: str) -> None:
    """See that a database that somebody named can be used, and that its sessions are those of our connections.

    Raises:
        StoreUnavailable, ServerUnsuitable, ConfigError: it cannot, or there is a pooler in transaction mode before it.
    """
    try:
        with closing(connect(dsn)) as conn:
            if sessions_are_shared(conn, dsn):
                raise ServerUnsuitable(
                    "There is a pooler in transaction mode before the server.",
                    kept="Nothing was done.",
                    hint="Name the server itself with --dsn: what is tried out here are its own sessions, whatever"
                    " $TENURE_POOLER says.",
                )
    except (StoreUnavailable, ServerUnsuitable) as error:
        error.hint = error.hint.replace(" ($TENURE_DSN)", "")  # which is not looked at here
        raise


@contextmanager
def undisturbed() -> Iterator[None]:
    """Clear up without being interrupted: Ctrl-C, SIGTERM and SIGHUP are ignored for the length of the block."""
    with _handling(signal.SIG_IGN):
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP are what Ctrl-C is: they would leave a schema behind."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    with _handling(interrupt):
        yield


@contextmanager
def _handling(handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not heard here
        return
    before = {number: signal.signal(number, handler) for number in wishes()}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
