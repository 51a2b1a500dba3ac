"""What the database said, in our words, for errors that no operation maps: a right that is missing, a statement cut off."""

from __future__ import annotations

from psycopg import Error, OperationalError, errors

from tenure.errors import ServerUnsuitable, StoreBusy, StoreUnavailable, TenureError

_CONNECTION = "08"
"""Class of the errors of a connection; a pooler says one of them when it has lost the server in the middle."""


def explained(error: Exception) -> TenureError | None:
    """The error as somebody who runs a command can act on it; None for what is not the database's, or is a bug."""
    said = str(error).strip().partition("\n")[0]
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return ServerUnsuitable("The server or the role is read-only.", hint="Point the DSN at the primary.")
    if isinstance(error, errors.InsufficientPrivilege):
        return ServerUnsuitable(
            f"The role of this DSN may not do that: {said}.",
            hint="Use a role that may, or let the owner give it the right: tenure grants",
        )
    if isinstance(error, errors.DuplicatePreparedStatement | errors.InvalidSqlStatementName):
        return sessions_shared(f"A statement that was prepared is not this session's: {said}.")
    if isinstance(error, errors.LockNotAvailable | errors.QueryCanceled | errors.DeadlockDetected):
        return StoreBusy(f"The database gave it up: {said}.", kept="Nothing of it was done.")
    if isinstance(error, OperationalError):
        return StoreUnavailable(f"The database refused or went away: {said}.", kept="What had committed is kept.")
    return None


def sessions_shared(what: str) -> ServerUnsuitable:
    """The error where a pooler in transaction mode is between us and the server, and nobody has said so."""
    return ServerUnsuitable(
        what,
        kept="Nothing of it was done.",
        hint='There is a pooler in transaction mode: say so, with Tenure(pooler="transaction") or TENURE_POOLER=transaction'
        " in the environment, or point the DSN at the server.",
    )


def severed(error: Error) -> bool:
    """Whether the connection ended in place of an answer, so that nobody knows what became of the statement."""
    return isinstance(error, OperationalError) and (error.sqlstate is None or error.sqlstate.startswith(_CONNECTION))


def ran_out_of_time(error: StoreBusy) -> bool:
    """Whether the statement was given up because of its own length, and not because somebody held what it wanted."""
    return isinstance(error.__cause__, errors.QueryCanceled)
