"""A worker process under a supervisor: ``python -m tenure.worker SUPERVISOR_PID``, its options on standard input.

Standard input is a socket: what keeps the worker from working at all goes back on it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

from tenure.errors import ConfigError, TenureError
from tenure.inert import safe
from tenure.worker.main import main
from tenure.worker.options import Options
from tenure.worker.supervisor import refuse

_LOOK = 0.5  # seconds between two looks at the supervisor


def _follow(supervisor: int) -> None:
    while os.getppid() == supervisor:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGTERM)


def _run() -> int:
    told = json.load(sys.stdin)
    target = told.pop("target")
    threading.Thread(target=_follow, args=(int(sys.argv[1]),), name="tenure-supervisor", daemon=True).start()
    try:
        return main(target, Options(**{**told, "queues": tuple(told["queues"])}))
    except ConfigError as error:
        return refuse(error)
    except TenureError as error:
        sys.stderr.write(f"{safe(error)}\n")
        return 1


if __name__ == "__main__":
    sys.exit(_run())
