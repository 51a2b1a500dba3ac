"""Writing a file so that it is there whole or not at all, whoever dies or comes back meanwhile."""

import hashlib
import os
import tempfile
from pathlib import Path


def digest(content: bytes) -> str:
    """The SHA-256 of a file's content, hex."""
    return hashlib.sha256(content).hexdigest()


def keep(directory: Path, job: str, content: bytes) -> str:
    """Write the file of a job; answers its name, which follows from the job and the content.

    A job that runs again with the same content replaces its file by the same bytes. A job that runs again after the
    catalogue was changed writes another name: a worker that was stopped and wakes up late cannot put old bytes under
    a name that somebody has recorded.
    """
    name = f"{job}-{digest(content)[:16]}.json"
    # A name of its own for each writer: two that are at it at the same time do not write into one file.
    handle, part = tempfile.mkstemp(prefix=f".{job}-", suffix=".part", dir=directory)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # the bytes are on the disk before the name is
    Path(part).replace(directory / name)
    _sync(directory)  # and the name is before the row that tells of it is committed
    for left in directory.glob(f".{job}-*.part"):  # by workers that were killed
        left.unlink(missing_ok=True)
    return name


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
