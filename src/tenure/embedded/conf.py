"""The one file of ours inside the data directory: ``tenure.conf``, included last and rewritten at each start."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tenure.embedded.account import Account
from tenure.embedded.home import Home
from tenure.errors import ConfigError, EngineError

NAME = "tenure.conf"
_INCLUDE = f"include '{NAME}'"
_LOOPBACK = ("", "127.0.0.1", "::1", "localhost")

_DEFAULTS = {
    # What makes a committed job a kept one.
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    # Room for a queue's churn, without a checkpoint every few seconds.
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    # A page that is changed for the first time after a checkpoint is logged whole: of a queue's, a third is left of it.
    "wal_compression": "pglz",
    # A queue's statements are short: compiling them or spreading them over processes costs more than it brings.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
    "log_min_messages": "warning",
    # Only the socket. Those who ask for 127.0.0.1 get it, and need a password there (pg_hba.conf, by initdb).
    "listen_addresses": "",
    "port": "5432",
}

# What the lifecycle is built on.
_RESERVED = {
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "log_destination",
    "logging_collector",
    "unix_socket_directories",
    "unix_socket_group",
    "unix_socket_permissions",
}


def merged(home: Home, settings: Mapping[str, str]) -> dict[str, str]:
    """Our settings with the caller's on top.

    Raises:
        ConfigError: a name that is none, one the lifecycle depends on, or an address that is not this machine's own.
    """
    for name in settings:
        if not re.fullmatch(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?", name):
            raise ConfigError(f"{name!r} is not the name of a PostgreSQL setting.", hint="Names are lower case.")
        if name in _RESERVED:
            raise ConfigError(f"The embedded PostgreSQL needs {name} as it is.", hint="Leave it out of the settings.")
    if (address := settings.get("listen_addresses", "")) not in _LOOPBACK:
        raise ConfigError(
            f"The embedded PostgreSQL listens on this machine alone, not on {address!r}.",
            hint="127.0.0.1 is possible, with a password (ALTER ROLE tenure PASSWORD ...). For a network run a server.",
        )
    if not settings.get("port", "0").isdigit():
        raise ConfigError(f"{settings['port']!r} is not a port.", hint="Give a number from 1 to 65535.")
    return {**_DEFAULTS, **settings, "unix_socket_directories": str(home.socket_dir)}


def include(data: Path) -> None:
    """Make a new cluster read our file; last, so that it wins."""
    fd = os.open(data / "postgresql.conf", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    try:
        os.write(fd, f"\n{_INCLUDE}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def require_ours(home: Home) -> None:
    """EngineError when the data directory is somebody else's: a mistaken TENURE_HOME must not start, stop or wipe it."""
    try:
        ours = _INCLUDE in (home.data / "postgresql.conf").read_text(errors="replace")
    except FileNotFoundError:
        ours = not home.data.exists()
    if not ours:
        raise EngineError(
            f"{home.data} exists and was not made by Tenure.",
            kept="It was not touched.",
            hint="Set TENURE_HOME to a directory of its own.",
        )


def write(home: Home, settings: Mapping[str, str], user: Account) -> None:
    """Write the file for the server of `user`; ConfigError as `merged`."""
    lines = [f"{name} = {_quoted(value)}\n" for name, value in merged(home, settings).items()]
    text = "# Written by Tenure at each start: changes are lost. Use the `settings` of attach().\n" + "".join(lines)
    path = home.data / NAME
    path.unlink(missing_ok=True)
    # Exclusively: root writes here into a directory of somebody else, who might have laid a symbolic link.
    with path.open("xb") as file:
        file.write(os.fsencode(text))
    user.own(path)


def port(home: Home) -> int:
    """The port the server was last started with; it names the socket even where there is no TCP."""
    try:
        found = re.search(rb"^port = '(\d+)'$", (home.data / NAME).read_bytes(), re.MULTILINE)
    except FileNotFoundError:
        found = None
    return int(found[1] if found else _DEFAULTS["port"])


def _quoted(value: str) -> str:
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"
