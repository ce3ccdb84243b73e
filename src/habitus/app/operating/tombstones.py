"""Erasure records: note without a name that a user was erased, so the erasure is repeated after a restore.

They are in a file of the home and in every database the user was erased from. A database that lacks one is older than
the erasure, or belongs to another host.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from habitus import sql
from habitus.errors import StorageFailed
from habitus.files import append, disk_errors
from habitus.pause import switches

if TYPE_CHECKING:
    from habitus.app.home import Home

FILE = "forgotten.jsonl"
_PREFIX = "forgotten "


@dataclass(frozen=True, kw_only=True, slots=True)
class Tombstone:
    """The salted hash of an erased user's name."""

    salt: str
    digest: str

    @classmethod
    def of(cls, user: str) -> Tombstone:
        """Make a record for this user with a new salt."""
        salt = secrets.token_hex(8)
        return cls(salt=salt, digest=_digest(salt, user))

    def is_of(self, user: str) -> bool:
        """Whether the record is about this user."""
        return secrets.compare_digest(self.digest, _digest(self.salt, user))

    @property
    def key(self) -> str:
        """The name of the row that stores the record."""
        return f"{_PREFIX}{self.salt}:{self.digest}"


def _digest(salt: str, user: str) -> str:
    return hashlib.sha256(f"{salt}:{user}".encode("utf-8", "replace")).hexdigest()


def missing_tombstones(home: Home) -> list[Tombstone]:
    """Return the records of erased users whom a database may hold again; empty and cheap if no user was ever erased."""
    file = home.settings.home / FILE
    if home.is_read_only or home.is_stand_in or (home.shared is home.local and not file.exists()):
        return []
    standing = [_in_database(engine) for engine in _engines(home.shared, home.local)]
    known = {*read(file), *standing[0]}
    return [one for one in known if any(one not in there for there in standing)]


def read(file: Path) -> list[Tombstone]:
    """Return the records in a file; unreadable lines are skipped."""
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageFailed(f"Can't read {file}: {error.strerror}.", hint="Check its permissions.") from None
    return [found for line in lines if (found := _read(line)) is not None]


def write(file: Path, tombstones: Iterable[Tombstone]) -> None:
    """Add the records to the file. Call it before erasing, so an interrupted erasure continues at the next start."""
    known = set(read(file))
    lines = [json.dumps({"salt": one.salt, "digest": one.digest}) for one in tombstones if one not in known]
    if not lines:
        return
    with disk_errors(file):
        append(file, "".join(f"{line}\n" for line in lines).encode())


def place(shared: sa.Engine, local: sa.Engine, tombstones: Iterable[Tombstone], now: datetime) -> None:
    """Note in every database that these users were erased from it."""
    rows = [{"name": one.key, "set_on": now, "set_by": "habitus"} for one in tombstones]
    for engine in _engines(shared, local):
        with sql.writing(engine, durable=True) as connection:
            sql.insert_missing(connection, switches, rows)


def _engines(shared: sa.Engine, local: sa.Engine) -> tuple[sa.Engine, ...]:
    return tuple(dict.fromkeys((shared, local)))


def _in_database(engine: sa.Engine) -> frozenset[Tombstone]:
    query = sa.select(switches.c.name).where(switches.c.name.startswith(_PREFIX))
    with sql.reading(engine) as connection:
        keys = [key.removeprefix(_PREFIX).partition(":") for key in connection.execute(query).scalars()]
    return frozenset(Tombstone(salt=salt, digest=digest) for salt, _, digest in keys)


def _read(line: str) -> Tombstone | None:
    try:
        told = json.loads(line)
        return Tombstone(salt=str(told["salt"]), digest=str(told["digest"]))
    except (ValueError, KeyError, TypeError):
        return None
