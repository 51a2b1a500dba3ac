"""What the page of the proof says around its tables.

``root:`` in a link stands for this repository, wherever the page is.
"""

from __future__ import annotations

HEAD = """\
# The proof

"At least once, one effect" is a claim until somebody has tried to break it. This page says what was tried: which kills,
which faults, which bugs that were put in on purpose, and which test shows each row.
"""

OURS = """\
A test fails when this page names a test that does not exist, or leaves a crash point or a planted bug out.

`make chaos` makes the runs again, on your machine, and a page of your own ([how](root:docs/how-to/chaos.md#the-long-part)).
"""

YOURS = """\
These are runs of your own ([how](root:docs/how-to/chaos.md#the-long-part)). The page of the runs that are recorded in the
repository is [another one](root:docs/proof.md).
"""

POINTS_HEAD = """\
## Crash points

Named places in the code at which a crash would hurt most. At each of them processes were killed under load, again and
again, for three seconds at least and until there were enough kills: a kill counts when the process has ended by signal 9
and the ledger outside the database has its line. In the end one worker drains the queue, and the checker holds the ledgers
against the database.
"""

MINUTES_HEAD = """\
## Chaos

`tenure chaos`: producers and workers as real processes; kills, stops, terminated sessions, a broken network, a server
that restarts and crashes, by a seed. [What is checked](root:docs/how-to/chaos.md#what-is-checked) says what each column
counts. All from `lost` to `late` must be 0.
"""

PLANTS_HEAD = """\
## Bugs that were planted

A check that cannot fail proves nothing. So each way to check is run against code that is wrong on purpose, and must
notice.
"""

MATRIX_HEAD = """\
## The fault matrix

What may happen, what must hold then, and the tests that make it happen. A test stands for all of its cases, and runs with
`make test`; `.venv/bin/pytest tests/FILE -k NAME` runs one.

Nearly all of them need a real PostgreSQL, and many real processes and signals. The model of the lease protocol needs no
server: spin searches it; and random walks are made on the store in memory, too. Where a server or a tool is missing
(PostgreSQL 15, MariaDB, PgBouncer, Patroni, spin, gcc ...), or the system is not Linux, a test that needs it is skipped and
says so; with `CI=true` a missing server or tool is a failure.
"""

TIMES = """\
The last three columns are seconds, median and longest. Recovery is from a fault that was done to a process until a job
that it interrupted began to run again. Swept is the part of it until the job was pending again: what was left of its
lease (2 s in these runs), the pause until the next sweep (2 s at the most), and what a busy machine adds. `late` judges
that part: it counts what took longer than both, 30 s, and what was done to all meanwhile. Waited is the rest: jobs whose
lease has ended run one by one, each in a child process, so it grows with how many of them wait for that. Each figure is
of all jobs that have it, so medians do not add up.
"""
