"""The course catalogue: its tables, its courses, and how one course is read."""

import json
from pathlib import Path
from typing import Any

import psycopg

HERE = Path(__file__).parent

# One statement is one snapshot: a course and its lessons as they were at one moment, whatever is changed meanwhile.
READ = """
select json_build_object(
    'code', c.code, 'title', c.title, 'subject', c.subject,
    'lessons', (
        select coalesce(json_agg(json_build_object(
            'position', l.position, 'title', l.title, 'minutes', l.minutes, 'summary', l.summary
        ) order by l.position), '[]')
        from lessons l where l.course = c.code
    )
) from courses c where c.code = %s
"""


def load(conn: psycopg.Connection) -> int:
    """Create the tables and fill them from courses.json; answers how many courses that file has.

    A course that is there already stays as it is.
    """
    courses: list[dict[str, Any]] = json.loads((HERE / "courses.json").read_text("utf-8"))
    with conn.transaction(), conn.cursor() as cursor:
        cursor.execute((HERE / "schema.sql").read_bytes())
        cursor.executemany(
            "insert into courses (code, title, subject) values (%(code)s, %(title)s, %(subject)s) on conflict do nothing",
            courses,
        )
        cursor.executemany(
            "insert into lessons (course, position, title, minutes, summary)"
            " values (%(course)s, %(position)s, %(title)s, %(minutes)s, %(summary)s) on conflict do nothing",
            [
                {"course": course["code"], "position": position, **lesson}
                for course in courses
                for position, lesson in enumerate(course["lessons"], 1)
            ],
        )
    return len(courses)


async def read(tx: psycopg.AsyncConnection, code: str) -> dict[str, Any] | None:
    """A course with its lessons; None if there is no such course."""
    row = await (await tx.execute(READ, [code])).fetchone()
    return None if row is None else row[0]


def rendered(course: dict[str, Any]) -> bytes:
    """The bytes of the exported file: the same course gives the same bytes."""
    minutes = sum(lesson["minutes"] for lesson in course["lessons"])
    return (json.dumps({**course, "minutes": minutes}, ensure_ascii=False, indent=2) + "\n").encode()
