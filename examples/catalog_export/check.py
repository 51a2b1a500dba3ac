"""What has to hold at the end, found without the code that did the work: the tables and the files are read again."""

import hashlib
import json
from pathlib import Path
from typing import Any

import psycopg


def catalogue(conn: psycopg.Connection) -> list[Any]:
    """Every course and lesson, with the transaction that wrote it and its place: a row that was touched differs."""
    courses = conn.execute("select xmin::text, xmax::text, ctid::text, * from courses order by code").fetchall()
    lessons = conn.execute(
        "select xmin::text, xmax::text, ctid::text, * from lessons order by course, position"
    ).fetchall()
    return [courses, lessons]


def expected(conn: psycopg.Connection, code: str) -> dict[str, Any]:
    """What the file of a course has to hold."""
    [course] = conn.execute("select code, title, subject from courses where code = %s", [code]).fetchall()
    lessons = conn.execute(
        "select position, title, minutes, summary from lessons where course = %s order by position", [code]
    ).fetchall()
    return {
        **dict(zip(("code", "title", "subject"), course, strict=True)),
        "lessons": [dict(zip(("position", "title", "minutes", "summary"), lesson, strict=True)) for lesson in lessons],
        "minutes": sum(minutes for _, _, minutes, _ in lessons),
    }


def files(conn: psycopg.Connection, directory: Path) -> list[str]:
    """What is wrong with result rows and files: nothing, if there is a file for each row, the right one, and no other."""
    wrong = []
    rows = conn.execute("select job_id::text, course, file, sha256, lessons, minutes from exports").fetchall()
    for job, course, file, sha256, lessons, minutes in rows:
        content = (directory / file).read_bytes()
        told = json.loads(content)
        if told != expected(conn, course) or (lessons, minutes) != (len(told["lessons"]), told["minutes"]):
            wrong.append(f"{file} is not {course}")
        if hashlib.sha256(content).hexdigest() != sha256 or not file.startswith(job):
            wrong.append(f"the row of {job} does not describe {file}")
    there = {path.name for path in directory.iterdir()}
    return [*wrong, *(f"{name} has no row" for name in sorted(there - {row[2] for row in rows}))]
