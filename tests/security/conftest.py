"""Commands and workers, as their own tests have them."""

from __future__ import annotations

from tests.cli.conftest import cli as cli
from tests.cli.conftest import store as store
from tests.worker.conftest import bench as bench
