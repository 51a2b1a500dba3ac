"""What the database said, in our words, for errors that no operation maps: a right that is missing, a statement cut off."""

from __future__ import annotations

from psycopg import OperationalError, errors

from tenure.errors import ServerUnsuitable, StoreBusy, StoreUnavailable, TenureError


def explained(error: Exception) -> TenureError | None:
    """The error as somebody who runs a command can act on it; None for what is not the database's, or is a bug."""
    said = str(error).strip().partition("\n")[0]
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return ServerUnsuitable("The server or the role is read-only.", hint="Point the DSN at the primary.")
    if isinstance(error, errors.InsufficientPrivilege):
        return ServerUnsuitable(
            f"The role of this DSN may not do that: {said}.", hint="Use one that may, or ask the owner for the right."
        )
    if isinstance(error, errors.LockNotAvailable | errors.QueryCanceled | errors.DeadlockDetected):
        return StoreBusy(f"The database gave it up: {said}.", kept="Nothing of it was done.")
    if isinstance(error, OperationalError):
        return StoreUnavailable(f"The database refused or went away: {said}.", kept="What had committed is kept.")
    return None
