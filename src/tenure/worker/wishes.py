"""The signals that ask a process to end."""

from __future__ import annotations

import signal


def wishes() -> tuple[signal.Signals, ...]:
    """SIGTERM, Ctrl-C, and SIGHUP, which is the end of the terminal: that one where it is not ignored, as nohup has it."""
    heard = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if heard else []))
