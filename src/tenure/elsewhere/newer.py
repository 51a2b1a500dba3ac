"""``apply_if_newer``: of what arrives in any order, the newest version wins.

The alternative to ordering keys, for consumers that need the latest state and not every step to it: jobs run side by side,
and one that comes late is dropped.
"""

from __future__ import annotations

from tenure.drivers import ABorrowed, Borrowed, Script, arun, run
from tenure.elsewhere.tables import alend, lend, require_transaction, words
from tenure.elsewhere.words import KEY_BYTES, NAME_BYTES
from tenure.errors import Refused
from tenure.names import checked_text

_LIMIT = 2**63


def apply_if_newer(conn: object, table: str, key: str, version: int) -> bool:
    """Whether a version of a thing is newer than what was applied; if so, apply it in the same transaction.

    ::

        with sqlite3.connect("shop.db") as db:
            if apply_if_newer(db, "prices", article, version):
                db.execute("replace into prices values (?, ?)", (article, cents))

    The version is remembered in that transaction, and others that come with the same table and key wait for its end.

    Args:
        conn: an open synchronous connection, as ``once`` takes it, in a transaction.
        table: what kind of thing it is, 1 to 100 bytes: the table's name, or any other.
        key: which one, 1 to 750 bytes.
        version: greater is newer; a whole number of 64 bits. The same again is not newer.

    Raises:
        Refused: an argument that cannot be.
        ConfigError: it is no such connection, there is no transaction to join, or the table is missing and cannot be
            created.
    """
    lent = lend(conn)
    return run(_asked(lent, table, key, version), lent)


async def aapply_if_newer(conn: object, table: str, key: str, version: int) -> bool:
    """The same with an asynchronous connection."""
    lent = alend(conn)
    return await arun(_asked(lent, table, key, version), lent)


def _asked(lent: Borrowed | ABorrowed, table: str, key: str, version: int) -> Script[bool]:
    checked_text("table", table, NAME_BYTES)
    checked_text("key", key, KEY_BYTES)
    given: object = version  # whatever the annotation says
    if isinstance(given, bool) or not isinstance(given, int) or not -_LIMIT <= given < _LIMIT:
        what = "out of range" if isinstance(given, int) else f"of type {type(given).__name__}"
        raise Refused(f"The version is {what}.", hint="Use a whole number of at most 64 bits.")
    require_transaction(lent)
    return words(lent.dialect).newer(table, key, version)
