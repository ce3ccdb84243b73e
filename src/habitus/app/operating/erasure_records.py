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
from habitus.files import append_to_file, translate_disk_errors
from habitus.pause import switches

if TYPE_CHECKING:
    from habitus.app.home import Home

FILE = "forgotten.jsonl"
_PREFIX = "forgotten "


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasedUserHashRecord:
    """The salted hash of an erased user's name."""

    salt: str
    digest: str

    @classmethod
    def make_for_user(cls, user: str) -> ErasedUserHashRecord:
        """Make a record for this user with a new salt."""
        salt = secrets.token_hex(8)
        return cls(salt=salt, digest=_hash_name(salt, user))

    def matches(self, user: str) -> bool:
        """Whether the record is about this user."""
        return secrets.compare_digest(self.digest, _hash_name(self.salt, user))

    @property
    def row_name(self) -> str:
        """The name of the row that stores the record."""
        return f"{_PREFIX}{self.salt}:{self.digest}"


def _hash_name(salt: str, user: str) -> str:
    return hashlib.sha256(f"{salt}:{user}".encode("utf-8", "replace")).hexdigest()


def list_erasure_records_missing_from_databases(home: Home) -> list[ErasedUserHashRecord]:
    """Return the records of erased users whom a database may hold again; empty and cheap if no user was ever erased."""
    file = home.settings.home / FILE
    if home.is_read_only or home.is_offline or (home.shared is home.local and not file.exists()):
        return []
    standing = [_read_database_records(engine) for engine in list_distinct_engines(home.shared, home.local)]
    known = {*read_records_file(file), *standing[0]}
    return [one for one in known if any(one not in there for there in standing)]


def read_records_file(file: Path) -> list[ErasedUserHashRecord]:
    """Return the records in a file; unreadable lines are skipped."""
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageFailed(f"Can't read {file}: {error.strerror}.", hint="Check its permissions.") from None
    return [found for line in lines if (found := _parse_record(line)) is not None]


def append_records_to_file(file: Path, tombstones: Iterable[ErasedUserHashRecord]) -> None:
    """Add the records to the file. Call it before erasing, so an interrupted erasure continues at the next start."""
    known = set(read_records_file(file))
    lines = [json.dumps({"salt": one.salt, "digest": one.digest}) for one in tombstones if one not in known]
    if not lines:
        return
    with translate_disk_errors(file):
        append_to_file(file, "".join(f"{line}\n" for line in lines).encode())


def insert_records_into_databases(
    shared: sa.Engine, local: sa.Engine, tombstones: Iterable[ErasedUserHashRecord], now: datetime
) -> None:
    """Note in every database that these users were erased from it."""
    rows = [{"name": one.row_name, "set_on": now, "set_by": "habitus"} for one in tombstones]
    for engine in list_distinct_engines(shared, local):
        with sql.write_transaction(engine, durable=True) as connection:
            sql.insert_missing_rows(connection, switches, rows)


def list_distinct_engines(shared: sa.Engine, local: sa.Engine) -> tuple[sa.Engine, ...]:
    return tuple(dict.fromkeys((shared, local)))


def _read_database_records(engine: sa.Engine) -> frozenset[ErasedUserHashRecord]:
    query = sa.select(switches.c.name).where(switches.c.name.startswith(_PREFIX))
    with sql.read_transaction(engine) as connection:
        keys = [key.removeprefix(_PREFIX).partition(":") for key in connection.execute(query).scalars()]
    return frozenset(ErasedUserHashRecord(salt=salt, digest=digest) for salt, _, digest in keys)


def _parse_record(line: str) -> ErasedUserHashRecord | None:
    try:
        told = json.loads(line)
        return ErasedUserHashRecord(salt=str(told["salt"]), digest=str(told["digest"]))
    except (ValueError, KeyError, TypeError):
        return None
