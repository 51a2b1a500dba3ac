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
from tenure.chaos.told import Asked, Effect, Facts, Offer, Past, Row, Run, Struck

_ROWS = """
select id::text, payload ->> 'ref', kind, state::text, claims, attempts, max_attempts, releases + deferrals,
       redrives, result, token::text, payload ->> 'order_id',
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
    facts = from_ledger(ledger)
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


def from_ledger(ledger: Ledger) -> Facts:
    """What processes have said; rows and effects are the database's to tell."""
    facts, runs, offers = Facts(), _Runs(), _Offers()
    for line in ledger.lines():
        match line["event"]:
            case "attempt":
                facts.attempted.add(line["ref"])
                facts.calls.setdefault(line["call"], set()).add(line["ref"])
                offers.hear(line)
            case "accepted":
                facts.accepted.setdefault(line["ref"], set()).add(line["id"])
                offers.hear(line)
            case "refused" | "unanswered":
                offers.hear(line)
            case "begun" | "ended" | "failed" | "stopped" | "undone":
                runs.hear(line)
            case "asked":
                facts.asked.add(Asked(line["id"], line["claim"], line["token"], line["what"]))
            case "struck":
                facts.faults.append(Struck(line["kind"], line["victim"], line["t"], line["seconds"]))
            case "fault":
                facts.faults.append(Struck("point", line["pid"], line["t_monotonic"]))
    facts.runs, facts.ordered, facts.refused = runs.all, offers.ordered, offers.refused
    return facts


class _Offers:
    """What producers tell of jobs with an ordering key, and of those that were refused."""

    def __init__(self) -> None:
        self.ordered: dict[str, Offer] = {}
        self._refused: set[str] = set()
        self._unknown: set[str] = set()

    @property
    def refused(self) -> set[str]:
        """Names of jobs that may not be there: nothing was sent before that could be stored after the refusal."""
        return self._refused - self._unknown

    def hear(self, line: dict[str, Any]) -> None:
        """Take in what a producer tells."""
        match line["event"]:
            case "attempt":
                if line.get("order") is not None:
                    self.ordered[line["ref"]] = Offer(line["order"], line["t"])
            case "accepted":
                offer = self.ordered.get(line["ref"])
                if offer is not None and offer.answered is None:
                    self.ordered[line["ref"]] = offer._replace(answered=line["t"])
            case "refused":
                self._refused.update(line["refs"])
            case _:
                self._unknown.update(line["refs"])


class _Runs:
    """Puts runs together from what their processes tell, line by line."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int, int], list[Run]] = {}
        self._undone: set[tuple[str, int, int]] = set()

    @property
    def all(self) -> list[Run]:
        """Every run; an effect that was undone and made again in place has one."""
        return [run for runs in self._begun.values() for run in runs]

    def hear(self, line: dict[str, Any]) -> None:
        """Take in what a handler tells, or its worker of an effect."""
        whose = line["id"], line["claim"], line["pid"]
        runs = self._begun.setdefault(whose, [])
        match line["event"]:
            case "begun":
                if whose in self._undone:
                    self._undone.discard(whose)
                    runs.pop()
                pids = line["pid"], line["parent"]
                runs.append(Run(line["id"], line["ref"], line["claim"], pids, line["t"], attempt=line["attempt"]))
            case "undone":
                if runs:  # else its handler had not begun
                    self._undone.add(whose)
            case "stopped":
                runs[-1] = runs[-1]._replace(stopped=line["t"])
            case event:
                runs[-1] = runs[-1]._replace(ended=line["t"], failed=event == "failed")
