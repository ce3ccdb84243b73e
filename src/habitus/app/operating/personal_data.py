"""Personal data by table: which rows belong to a user, what replaces them on erasure, and which tables hold none.

Every table is in exactly one of these lists; a test names a new one that is not.
"""

from __future__ import annotations

import bz2
import io
import lzma
import mmap
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from habitus import pause, sql
from habitus.app.operating.idempotency import answered
from habitus.improve.store import improve_candidates, improve_rollouts
from habitus.journal.tables import exposures, lasting_outcomes, seen, turns
from habitus.learning.remedies.sessions import studied_files
from habitus.memory.tables import engram_versions
from habitus.sandbox.credentials.calling import calls
from habitus.sandbox.credentials.grants import granted
from habitus.settings import CLAIMED
from habitus.skills.choosing.evals import failed_climbs
from habitus.skills.erasing import NOBODY
from habitus.skills.stores.tables import trusted
from habitus.tools.health import tool_health


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """The user whose data is erased."""

    name: str
    conversations: frozenset[str] = frozenset()
    # Owns the home, and with it all data in it that names no user.
    is_owner: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the user signs with."""
        return self.name, f"{self.name}{CLAIMED}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The rows of a table that belong to a user; erasure deletes them, or overwrites the columns in `replacement`."""

    # The kind of data, as users call it.
    place: str
    table: sa.Table
    theirs: Callable[[Person], sa.ColumnElement[bool]]
    becomes: Mapping[str, Any] = field(default_factory=dict)

    def count(self, connection: sa.Connection, person: Person) -> int:
        """Return the number of rows of this user."""
        query = sa.select(sa.func.count()).select_from(self.table).where(self.theirs(person))
        return int(connection.execute(query).scalar_one())

    def erase(self, connection: sa.Connection, person: Person) -> None:
        """Delete or overwrite the rows of this user."""
        where = self.theirs(person)
        change = (
            self.table.update().where(where).values(self.becomes) if self.becomes else self.table.delete().where(where)
        )
        connection.execute(change)


def _rows_of_owner(table: sa.Table) -> Callable[[Person], sa.ColumnElement[bool]]:
    return lambda person: table.c.user == person.name


def _rows_signed_by(column: sa.Column[str]) -> Callable[[Person], sa.ColumnElement[bool]]:
    return lambda person: column.in_(person.names)


def _called_by(name: str) -> sa.ColumnElement[bool]:
    """Match calls from a shell, or from a session, whose id then follows the name."""
    return sa.or_(calls.c.who == name, calls.c.who.startswith(f"{name}, ", autoescape=True))


ROWS = (
    Rows(place="turns", table=turns, theirs=_rows_of_owner(turns)),
    Rows(place="evidence", table=exposures, theirs=_rows_of_owner(exposures)),
    Rows(place="evidence", table=lasting_outcomes, theirs=_rows_of_owner(lasting_outcomes)),
    Rows(place="skills they have seen", table=seen, theirs=_rows_of_owner(seen)),
    Rows(place="answered requests", table=answered, theirs=_rows_of_owner(answered)),
    Rows(
        place="studied transcripts",
        table=studied_files,
        theirs=lambda person: sa.true() if person.is_owner else sa.false(),
    ),
    Rows(
        place="signatures", table=trusted, theirs=_rows_signed_by(trusted.c.trusted_by), becomes={"trusted_by": NOBODY}
    ),
    Rows(
        place="signatures",
        table=engram_versions,
        theirs=_rows_signed_by(engram_versions.c.made_by),
        becomes={"made_by": NOBODY},
    ),
    Rows(
        place="reminders",
        table=pause.switches,
        theirs=lambda person: pause.switches.c.name == f"reminded {person.name}",
    ),
    Rows(
        place="signatures",
        table=pause.switches,
        theirs=_rows_signed_by(pause.switches.c.set_by),
        becomes={"set_by": NOBODY},
    ),
    Rows(place="grants", table=granted, theirs=_rows_of_owner(granted)),
    Rows(
        place="signatures", table=granted, theirs=_rows_signed_by(granted.c.granted_by), becomes={"granted_by": NOBODY}
    ),
    Rows(place="calls of command lines", table=calls, theirs=lambda person: _called_by(person.name)),
    # The table does not say in whose turn a tool failed, so all are cleared; the next failure writes it again.
    Rows(
        place="last failures of tools",
        table=tool_health,
        theirs=lambda person: tool_health.c.last_failure != "",
        becomes={"last_failure": ""},
    ),
    Rows(
        place="why drafts failed",
        table=failed_climbs,
        theirs=lambda person: failed_climbs.c.reason != "",
        becomes={"reason": ""},
    ),
    Rows(
        place="signatures",
        table=improve_candidates,
        theirs=_rows_signed_by(improve_candidates.c.user),
        becomes={"user": NOBODY},
    ),
    # The table does not say whose tasks were practised.
    Rows(
        place="records of practice",
        table=improve_rollouts,
        theirs=lambda person: improve_rollouts.c.record != "",
        becomes={"record": ""},
    ),
)

# Erased by the module that owns the table: with a turn, by memory, by search, or with the history of skills.
ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("turn_messages", "turn_events", "turn_selections", "turn_outcomes"), "goes with its turn"),
    **dict.fromkeys(("engrams", "memory_views"), "memory erases it"),
    **dict.fromkeys(("jobs", "job_parts"), "the queue of jobs erases it"),
    "sign_ins": "people.py erases it",
    "evidence_sums": "forgetting.py empties it",
    **dict.fromkeys(("search_documents", "search_vectors", "search_learned"), "search erases it"),
    **dict.fromkeys(
        ("skills", "skill_versions", "skill_switches", "skill_counters", "skill_proposals", "blobs"),
        "skills/erasing.py erases it",
    ),
}

# Nothing in these says anything of a person.
NOBODYS: Mapping[str, str] = {
    **dict.fromkeys(("agent_skills", "agent_skill_files"), "skills in use are everybody's"),
    "improve_tasks": "ids of tasks",
    **dict.fromkeys(("skill_intents",), "is empty unless a process was killed"),
    **dict.fromkeys(("skill_imports", "indexed_skills"), "where skills came from, and hashes"),
    **dict.fromkeys(("recipe_counts", "learning_spending"), "counts"),
    **dict.fromkeys(("sequences", "memory_revision", "search_collections", "evidence_seed"), "numbers"),
    "signing_keys": "random",
    "learned_turns": "hashes, without which an old transcript would teach the same again",
}


# Of one compressed object.
_MOST_BYTES = 64 << 20
# For example a file in an archive in a blob.
_DEEPEST = 3
_AT_A_TIME = 100


def remains(engines: Iterable[sa.Engine], home: Path, words: Sequence[str], *, apart: str) -> Iterator[str]:
    """Yield the tables and files that still contain one of the samples.

    The `excluded` folder of the home is skipped.
    """
    if not words:
        return
    raw = [word.encode() for word in words]
    for engine in engines:
        for table in sql.metadata.sorted_tables:
            with sql.reading(engine) as connection:
                if _says(connection, table, words) or _keeps(connection, table, raw):
                    yield f"{table.name} ({engine.dialect.name})"
    for path in sorted(home.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.relative_to(home).parts[0] != apart and _lies(path, raw):
            yield str(path.relative_to(home))


def _says(connection: sa.Connection, table: sa.Table, words: Sequence[str]) -> bool:
    texts = [column for column in table.c if isinstance(column.type, sa.String)]
    says = [column.contains(word, autoescape=True) for column in texts for word in words]
    query = sa.select(sa.func.count()).select_from(table).where(sa.or_(sa.false(), *says))
    return bool(says and connection.execute(query).scalar())


def _keeps(connection: sa.Connection, table: sa.Table, words: Sequence[bytes]) -> bool:
    """Whether a binary column contains a sample, also compressed; SQL can't tell."""
    columns = [column for column in table.c if isinstance(column.type, sa.LargeBinary)]
    if not columns:
        return False
    with connection.execute(sa.select(*columns).execution_options(yield_per=_AT_A_TIME)) as found:
        return any(_holds(bytes(content), words) for row in found for content in row if content is not None)


def _lies(path: Path, words: Sequence[bytes]) -> bool:
    mapped = partial(mmap.mmap, length=0, access=mmap.ACCESS_READ)
    with suppress(OSError, ValueError), path.open("rb") as file, mapped(file.fileno()) as content:
        return any(content.find(word) >= 0 for word in words) or (
            _is_packed(content[:6]) and _holds(content[:_MOST_BYTES], words)
        )
    # An empty file can't be mapped.
    return False


def _holds(content: bytes, words: Sequence[bytes], depth: int = 0) -> bool:
    if any(word in content for word in words):
        return True
    return depth < _DEEPEST and any(_holds(inner, words, depth + 1) for inner in _unpack(content))


def _unpack(content: bytes) -> Iterator[bytes]:
    """Yield the decompressed contents; nothing if the bytes are not compressed, or damaged."""
    with suppress(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, NotImplementedError):
        if content.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for member in archive.infolist():
                    with archive.open(member) as file:
                        yield file.read(_MOST_BYTES)
        elif content.startswith(b"BZh"):
            yield bz2.BZ2Decompressor().decompress(content, _MOST_BYTES)
        elif content.startswith(b"\xfd7zXZ"):
            yield lzma.LZMADecompressor().decompress(content, _MOST_BYTES)
        elif _is_packed(content[:6]):
            # Zlib's own format, or gzip.
            yield zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(content, _MOST_BYTES)


def _is_packed(begins: bytes) -> bool:
    is_zlib = len(begins) > 1 and begins[0] & 0x0F == 8 and (begins[0] << 8 | begins[1]) % 31 == 0
    return is_zlib or begins.startswith((b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ"))
