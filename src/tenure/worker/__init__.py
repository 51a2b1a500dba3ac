"""Workers: they claim jobs, run their handlers, keep the leases alive, settle, and sweep up after the dead.

    claimer ──▶ runner ──▶ attempt / children      one event loop
       │           │             │
       ▼           ▼             ▼
    leases ◀── heartbeat      settler              leases: what this process holds; heartbeat: a thread of its own

``worker`` puts them together and takes them apart, ``watch`` stops what can no longer be kept, ``housekeeping`` sweeps;
``supervisor`` runs several.
"""

from tenure.worker.main import main
from tenure.worker.options import Exit, Options
from tenure.worker.worker import Worker

__all__ = ["Exit", "Options", "Worker", "main"]
