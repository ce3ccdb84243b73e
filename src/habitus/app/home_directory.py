"""A home on disk: create it, keep it private, read it from a copy if it isn't writable, and locate its parts."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import sqlalchemy as sa

from habitus import operating_system, sql
from habitus import settings as settings_module
from habitus.app.operating import home_replacement
from habitus.errors import Refused, StorageFailed

if TYPE_CHECKING:
    from habitus.search.index import SearchIndex

DATABASE = "habitus.db"
# The file with this home's name among hosts.
HOST_FILE = "host"
# The file with the workspace this home belongs to.
WORKSPACE_FILE = "workspace"
# Lines typed at the prompt.
CHAT_HISTORY_FILE = "chat-history"
# The scratchpads of each session.
SESSION_PADS_DIR = "sessions"
BACKUPS_DIR = "backups"
# SQLite needs this much next to a database to read it and write a few rows.
_MIN_FREE_BYTES = 1 << 16
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
# The offline snapshot of a shared database.
OFFLINE_SNAPSHOT_FILE = "cache/shared.db"
# The outbox of turns to write once the database is back.
OUTBOX_DIR = "spool"
# How the hooks of our plugin are run.
PLUGIN_FILE = "plugin"


def create_home_and_check_writable(home: Path) -> bool:
    """Create the home if needed, and return whether files can be created in it.

    False for root in another user's home, because that user could not change the files root leaves there. False on a
    full disk, where SQLite can't even read; the home is then read from a copy.
    """
    if find_other_home_owner_if_root(home):
        if not home.is_dir():
            raise_home_not_writable(home)
        return False
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=home, buffering=0) as trial:
            return trial.write(bytes(_MIN_FREE_BYTES)) == _MIN_FREE_BYTES
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, *_DISK_FULL_ERRORS) and home.is_dir():
            return False
        raise StorageFailed(
            f"Can't use {home} as the home of Habitus: {error.strerror}.", hint="Set HABITUS_HOME to another directory."
        ) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class HomeLockOrReadOnlyCopy:
    """A home in use, which can't be replaced meanwhile; one that isn't writable is read from a copy."""

    # A directory for temporary data.
    writable_dir: Path
    is_read_only: bool
    exit_stack: ExitStack


def lock_home_or_copy_database(home: Path) -> HomeLockOrReadOnlyCopy:
    """Lock the home against replacement, or copy its database if it isn't writable."""
    leaving = ExitStack()
    if create_home_and_check_writable(home):
        leaving.enter_context(home_replacement.lock_home_against_replacement(home))
        return HomeLockOrReadOnlyCopy(writable_dir=home, is_read_only=False, exit_stack=leaving)
    scratch = leaving.enter_context(copy_database_to_temporary_directory(home))
    return HomeLockOrReadOnlyCopy(writable_dir=Path(scratch), is_read_only=True, exit_stack=leaving)


def get_or_create_host_name_of_home(home: Path) -> str:
    """Return this home's name among those that share a database, created once."""
    return _read_or_create_file(home / HOST_FILE, f"{socket.gethostname()}-{secrets.token_hex(4)}")


def bind_home_to_workspace(home: Path, workspace: str) -> None:
    """Bind the home to a workspace. Raises `Refused` if it belongs to another one."""
    file = home / WORKSPACE_FILE
    if not file.exists() and not create_home_and_check_writable(home):
        return
    # Turns in the outbox belong to one workspace and must not be written to another.
    if (kept := _read_or_create_file(file, workspace)) != workspace:
        raise Refused(
            f"{home} is in {_describe_workspace(kept)}, not in {_describe_workspace(workspace)}.",
            hint=f"Use a home for each (HABITUS_HOME), or remove {file} to move this one.",
        )


def _describe_workspace(workspace: str) -> str:
    return f"workspace '{workspace}'" if workspace else "no workspace"


def _read_or_create_file(file: Path, value: str) -> str:
    """Return the content of a file, writing the value if the file doesn't exist yet."""
    if not file.exists():
        new = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
        new.write_text(value, "utf-8")
        # Another process was first; a hard link, unlike a rename, never overwrites its file.
        with suppress(FileExistsError):
            file.hardlink_to(new)
        new.unlink()
    return file.read_text("utf-8")


def raise_home_not_writable(home: Path) -> NoReturn:
    """Raise the error that says why the home isn't writable, and what to do."""
    if owner := find_other_home_owner_if_root(home):
        raise Refused(
            f"{home} belongs to {owner}, and root would leave files there that {owner} can't change.",
            hint=f"Run it as {owner} (sudo -u {owner}), or set HABITUS_HOME to a directory of root's.",
        )
    if _is_disk_full(home):
        raise StorageFailed(
            f"{explain_why_home_is_unwritable(home)}; nothing was changed.", hint="Free some space and retry."
        )
    raise Refused(f"{explain_why_home_is_unwritable(home)}.", hint="Make it writable, or set HABITUS_HOME.")


def explain_why_home_is_unwritable(home: Path) -> str:
    """Describe in a few words why the home isn't writable."""
    return f"No space is left in {home}" if _is_disk_full(home) else f"{home} is read-only"


def _is_disk_full(home: Path) -> bool:
    return shutil.disk_usage(home).free < _MIN_FREE_BYTES


def find_other_home_owner_if_root(home: Path) -> str:
    """Return the other user who owns the home, or its nearest existing parent, if we are root; else empty."""
    if not operating_system.is_superuser():
        return ""
    try:
        owner = next(place for place in (home, *home.parents) if place.exists()).stat().st_uid
    except OSError:
        # Using the home will raise a clearer error.
        return ""
    return operating_system.get_user_name_by_id(owner) if owner else ""


def copy_database_to_temporary_directory(home: Path) -> tempfile.TemporaryDirectory[str]:
    """Copy the database of a read-only home to a temporary directory."""
    scratch = tempfile.TemporaryDirectory(prefix="habitus-")
    for path in home.glob(f"{DATABASE}*"):
        try:
            shutil.copyfile(path, Path(scratch.name) / path.name)
        except FileNotFoundError:
            # A write-ahead log may vanish when another process checkpoints it.
            continue
        except OSError as error:
            scratch.cleanup()
            is_full = error.errno in _DISK_FULL_ERRORS
            raise StorageFailed(
                f"Can't {'copy' if is_full else 'read'} {path}: {error.strerror}.",
                hint="Free some space, or set TMPDIR to where there is some." if is_full else "Check its permissions.",
            ) from None
    return scratch


def restrict_home_permissions_to_owner(home: Path) -> None:
    """Restrict the home and its database to the owner."""
    for path, mode in ((home, 0o700), *((path, 0o600) for path in home.glob(f"{DATABASE}*"))):
        # A shared home stays as its owner set it, and a write-ahead log may be gone by now.
        with suppress(PermissionError, FileNotFoundError):
            path.chmod(mode)


def read_settings(home: Path | None = None, environ: Mapping[str, str] | None = None) -> settings_module.Settings:
    """Read the settings of this process: environment, then habitus.toml, then defaults."""
    account = operating_system.get_account_name() if environ is None else ""
    return read_settings_from_environment_and_directory(
        os.environ if environ is None else environ, Path.cwd(), home, account=account
    )


def read_settings_from_environment_and_directory(
    environ: Mapping[str, str], cwd: Path, home: Path | None = None, *, account: str = ""
) -> settings_module.Settings:
    """Read the settings of a process with these variables in this directory."""
    found = settings_module.load_settings(environ, cwd, home, account=account)
    # A process was killed while it replaced the home: finish that before anything is read.
    if home_replacement.has_unfinished_home_swap(found.home):
        home_replacement.complete_unfinished_home_swap(found.home)
        found = settings_module.load_settings(environ, cwd, home, account=account)
    return found


def get_database_url(settings: settings_module.Settings) -> str:
    """Return the URL of the shared database, or of the home's own."""
    return settings.database or sql.build_sqlite_url(settings.home / DATABASE)


def open_search_index(
    settings: settings_module.Settings, engine: sa.Engine, collection: str = "skills", folder: Path | None = None
) -> SearchIndex:
    """Open the search index of skills or lessons with the configured encoder."""
    # Imports numpy, which only a search needs.
    from habitus.search.index import open_index

    return open_index(engine, collection, settings.search.encoder, get_encoder_weights_dir(settings), folder)


def get_parent_dir_of_solver_folders(settings: settings_module.Settings) -> Path:
    """Return where the folders of solver programs are made: below the temporary one some start no helper of theirs."""
    return settings.user_home / ".cache" / "habitus"


def get_encoder_weights_dir(settings: settings_module.Settings) -> Path:
    """Return the folder for downloaded encoder weights; backups leave it out."""
    return settings.home / "cache" / "minilm"
