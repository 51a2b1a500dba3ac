"""Gathers what happened: from the ledger, and from the database when all is over."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from psycopg import Connection, sql

from tenure.chaos.apps import effects_table
from tenure.chaos.ledger import Ledger
from tenure.chaos.told import Asked, Effect, Facts, Past, Row, Run, Struck

_ROWS = """
select id::text, payload ->> 'ref', kind, state::text, claims, attempts, max_attempts, releases + deferrals,
       redrives, result, token::text,
       array(select jsonb_build_array(h -> 'claim', h -> 'class', h -> 'message',
                                      extract(epoch from (h ->> 'ended')::timestamptz)::float8)
             from jsonb_array_elements(history) with ordinality as t(h, n) order by n)
from (
    select id, payload, kind, state, claims, attempts, max_attempts, releases, deferrals, redrives,
           result, token, history from {archive}
    union all
    select id, payload, kind, state, claims, attempts, max_attempts, releases, deferrals, redrives,
           null, token, history from {dead}
    union all
    select id, payload, kind, state, claims, attempts, max_attempts, releases, deferrals, redrives,
           null, token, history from {jobs}
) everywhere
"""
_EFFECTS = "select job_id::text, ref, claim from {effects}"
_CLAIM = re.compile(r"claim ([0-9]+)")


def gathered(ledger: Ledger, conn: Connection, schema: str, elsewhere: Path) -> Facts:
    """All that is known of a run.

    Args:
        conn: to its database.
        schema: the queue's.
        elsewhere: the other database.
    """
    facts = _from_ledger(ledger)
    tables = {name: sql.Identifier(schema, name) for name in ("archive", "dead", "jobs")}
    ahead = _ahead(conn)
    for *columns, history in conn.execute(sql.SQL(_ROWS).format(**tables)):
        facts.rows.append(Row(*columns)._replace(history=tuple(_past(*end, ahead=ahead) for end in history)))
    facts.effects = [Effect(*row) for row in conn.execute(sql.SQL(_EFFECTS).format(effects=effects_table(schema)))]
    with closing(sqlite3.connect(elsewhere)) as db:
        facts.effects += [Effect(*row) for row in db.execute("select job_id, ref, claim from effects")]
    return facts


def _ahead(conn: Connection) -> float:
    """How far the database's clock is ahead of our steady one, seconds; it may be another machine's."""
    before = time.monotonic()
    [[now]] = conn.execute("select extract(epoch from clock_timestamp())::float8").fetchall()
    return float(now) - (before + time.monotonic()) / 2


def _past(claim: int, kind: str, message: str | None, ended: float, *, ahead: float) -> Past:
    said = _CLAIM.fullmatch(message or "")
    return Past(claim, kind, None if said is None else int(said[1]), ended - ahead)


def _from_ledger(ledger: Ledger) -> Facts:
    facts = Facts()
    begun: dict[tuple[str, int, int], list[Run]] = {}
    for line in ledger.lines():
        match line["event"]:
            case "attempt":
                facts.attempted.add(line["ref"])
            case "accepted":
                facts.accepted.setdefault(line["ref"], set()).add(line["id"])
            case "begun":
                pids = line["pid"], line["parent"]
                run = Run(line["id"], line["ref"], line["claim"], pids, line["t"], attempt=line["attempt"])
                begun.setdefault(_of(line), []).append(run)
            case "ended" | "failed" | "stopped" as event:
                # One claim may run twice in its worker: an effect that the database wants again.
                runs = begun[_of(line)]
                runs[-1] = _ended(runs[-1], event, line["t"])
            case "asked":
                facts.asked.add(Asked(line["id"], line["claim"], line["token"], line["what"]))
            case "struck":
                facts.faults.append(Struck(line["kind"], line["victim"], line["t"], line["seconds"]))
            case "fault":
                facts.faults.append(Struck("point", line["pid"], line["t_monotonic"]))
    facts.runs = [runs[-1] for runs in begun.values()]
    return facts


def _ended(run: Run, event: str, at: float) -> Run:
    return run._replace(stopped=at) if event == "stopped" else run._replace(ended=at, failed=event == "failed")


def _of(line: dict[str, Any]) -> tuple[str, int, int]:
    return line["id"], line["claim"], line["pid"]
