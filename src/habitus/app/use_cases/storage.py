"""Storage: database status and migration, backups, and erasing a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.home_directory import BACKUPS_DIR
from habitus.app.operating import backing_up, erasure
from habitus.app.sharing import database
from habitus.app.use_cases.declaration import argument, option, use_case
from habitus.files import parse_user_path
from habitus.settings import Settings


@use_case("db status", access=Access.ADMIN)
def show_database_status(settings: Settings) -> database.DatabaseStatus:
    """Show which database is used, its state and its contents; nothing is changed."""
    return database.read_database_status(settings)


@use_case("db migrate", access=Access.ADMIN)
def migrate_database(
    settings: Settings,
    force: Annotated[bool, option("Migrate even if running older processes can't use it afterwards.")] = False,
) -> database.MigrateDatabaseResult:
    """Migrate the database to the schema this Habitus needs. A shared database is only ever migrated this way."""
    return database.migrate_database(settings, force=force)


@use_case("db backup", access=Access.OWNER, example={"file": "/mnt/safe/habitus.tar.gz"})
def create_backup(
    settings: Settings, file: Annotated[str | None, argument("The target file; default is in the home.")] = None
) -> backing_up.BackupDetails:
    """Write the home's databases, skills, lessons and settings to one file; the home may be in use."""
    path = None if file is None else parse_user_path(file)
    return backing_up.create_backup(settings, path, now=datetime.now(UTC))


@dataclass(frozen=True, kw_only=True)
class ListBackupsResult:
    backups: Sequence[backing_up.BackupDetails]


@use_case("db backups", access=Access.ADMIN)
def list_backups(settings: Settings) -> ListBackupsResult:
    """List the backups stored in the home."""
    return ListBackupsResult(backups=backing_up.list_backups(settings))


def resolve_backup_path(settings: Settings, file: str) -> Path:
    """Return the given path, or the backup of that name in the home if the path doesn't exist."""
    given = parse_user_path(file)
    inside = settings.home / BACKUPS_DIR / given.name
    return inside if not given.exists() and inside.exists() else given


@use_case("db restore", access=Access.OWNER, example={"file": "habitus-20260101-120000.tar.gz"}, undo="db restore")
def restore_backup(
    settings: Settings, file: Annotated[str, argument("A backup: a path, or a name that 'list' shows.")]
) -> backing_up.RestoreResult:
    """Replace the home with a backup; the home is backed up first. Refused while a process uses it."""
    return backing_up.restore_backup(settings, resolve_backup_path(settings, file), now=datetime.now(UTC))


@use_case("users forget", access=Access.ADMIN, example={"user": "ann", "dry_run": True})
def erase_user(
    home: Home,
    user: Annotated[str, argument("The user; only admins can erase other users.")],
    dry_run: Annotated[bool, option("Only show what is stored about the user.")] = False,
) -> erasure.ErasureResult:
    """Erase a person from sessions, lessons, evidence, proposals, history, archive and search, for good."""
    return erasure.erase_user(home, user, dry_run=dry_run)
