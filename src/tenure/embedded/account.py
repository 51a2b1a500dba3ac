"""Which operating system user runs the server, and what that user can reach.

PostgreSQL refuses to run as root. As root the server is run by the owner of the data, else by ``postgres``, else by
``nobody``. No user is added, and no directory that is not ours is opened to others.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure.errors import EngineError

_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")


def bare_environment() -> dict[str, str]:
    """What programs of the server get of our environment: no ``PG*``, and no secrets for another user to read."""
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | {"LC_ALL": "C"}


@dataclass(frozen=True)
class Account:
    """The user that runs the server."""

    uid: int
    gid: int
    name: str

    def popen(self) -> dict[str, Any]:
        """Arguments with which `subprocess` runs a program as this user."""
        if os.geteuid() != 0:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Hand `path` to this user."""
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def reaches(self, path: Path) -> bool:
        """True when this user can enter or run `path`."""
        if os.geteuid() != 0:
            return os.access(path, os.X_OK)
        test = ["/bin/sh", "-c", 'test -x "$0"', str(path)]  # the kernel's answer, ACLs and all
        return subprocess.run(test, cwd="/", env={}, check=False, **self.popen()).returncode == 0  # noqa: S603

    def require(self, base: Path) -> None:
        """EngineError unless this user can enter the base directory."""
        if not self.reaches(base):
            raise EngineError(
                f"The user {self.name}, who runs PostgreSQL because root cannot, may not enter {base}.",
                kept="Nothing was started.",
                hint="Set TENURE_HOME to a directory below ones that everybody can enter, such as /var/lib/tenure.",
            )


def account(data: Path) -> Account:
    """Who runs the server of `data`: we, or as root the owner of the data, else ``postgres``, else ``nobody``."""
    if os.geteuid() != 0:
        return _ourselves()
    if data.exists():
        return _owner(data)
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return _known(pwd.getpwnam(name))
    raise EngineError(
        "PostgreSQL does not run as root, and there is neither a user postgres nor nobody.",
        kept="Nothing was created.",
        hint="Run as another user, or add one: useradd --system postgres",
    )


def _ourselves() -> Account:
    try:
        return _known(pwd.getpwuid(os.geteuid()))
    except KeyError:
        raise EngineError(
            f"The user id {os.geteuid()} has no name, and initdb needs one.",
            kept="Nothing was created.",
            hint="Add an entry to /etc/passwd, or run as a user who has one.",
        ) from None


def _owner(data: Path) -> Account:
    state = data.stat()
    if state.st_uid == 0:
        raise EngineError(
            f"{data} belongs to root, and PostgreSQL does not run as root.",
            kept="The data was not touched.",
            hint=f"Give it to the user who shall run it: chown -R postgres {data}",
        )
    try:
        return _known(pwd.getpwuid(state.st_uid))
    except KeyError:  # a number without a name, as in a volume from another machine
        return Account(state.st_uid, state.st_gid, f"#{state.st_uid}")


def _known(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name)
