"""A home on disk: made where it is new, kept private, and read from a copy where it can't be written; its index."""

from __future__ import annotations

import errno
import os
import pwd
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import sqlalchemy as sa

from habitus import search
from habitus import settings as settings_module
from habitus.errors import Refused, StorageFailed

DATABASE = "habitus.db"
JOBS = "jobs.db"  # what was left to workers, where only this machine has some
HOST = "host"  # the name of this home
CHAT_HISTORY = "chat-history"  # what was typed at the prompt
PADS = "sessions"  # where the files of each session's scratchpads lie
WAITING = "spool"  # turns that wait for a database that is away


def can_write(home: Path) -> bool:
    """Make the home where it is new, and find out whether files can be made in it.

    Root could, in anybody's: but what root leaves there its owner can't change. So root only looks.
    """
    if foreign_owner(home):
        if not home.is_dir():
            refuse_to_write(home)
        return False
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


def host_of(home: Path) -> str:
    """A name for this home among those that share a database, made once and kept in it."""
    kept = home / HOST
    if not kept.exists():
        new = home / f".{HOST}-{secrets.token_hex(4)}"
        new.write_text(f"{socket.gethostname()}-{secrets.token_hex(4)}", "utf-8")
        with suppress(FileExistsError):  # another process was first
            kept.hardlink_to(new)
        new.unlink()
    return kept.read_text("utf-8")


def refuse_to_write(home: Path) -> NoReturn:
    """Say in one line why nothing can be changed in a home, and what to do."""
    if owner := foreign_owner(home):
        raise Refused(
            f"{home} belongs to {owner}, and root would leave files there that {owner} can't change.",
            mend=f"Run it as {owner} (sudo -u {owner}), or set HABITUS_HOME to a directory of root's.",
        )
    raise Refused(f"{home} is read-only.", mend="Make it writable, or set HABITUS_HOME.")


def foreign_owner(home: Path) -> str:
    """Whose home it is, or is to be in, where we are root and it is somebody else's."""
    if os.geteuid() != 0:
        return ""
    try:
        owner = next(place for place in (home, *home.parents) if place.exists()).stat().st_uid
    except OSError:
        return ""  # whoever uses it hears why it can't be
    if owner == 0:
        return ""
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return str(owner)


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


def read_settings(home: Path | None = None, environ: Mapping[str, str] | None = None) -> settings_module.Settings:
    """The settings of this process: environment, then habitus.toml, then defaults."""
    if environ is not None:
        return settings_module.load(environ, Path.cwd(), home)
    return settings_module.load(os.environ, Path.cwd(), home, account=settings_module.account_name())


def open_index(settings: settings_module.Settings, engine: sa.Engine, collection: str = "skills") -> search.Index:
    """What finds skills or lessons, with the encoder of the settings."""
    return search.open_index(engine, collection, settings.search.encoder)
