"""Programs for the server's user that lie where only root can go.

A virtual environment in root's home is below a directory of mode 0700, which stays as it is. The wheel's programs are
copied once to a cache that everybody can enter. The copy is made beside its final name and renamed, so it is complete
or absent, whoever else makes it at the same time. It is named after its content, so other environments find it too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from tenure.embedded.account import Account
from tenure.embedded.binaries import Binaries
from tenure.errors import EngineError

CACHE = Path("/var/cache/tenure")


def enterable(binaries: Binaries, user: Account) -> Binaries:
    """`binaries`, or a copy of them, that `user` can run.

    Raises:
        EngineError: they are not from a wheel and `user` cannot reach them.
    """
    if user.reaches(binaries.bin / "postgres"):
        return binaries
    package = binaries.bin.parents[1]  # <package>/pginstall/bin
    if binaries.bin.parts[-2:] != ("pginstall", "bin"):
        raise EngineError(
            f"The user {user.name}, who runs PostgreSQL because root cannot, may not run {binaries.bin / 'postgres'}.",
            kept="Nothing was started.",
            hint="Move it below directories that everybody can enter.",
        )
    copy = CACHE / f"{package.name}-{binaries.major}-{_fingerprint(binaries.bin / 'postgres')}"
    if not copy.exists():
        _copy(package, copy)
    return Binaries(copy / package.name / "pginstall" / "bin", binaries.major)


def _fingerprint(program: Path) -> str:
    with program.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _copy(package: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.parent.chmod(0o755)
    scratch = Path(tempfile.mkdtemp(prefix="new-", dir=copy.parent))
    try:
        shutil.copytree(package / "pginstall", scratch / package.name / "pginstall", symlinks=True)
        libraries = package.with_name(
            f"{package.name}.libs"
        )  # where the programs look for libpq, relative to themselves
        if libraries.is_dir():
            shutil.copytree(libraries, scratch / libraries.name, symlinks=True)
        _open_to_all(scratch)
        os.sync()  # a power cut must not leave the name without the content
        scratch.rename(copy)
    except OSError:
        if not copy.exists():  # else somebody was faster
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _open_to_all(top: Path) -> None:
    for folder, _, files in os.walk(top):
        Path(folder).chmod(0o755)
        for name in files:
            file = Path(folder, name)
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
