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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import sqlalchemy as sa

from habitus import search, sql
from habitus import settings as settings_module
from habitus.app.operating import replacing_a_home
from habitus.errors import Refused, StorageFailed

DATABASE = "habitus.db"
HOST = "host"  # the name of this home
WORKSPACE = "workspace"  # the one that this home is in
CHAT_HISTORY = "chat-history"  # what was typed at the prompt
PADS = "sessions"  # where the files of each session's scratchpads lie
BACKUPS = "backups"
_LEAST_ROOM = 1 << 16  # what SQLite needs beside a database to read it, and a few rows
_FULL = (errno.ENOSPC, errno.EDQUOT)
STAND_IN = "cache/shared.db"  # what was last seen of a shared database
WAITING = "spool"  # turns that wait for a database that is away
PLUGIN = "plugin"  # how the hooks of our plugin are run


def can_write(home: Path) -> bool:
    """Make the home where it is new, and find out whether files can be made in it.

    Root could, in anybody's: but what root leaves there its owner can't change. So root only looks. On a full disk
    SQLite can't even read: what is there is then shown from a copy elsewhere.
    """
    if foreign_owner(home):
        if not home.is_dir():
            refuse_to_write(home)
        return False
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=home, buffering=0) as trial:
            return trial.write(bytes(_LEAST_ROOM)) == _LEAST_ROOM
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, *_FULL) and home.is_dir():
            return False
        raise StorageFailed(
            f"Can't use {home} as the home of Habitus: {error.strerror}.", mend="Set HABITUS_HOME to another directory."
        ) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Entered:
    """A home that somebody is in: nobody replaces it meanwhile. One that can't be written is read from a copy."""

    place: Path  # where what is not kept may be written
    is_read_only: bool
    leaving: ExitStack


def enter(home: Path) -> Entered:
    leaving = ExitStack()
    if can_write(home):
        leaving.enter_context(replacing_a_home.inside(home))
        return Entered(place=home, is_read_only=False, leaving=leaving)
    scratch = leaving.enter_context(copy_of_database(home))
    return Entered(place=Path(scratch), is_read_only=True, leaving=leaving)


def host_of(home: Path) -> str:
    """A name for this home among those that share a database, made once and kept in it."""
    return _write_once(home / HOST, f"{socket.gethostname()}-{secrets.token_hex(4)}")


def settle(home: Path, workspace: str) -> None:
    """A home is in one workspace: what it has on disk of one, turns that wait say, must not come into another."""
    file = home / WORKSPACE
    if not file.exists() and not can_write(home):
        return
    if (kept := _write_once(file, workspace)) != workspace:
        raise Refused(
            f"{home} is in {_describe_workspace(kept)}, not in {_describe_workspace(workspace)}.",
            mend=f"Use a home for each (HABITUS_HOME), or remove {file} to move this one.",
        )


def _describe_workspace(workspace: str) -> str:
    return f"workspace '{workspace}'" if workspace else "no workspace"


def _write_once(file: Path, value: str) -> str:
    """The text of a file of the home, which is written once."""
    if not file.exists():
        new = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
        new.write_text(value, "utf-8")
        with suppress(FileExistsError):  # another process was first
            file.hardlink_to(new)
        new.unlink()
    return file.read_text("utf-8")


def refuse_to_write(home: Path) -> NoReturn:
    """Say in one line why nothing can be changed in a home, and what to do."""
    if owner := foreign_owner(home):
        raise Refused(
            f"{home} belongs to {owner}, and root would leave files there that {owner} can't change.",
            mend=f"Run it as {owner} (sudo -u {owner}), or set HABITUS_HOME to a directory of root's.",
        )
    if _is_full(home):
        raise StorageFailed(f"{why_read_only(home)}; nothing was changed.", mend="Free some space and retry.")
    raise Refused(f"{why_read_only(home)}.", mend="Make it writable, or set HABITUS_HOME.")


def why_read_only(home: Path) -> str:
    return f"No space is left in {home}" if _is_full(home) else f"{home} is read-only"


def _is_full(home: Path) -> bool:
    return shutil.disk_usage(home).free < _LEAST_ROOM


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
            is_full = error.errno in _FULL
            raise StorageFailed(
                f"Can't {'copy' if is_full else 'read'} {path}: {error.strerror}.",
                mend="Free some space, or set TMPDIR to where there is some." if is_full else "Check its permissions.",
            ) from None
    return scratch


def keep_private(home: Path) -> None:
    """For the owner's eyes only. Who shares a home leaves it as its owner has it; a log may be gone by now."""
    for path, mode in ((home, 0o700), *((path, 0o600) for path in home.glob(f"{DATABASE}*"))):
        with suppress(PermissionError, FileNotFoundError):
            path.chmod(mode)


def read_settings(home: Path | None = None, environ: Mapping[str, str] | None = None) -> settings_module.Settings:
    """The settings of this process: environment, then habitus.toml, then defaults."""
    account = settings_module.account_name() if environ is None else ""
    return read_settings_of(os.environ if environ is None else environ, Path.cwd(), home, account=account)


def read_settings_of(
    environ: Mapping[str, str], cwd: Path, home: Path | None = None, *, account: str = ""
) -> settings_module.Settings:
    """The settings of a process with these variables in this directory."""
    found = settings_module.load(environ, cwd, home, account=account)
    if replacing_a_home.is_begun(found.home):
        replacing_a_home.complete(found.home)
        found = settings_module.load(environ, cwd, home, account=account)
    return found


def address(settings: settings_module.Settings) -> str:
    """Of the database that every host shares, or of this home's own."""
    return settings.database or sql.sqlite_url(settings.home / DATABASE)


def open_index(
    settings: settings_module.Settings, engine: sa.Engine, collection: str = "skills", folder: Path | None = None
) -> search.Index:
    """The index of skills or lessons, with the encoder of the settings."""
    return search.open_index(engine, collection, settings.search.encoder, weights_folder(settings), folder)


def weights_folder(settings: settings_module.Settings) -> Path:
    """Where the weights of the better encoder are, once they were fetched; no backup has them."""
    return settings.home / "cache" / "minilm"
