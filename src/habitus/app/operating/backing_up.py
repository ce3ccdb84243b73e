"""Backups of a home: one file with its databases, skills and settings, made while the home is in use.

A backup is restored as a whole. Caches, which can be rebuilt, and the keys of the web page are left out; the vault's
key never lies in a home. An admin's backup includes the shared database, which is restored only into an empty one.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from habitus import sql
from habitus.app.home_directory import (
    BACKUPS_DIR,
    DATABASE,
    SESSION_PADS_DIR,
    create_home_and_check_writable,
    raise_home_not_writable,
)
from habitus.app.operating import erasure_records, home_replacement
from habitus.app.operating.people import signing_keys
from habitus.app.sharing import copying
from habitus.app.wiring import open_home
from habitus.errors import Invalid, NotFound, StorageFailed
from habitus.files import replace_file_when_block_ends
from habitus.settings import Settings

_BACKUP_SUFFIX = ".tar.gz"
_MANIFEST = "backup.json"
_DATABASE_FILES = (DATABASE,)
_EXCLUDED = frozenset({BACKUPS_DIR, "cache", "workers", "web.key", SESSION_PADS_DIR})
# The dump of the shared database; no file of a home has this name.
_SHARED_DUMP = "habitus-shared.db"
_SHARED_EXCLUDED_NOTE = "The shared database is not in it: only an admin can back it up."


@dataclass(frozen=True, kw_only=True, slots=True)
class BackupDetails:
    """A backup file with the facts of its manifest."""

    file: Path
    made_on: datetime
    size: int
    schema: str
    files: int
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreResult:
    """The restored backup, and the backup of the home that it replaced."""

    backup: BackupDetails
    before: BackupDetails
    note: str
    undo: tuple[str, ...]


def create_backup(settings: Settings, file: Path | None = None, *, now: datetime) -> BackupDetails:
    """Back up the home and, for an admin, the shared database; writers of the home wait meanwhile."""
    shares = bool(settings.database) and settings.is_admin
    made = _create_backup(settings, file, now, "habitus", shares=shares)
    return replace(made, note=_SHARED_EXCLUDED_NOTE) if settings.database and not shares else made


def _create_backup(settings: Settings, file: Path | None, now: datetime, name: str, *, shares: bool) -> BackupDetails:
    if not create_home_and_check_writable(settings.home):
        raise_home_not_writable(settings.home)
    if file is None:
        folder = settings.home / BACKUPS_DIR
        folder.mkdir(mode=0o700, exist_ok=True)
        at = f"{name}-{now.astimezone(UTC):%Y%m%d-%H%M%S}"
        names = itertools.chain([at], (f"{at}-{number}" for number in itertools.count(2)))
        file = next(place for each in names if not (place := folder / f"{each}{_BACKUP_SUFFIX}").exists())
    if file.exists():
        raise Invalid(f"{file} is there already.", hint="Name another file, or leave it out.")
    with (
        replace_file_when_block_ends(file) as aside,
        tempfile.TemporaryDirectory(prefix="habitus-backup-", dir=settings.home) as scratch,
    ):
        aside.touch(mode=0o600)
        if shares:
            copying.dump_database(settings, Path(scratch) / _SHARED_DUMP)
        _write_archive(settings, aside, Path(scratch), now)
    return read_manifest(file)


def read_manifest(file: Path) -> BackupDetails:
    """Read the manifest of a backup; `Invalid` if the file is not one."""
    try:
        with tarfile.open(file, "r:gz") as archive:
            # The manifest is the first member, so a large archive is not read to its end.
            first = archive.next()
            content = archive.extractfile(first) if first is not None and first.name == _MANIFEST else None
            told: Mapping[str, Any] = json.loads(content.read(1 << 20)) if content is not None else {}
            return BackupDetails(
                file=file,
                made_on=datetime.fromisoformat(told["made_on"]),
                size=file.stat().st_size,
                schema=str(told["schema"]),
                files=int(told["files"]),
            )
    except FileNotFoundError:
        raise NotFound(f"There is no file {file}.", hint="See 'habitus db backups'.") from None
    except (tarfile.TarError, OSError, EOFError, KeyError, ValueError, TypeError):
        raise Invalid(f"{file} is not a backup of Habitus, or is damaged.", hint="See 'habitus db backups'.") from None


def list_backups(settings: Settings) -> tuple[BackupDetails, ...]:
    """Return the backups in the home, newest first; unreadable ones are left out."""
    found = []
    for file in (settings.home / BACKUPS_DIR).glob(f"*{_BACKUP_SUFFIX}"):
        try:
            found.append(read_manifest(file))
        except Invalid:
            continue
    return tuple(sorted(found, key=lambda backup: backup.made_on, reverse=True))


def restore_backup(settings: Settings, file: Path, *, now: datetime) -> RestoreResult:
    """Back up the home, then replace it with the backup; erased users are erased again."""
    backup = read_manifest(file)
    if not sql.BASELINE <= backup.schema <= sql.HEAD:
        age, hint = (
            ("newer", "Upgrade Habitus") if backup.schema > sql.HEAD else ("much older", "Restore it with that one")
        )
        raise Invalid(
            f"{file} was made by a {age} Habitus (schema {backup.schema}, this one knows {sql.HEAD}).",
            hint=f"{hint}; nothing was changed.",
        )
    home = settings.home
    if not create_home_and_check_writable(home):
        raise_home_not_writable(home)
    with (
        home_replacement.lock_home_exclusively(home),
        _translate_disk_errors(home),
        home_replacement.create_staging_folder(home) as new,
    ):
        _extract_archive(file, new)
        before = _create_backup(settings, None, now, "before-restore", shares=False)
        note = _restore_shared_database_if_empty(new / _SHARED_DUMP, settings)
        # Erasure records outlive a restore, or a backup would bring an erased user back.
        erasure_records.append_records_to_file(
            new / erasure_records.FILE, erasure_records.read_records_file(home / erasure_records.FILE)
        )
        home_replacement.replace_home_entries_with_staged_ones(
            home, (path.name for path in _list_home_entries_to_back_up(home))
        )
    # Opening migrates the home and erases again the users that the backup brought back.
    open_home(settings).close()
    undo = ("db", "restore", str(before.file), "--yes")
    return RestoreResult(backup=backup, before=before, note=note, undo=undo)


def _restore_shared_database_if_empty(dump: Path, settings: Settings) -> str:
    """Fill the configured shared database if it is empty; return a note for the user, empty if all went as expected."""
    if not dump.exists():
        return ""
    try:
        if not settings.database:
            return "What hosts shared is in it, too; name an empty database (HABITUS_DATABASE) and repeat it."
        used = copying.load_dump_unless_database_is_used(dump, settings)
        return f"The shared database has {used}, and was left as it is; restore into an empty one." if used else ""
    finally:
        for file in dump.parent.glob(f"{_SHARED_DUMP}*"):
            file.unlink()


@contextmanager
def _translate_disk_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"Can't put the backup into {home}: {error.strerror or error}."
        raise StorageFailed(what, hint="Free some space, or check the place, and repeat it.") from None


def _write_archive(settings: Settings, file: Path, scratch: Path, now: datetime) -> None:
    home = settings.home
    with _block_database_writers(home / DATABASE), tarfile.open(file, "w:gz", compresslevel=3) as archive:
        databases = {
            name: _copy_database(home / name, scratch / name) for name in _DATABASE_FILES if (home / name).is_file()
        }
        databases |= {_SHARED_DUMP: scratch / _SHARED_DUMP} if (scratch / _SHARED_DUMP).is_file() else {}
        plain = [path for path in _list_home_entries_to_back_up(home) if not path.name.startswith(_DATABASE_FILES)]
        files = [file for path in plain for file in _walk_files(path)]
        told = {"made_on": now.isoformat(), "schema": sql.HEAD, "files": len(files) + len(databases)}
        manifest = tarfile.TarInfo(_MANIFEST)
        content = json.dumps(told).encode()
        manifest.size = len(content)
        archive.addfile(manifest, io.BytesIO(content))
        for path in files:
            archive.add(path, str(path.relative_to(home)), recursive=False)
        for name, copy in databases.items():
            archive.add(copy, name)


@contextmanager
def _block_database_writers(database: Path) -> Iterator[None]:
    """Hold the write lock of the database: every change of skills takes it first, so files and rows stay consistent."""
    if not database.is_file():
        yield
        return
    with closing(sqlite3.connect(database, timeout=30, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise StorageFailed(f"{database} has been busy for 30 s.", hint="Look for a stuck process.") from None
        except sqlite3.DatabaseError:
            # A damaged database is backed up as it is.
            pass
        yield


def _copy_database(database: Path, copy: Path) -> Path:
    """Copy a database with SQLite's backup API, or byte by byte if it is damaged."""
    try:
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            if target.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (signing_keys.name,)).fetchone():
                # Deleted rows would otherwise stay readable in the free pages of the copy.
                target.execute("PRAGMA secure_delete = ON")
                target.execute(f"DELETE FROM {signing_keys.name}")
                target.commit()
    except sqlite3.DatabaseError:
        shutil.copyfile(database, copy)
    copy.chmod(0o600)
    return copy


def _list_home_entries_to_back_up(home: Path) -> list[Path]:
    """Return the entries of a home that belong in a backup and that a restore replaces."""
    return [path for path in sorted(home.iterdir()) if _is_entry_included_in_backup(path.name)]


def _is_entry_included_in_backup(name: str) -> bool:
    return name not in _EXCLUDED and not name.endswith((".lock", ".socket")) and not name.startswith((".", "habitus-"))


def _walk_files(path: Path) -> Iterator[Path]:
    """Yield regular files and symbolic links; empty folders are left out."""
    if path.is_symlink() or path.is_file():
        yield path
    elif path.is_dir():
        for below in sorted(path.iterdir()):
            yield from _walk_files(below)


def _extract_archive(file: Path, target: Path) -> None:
    """Extract the archive; `Invalid` if it has a member that no backup of ours contains."""
    try:
        with tarfile.open(file, "r:gz") as archive:
            members = [member for member in archive if member.name != _MANIFEST]
            # Links come last, so no file is written through one.
            for member in sorted(members, key=tarfile.TarInfo.issym):
                place = PurePosixPath(member.name)
                is_ours = (member.isfile() or member.issym()) and not place.is_absolute() and ".." not in place.parts
                if not is_ours or not (_is_entry_included_in_backup(place.parts[0]) or member.name == _SHARED_DUMP):
                    raise Invalid(f"{file} holds '{member.name}', which no backup has.", hint="Nothing was changed.")
                member.mode = stat.S_IMODE(member.mode) & 0o700
                archive.extract(member, target, filter="tar")
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Invalid(f"{file} can't be read to its end: {error}.", hint="Nothing was changed.") from None
