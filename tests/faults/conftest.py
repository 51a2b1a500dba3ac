"""Servers that a test may treat badly, and workers on them: those of the tests of workers."""

from __future__ import annotations

from tests.worker.conftest import app as app
from tests.worker.conftest import bench as bench
from tests.worker.conftest import engine as engine
from tests.worker.conftest import home as home
from tests.worker.conftest import own_bench as own_bench
from tests.worker.conftest import settings as settings
