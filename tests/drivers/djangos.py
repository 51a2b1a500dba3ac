"""Django without a project: settings that know no database until a test lends it one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

urlpatterns: list[Any] = []
"""What a test serves."""


def set_up() -> None:
    """Once for each process: Django's settings cannot be undone."""
    if not settings.configured:
        settings.configure(USE_TZ=True, ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, LOGGING_CONFIG=None)
        django.setup()


@contextmanager
def a_database(wanted: dict[str, Any], alias: str = "default") -> Iterator[None]:
    """Django's database of that alias, for the length of the block; ``wanted`` is its entry of ``DATABASES``."""
    set_up()
    known = connections.settings
    before, connected = known.get(alias), getattr(connections._connections, alias, None)
    known[alias] = connections.configure_settings({"default": {}, alias: dict(wanted)})[alias]
    connections[alias] = connections.create_connection(alias)
    try:
        yield
    finally:
        connections[alias].close()
        del connections[alias], known[alias]
        if before is not None:
            known[alias] = before
        if connected is not None:
            connections[alias] = connected


def postgres(dsn: str) -> dict[str, Any]:
    """The entry of ``DATABASES`` for a PostgreSQL."""
    given = conninfo_to_dict(dsn)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": given["dbname"],
        "USER": given["user"],
        "HOST": given["host"],
        "PORT": given["port"],
    }
