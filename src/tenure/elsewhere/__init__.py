"""Effects in another database than the queue's: PostgreSQL, MySQL, MariaDB or SQLite.

There is no common commit with the job's completion, so a row in that database says that the effect has happened: ``once``.
Where what arrives late may be dropped, the newest version wins: ``apply_if_newer``.
"""

from tenure.elsewhere.block import Once, once
from tenure.elsewhere.newer import aapply_if_newer, apply_if_newer
from tenure.elsewhere.tables import ainstall, aprune, ddl, install, prune

__all__ = [
    "Once",
    "aapply_if_newer",
    "ainstall",
    "apply_if_newer",
    "aprune",
    "ddl",
    "install",
    "once",
    "prune",
]
