"""A home on disk: made where it is new, kept private, and read from a copy where it can't be written."""

from __future__ import annotations

import errno
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from habitus.errors import StorageFailed

DATABASE = "habitus.db"


def can_write(home: Path) -> bool:
    """Make the home where it is new, and find out whether files can be made in it."""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=home):
            return True
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) and home.is_dir():
            return False
        raise StorageFailed(
            f"Can't use {home} as the home of Habitus: {error.strerror}.", mend="Set HABITUS_HOME to another directory."
        ) from None


def copy_of_database(home: Path) -> tempfile.TemporaryDirectory[str]:
    """A home that can't be written is shown as it is, from a copy of its database."""
    scratch = tempfile.TemporaryDirectory(prefix="habitus-")
    for path in home.glob(f"{DATABASE}*"):
        try:
            shutil.copyfile(path, Path(scratch.name) / path.name)
        except FileNotFoundError:
            continue  # a log that another process has just put back into the database
        except OSError as error:
            scratch.cleanup()
            raise StorageFailed(f"Can't read {path}: {error.strerror}.", mend="Check its permissions.") from None
    return scratch


def keep_private(home: Path) -> None:
    """For the owner's eyes only. Who shares a home leaves it as its owner has it; a log may be gone by now."""
    for path, mode in ((home, 0o700), *((path, 0o600) for path in home.glob(f"{DATABASE}*"))):
        with suppress(PermissionError, FileNotFoundError):
            path.chmod(mode)
