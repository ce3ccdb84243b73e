"""Storage: database status and migration, backups, and erasing a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from datetime import UTC, datetime
from pathlib import Path

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.home_directory import BACKUPS
from habitus.app.operating import backing_up, forgetting
from habitus.app.operating.backing_up import Backup, Restored
from habitus.app.operating.forgetting import Forgotten
from habitus.app.sharing import database
from habitus.app.sharing.database import DatabaseStatus, Migrated
from habitus.app.use_cases.declaration import Nothing, argument, option, use_case
from habitus.files import given_path
from habitus.settings import Settings


@use_case("db status", access=Access.ADMIN, example=Nothing())
def status(settings: Settings, wanted: Nothing) -> DatabaseStatus:
    """Show which database is used, its state and its contents; nothing is changed."""
    return database.status(settings)


@dataclass(frozen=True, kw_only=True)
class Migration:
    even_so: bool = option("Also while older processes run that can't use it afterwards.", default=False)


@use_case("db migrate", access=Access.ADMIN, example=Migration())
def migrate(settings: Settings, wanted: Migration) -> Migrated:
    """Migrate the database to the schema this Habitus needs. A shared database is only ever migrated this way."""
    return database.migrate(settings, even_so=wanted.even_so)


@dataclass(frozen=True, kw_only=True)
class BackupFile:
    file: str | None = argument("Where to; without it, in the home.", default=None)


@use_case("backup create", access=Access.ADMIN, example=BackupFile(file="/mnt/safe/habitus.tar.gz"))
def create(settings: Settings, wanted: BackupFile) -> Backup:
    """Write the home's databases, skills, lessons and settings to one file; the home may be in use."""
    file = None if wanted.file is None else given_path(wanted.file)
    return backing_up.create(settings, file, now=datetime.now(UTC))


@dataclass(frozen=True, kw_only=True)
class Backups:
    backups: Sequence[Backup]


@use_case("backup list", access=Access.ADMIN, example=Nothing())
def list_backups(settings: Settings, wanted: Nothing) -> Backups:
    """List the backups stored in the home."""
    return Backups(backups=backing_up.list_backups(settings))


@dataclass(frozen=True, kw_only=True)
class OneBackup:
    file: str = argument("A backup: a path, or a name that 'list' shows.")

    def path(self, settings: Settings) -> Path:
        """Return the given path, or the backup of that name in the home if the path doesn't exist."""
        given = given_path(self.file)
        inside = settings.home / BACKUPS / given.name
        return inside if not given.exists() and inside.exists() else given


@use_case(
    "backup restore",
    access=Access.ADMIN,
    example=OneBackup(file="habitus-20260101-120000.tar.gz"),
    undo="backup restore",
)
def restore(settings: Settings, wanted: OneBackup) -> Restored:
    """Replace the home with a backup; the home is backed up first. Refused while a process uses it."""
    return backing_up.restore(settings, wanted.path(settings), now=datetime.now(UTC))


@dataclass(frozen=True, kw_only=True)
class Erasure:
    user: str = option("Whom; for others than yourself you have to be an admin.", default=MISSING)
    dry_run: bool = option("Only say what is kept of them.", default=False)


@use_case("forget", access=Access.ADMIN, example=Erasure(user="ann", dry_run=True))
def forget(home: Home, wanted: Erasure) -> Forgotten:
    """Erase a person from sessions, lessons, evidence, proposals, history, archive and search, for good."""
    return forgetting.forget(home, wanted.user, dry_run=wanted.dry_run)
