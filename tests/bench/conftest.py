"""What benchmarks leave behind, which is to be nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psycopg
import pytest

from tenure.bench.server import PREFIX

on_linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="what is known of processes is known on Linux alone")


def schemas(dsn: str) -> list[str]:
    """Schemas of benchmarks in a database."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        found = conn.execute("select nspname from pg_namespace where starts_with(nspname, %s)", [PREFIX]).fetchall()
    return [name for (name,) in found]


def processes(word: str) -> list[int]:
    """Processes whose command line or environment has a word in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if word.encode() in said:
                    found.append(int(entry.name))
    return found
