"""A MariaDB server, where one can be reached: databases of a test's own on it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pymysql

from tests.conftest import missing

_URL = urlsplit(os.environ.get("TENURE_TEST_MARIADB", "mysql://root@127.0.0.1:3306"))

ADDRESS: dict[str, Any] = {
    "host": _URL.hostname or "127.0.0.1",
    "port": _URL.port or 3306,
    "user": _URL.username or "root",
    "password": _URL.password or "",
}
"""What PyMySQL and aiomysql are told."""

_numbers = itertools.count()


@contextmanager
def a_database() -> Iterator[str]:
    """A new database; answers its name. It goes at the end, with whatever is still open on it."""
    name = f"tenure_{os.getpid()}_{next(_numbers)}"
    try:
        admin = pymysql.connect(**ADDRESS, autocommit=True)
    except pymysql.err.OperationalError as error:
        missing(f"no MariaDB can be reached: {error}")
        raise
    with admin, admin.cursor() as cursor:
        cursor.execute(f"create database {name}")
        try:
            yield name
        finally:
            cursor.execute(f"select id from information_schema.processlist where db = '{name}'")  # noqa: S608 - ours
            for (id,) in cursor.fetchall():
                with suppress(pymysql.err.OperationalError):  # it has gone by itself
                    cursor.execute(f"kill {id}")
            cursor.execute(f"drop database {name}")


def connect(database: str, **more: Any) -> pymysql.Connection[Any]:
    """A connection of PyMySQL."""
    return pymysql.connect(**ADDRESS, database=database, **more)


def url(database: str, driver: str) -> str:
    """What SQLAlchemy is told."""
    user = f"{ADDRESS['user']}:{ADDRESS['password']}" if ADDRESS["password"] else ADDRESS["user"]
    return f"mysql+{driver}://{user}@{ADDRESS['host']}:{ADDRESS['port']}/{database}"
