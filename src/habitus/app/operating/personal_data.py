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
from habitus.app.operating.idempotency import answered_requests
from habitus.improve.store import improve_candidates, improve_rollouts
from habitus.journal.tables import exposures, lasting_outcomes, menu_exposures, seen_skills, turn_menus, turns, uses
from habitus.learning.remedies.session_facts import studied_files
from habitus.memory.tables import engram_versions
from habitus.sandbox.credentials.command_lines import calls
from habitus.sandbox.credentials.grants import granted_credentials
from habitus.settings import CLAIMED_SUFFIX
from habitus.skills.choosing.evals import failed_climbs
from habitus.skills.erasing import ERASED_NAME
from habitus.skills.stores.tables import trusted_skills
from habitus.tools.health import tool_health


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSubject:
    """The user whose data is erased."""

    name: str
    conversations: frozenset[str] = frozenset()
    # Owns the home, and with it all data in it that names no user.
    is_owner: bool = False

    @property
    def author_names(self) -> tuple[str, ...]:
        """The names that the user signs with."""
        return self.name, f"{self.name}{CLAIMED_SUFFIX}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonalRowsErasureRule:
    """The rows of a table that belong to a user; erasure deletes them, or overwrites the columns in `replacement`."""

    # The kind of data, as users call it.
    label: str
    table: sa.Table
    condition: Callable[[DataSubject], sa.ColumnElement[bool]]
    replacement: Mapping[str, Any] = field(default_factory=dict)

    def count(self, connection: sa.Connection, subject: DataSubject) -> int:
        """Return the number of rows of this user."""
        query = sa.select(sa.func.count()).select_from(self.table).where(self.condition(subject))
        return int(connection.execute(query).scalar_one())

    def erase(self, connection: sa.Connection, subject: DataSubject) -> None:
        """Delete or overwrite the rows of this user."""
        where = self.condition(subject)
        change = (
            self.table.update().where(where).values(self.replacement)
            if self.replacement
            else self.table.delete().where(where)
        )
        connection.execute(change)


def _build_command_line_calls_condition(name: str) -> sa.ColumnElement[bool]:
    """Match calls from a shell, or from a session, whose id then follows the name."""
    return sa.or_(calls.c.who == name, calls.c.who.startswith(f"{name}, ", autoescape=True))


def _make_owned_rows_rule(label: str, table: sa.Table) -> PersonalRowsErasureRule:
    return PersonalRowsErasureRule(label=label, table=table, condition=lambda person: table.c.user == person.name)


def _make_author_signature_rule(column: sa.Column[Any]) -> PersonalRowsErasureRule:
    """Describe signatures, whose rows stay under another name."""
    return PersonalRowsErasureRule(
        label="signatures",
        table=column.table,
        condition=lambda person: column.in_(person.author_names),
        replacement={column.name: ERASED_NAME},
    )


def _make_cleared_column_rule(label: str, column: sa.Column[Any]) -> PersonalRowsErasureRule:
    """Describe a column that does not say whose text it has, so all of it is cleared; it is written anew."""
    return PersonalRowsErasureRule(
        label=label, table=column.table, condition=lambda person: column != "", replacement={column.name: ""}
    )


PERSONAL_ROWS = (
    _make_owned_rows_rule("turns", turns),
    _make_owned_rows_rule("evidence", exposures),
    _make_owned_rows_rule("evidence", menu_exposures),
    _make_owned_rows_rule("menus of turns", turn_menus),
    _make_owned_rows_rule("evidence", lasting_outcomes),
    _make_owned_rows_rule("evidence", uses),
    _make_owned_rows_rule("skills they have seen", seen_skills),
    _make_owned_rows_rule("answered requests", answered_requests),
    PersonalRowsErasureRule(
        label="studied transcripts",
        table=studied_files,
        condition=lambda person: sa.true() if person.is_owner else sa.false(),
    ),
    _make_author_signature_rule(trusted_skills.c.trusted_by),
    _make_author_signature_rule(engram_versions.c.made_by),
    PersonalRowsErasureRule(
        label="reminders",
        table=pause.switches,
        condition=lambda person: pause.switches.c.name == f"reminded {person.name}",
    ),
    _make_author_signature_rule(pause.switches.c.set_by),
    _make_owned_rows_rule("grants", granted_credentials),
    _make_author_signature_rule(granted_credentials.c.granted_by),
    PersonalRowsErasureRule(
        label="calls of command lines",
        table=calls,
        condition=lambda person: _build_command_line_calls_condition(person.name),
    ),
    _make_cleared_column_rule("last failures of tools", tool_health.c.last_failure),
    _make_cleared_column_rule("why drafts failed", failed_climbs.c.reason),
    _make_author_signature_rule(improve_candidates.c.user),
    _make_cleared_column_rule("records of practice", improve_rollouts.c.record),
)

# Erased by the module that owns the table: with a turn, by memory, by search, or with the history of skills.
ERASED_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(
        ("turn_messages", "turn_events", "turn_selections", "turn_outcomes", "running_turns"), "goes with its turn"
    ),
    **dict.fromkeys(("engrams", "memory_views"), "memory erases it"),
    **dict.fromkeys(("jobs", "job_parts"), "the queue of jobs erases it"),
    "sign_ins": "people.py erases it",
    "evidence_sums": "forgetting.py empties it",
    **dict.fromkeys(("search_documents", "search_vectors", "search_learned"), "search erases it"),
    **dict.fromkeys(
        ("skills", "skill_versions", "skill_switches", "skill_counts", "skill_proposals", "blobs"),
        "skills/erasing.py erases it",
    ),
}

# Nothing in these says anything of a person.
NOT_PERSONAL: Mapping[str, str] = {
    **dict.fromkeys(("agent_skills", "agent_skill_files"), "skills in use are shared"),
    "improve_tasks": "ids of tasks",
    "live_comparisons": "versions of skills",
    "job_workers": "hosts and processes",
    **dict.fromkeys(("skill_intents",), "is empty unless a process was killed"),
    **dict.fromkeys(("skill_imports", "indexed_skills"), "where skills came from, and hashes"),
    **dict.fromkeys(("recipe_counts", "learning_spending"), "counts"),
    **dict.fromkeys(("sequences", "memory_revision", "search_collections", "evidence_seed"), "numbers"),
    "signing_keys": "random",
    "learned_turns": "hashes, without which an old transcript would teach the same again",
}


# Of one compressed object.
_MAX_BYTES = 64 << 20
# For example a file in an archive in a blob.
_MAX_DEPTH = 3
_BATCH_ROWS = 100


def find_places_with_remaining_personal_data(
    engines: Iterable[sa.Engine], home: Path, samples: Sequence[str], *, excluded: str
) -> Iterator[str]:
    """Yield the tables and files that still contain one of the samples.

    The `excluded` folder of the home is skipped.
    """
    if not samples:
        return
    raw = [word.encode() for word in samples]
    for engine in engines:
        for table in sql.metadata.sorted_tables:
            with sql.read_transaction(engine) as connection:
                if _has_sample_in_text_column(connection, table, samples) or _has_sample_in_binary_column(
                    connection, table, raw
                ):
                    yield f"{table.name} ({engine.dialect.name})"
    for path in sorted(home.rglob("*")):
        if (
            path.is_file()
            and not path.is_symlink()
            and path.relative_to(home).parts[0] != excluded
            and _has_sample_in_file(path, raw)
        ):
            yield str(path.relative_to(home))


def _has_sample_in_text_column(connection: sa.Connection, table: sa.Table, words: Sequence[str]) -> bool:
    texts = [column for column in table.c if isinstance(column.type, sa.String)]
    says = [column.contains(word, autoescape=True) for column in texts for word in words]
    query = sa.select(sa.func.count()).select_from(table).where(sa.or_(sa.false(), *says))
    return bool(says and connection.execute(query).scalar())


def _has_sample_in_binary_column(connection: sa.Connection, table: sa.Table, words: Sequence[bytes]) -> bool:
    """Whether a binary column contains a sample, also compressed; SQL can't tell."""
    columns = [column for column in table.c if isinstance(column.type, sa.LargeBinary)]
    if not columns:
        return False
    with connection.execute(sa.select(*columns).execution_options(yield_per=_BATCH_ROWS)) as found:
        return any(_contains_sample(bytes(content), words) for row in found for content in row if content is not None)


def _has_sample_in_file(path: Path, words: Sequence[bytes]) -> bool:
    mapped = partial(mmap.mmap, length=0, access=mmap.ACCESS_READ)
    with suppress(OSError, ValueError), path.open("rb") as file, mapped(file.fileno()) as content:
        return any(content.find(word) >= 0 for word in words) or (
            _is_compressed(content[:6]) and _contains_sample(content[:_MAX_BYTES], words)
        )
    # An empty file can't be mapped.
    return False


def _contains_sample(content: bytes, words: Sequence[bytes], depth: int = 0) -> bool:
    if any(word in content for word in words):
        return True
    return depth < _MAX_DEPTH and any(_contains_sample(inner, words, depth + 1) for inner in _decompress(content))


def _decompress(content: bytes) -> Iterator[bytes]:
    """Yield the decompressed contents; nothing if the bytes are not compressed, or damaged."""
    with suppress(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, NotImplementedError):
        if content.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for member in archive.infolist():
                    with archive.open(member) as file:
                        yield file.read(_MAX_BYTES)
        elif content.startswith(b"BZh"):
            yield bz2.BZ2Decompressor().decompress(content, _MAX_BYTES)
        elif content.startswith(b"\xfd7zXZ"):
            yield lzma.LZMADecompressor().decompress(content, _MAX_BYTES)
        elif _is_compressed(content[:6]):
            # Zlib's own format, or gzip.
            yield zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(content, _MAX_BYTES)


def _is_compressed(begins: bytes) -> bool:
    is_zlib = len(begins) > 1 and begins[0] & 0x0F == 8 and (begins[0] << 8 | begins[1]) % 31 == 0
    return is_zlib or begins.startswith((b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ"))
