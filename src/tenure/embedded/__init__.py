"""A real PostgreSQL out of a wheel, for development, tests and small installations.

`attach` finds the server of a base directory or starts it, from any number of processes at once; `Engine.close`, the
end of the process or its SIGKILL gives the share back. When nobody uses the server any more, a small detached watcher
stops it. Nobody keeps lists of users: each holds a shared flock, which the kernel drops (`home`, `watch`). The server
has everything on disk, runs with fsync on, and listens on a Unix socket that only its owner can enter (`conf`).

A process forked from a user is a user too, until it ends or closes the engine itself: it inherited the address and a
copy of the descriptor. A program started with `subprocess` is not, and attaches for itself.
"""

from tenure.embedded.engine import Engine, attach
from tenure.embedded.home import default_base
from tenure.embedded.manage import Status, start, status, stop, wipe

__all__ = ["Engine", "Status", "attach", "default_base", "start", "status", "stop", "wipe"]
