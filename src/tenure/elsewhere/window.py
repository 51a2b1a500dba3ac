"""How long a job's effects in other databases are remembered, and what happens to jobs that are older than that.

The row of an effect is made after its job was claimed for the first time, and kept for ``once_ttl`` and a day. So as long
as no attempt begins ``once_ttl`` after the first claim or later, the row of an earlier attempt is still there. The queue's
own clock says how old a job was when it was claimed, this machine's steady clock how much has passed since. The day is
for the difference between two databases' clocks.
"""

from __future__ import annotations

import math
from typing import Final

from tenure.errors import MayDuplicate
from tenure.job import Job
from tenure.policy import DAY

DEFAULT_TTL: Final = 30 * DAY
"""``once_ttl`` of a kind that does not say, and of keys that are no job's; seconds."""

MARGIN: Final = DAY


def kept(ttl: float) -> int:
    """How long a row is kept, seconds."""
    return math.ceil(ttl + MARGIN)


def require_young(job: Job, ttl: float) -> None:
    """See that no row of an earlier attempt of this job can have been forgotten.

    Raises:
        MayDuplicate: it was first claimed ``ttl`` seconds ago, or earlier.
    """
    if job.age_now >= ttl:
        raise MayDuplicate(str(job.id), job.age_now, ttl)
