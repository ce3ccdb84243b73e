"""Reads and writes the tables of memory, which all hosts share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.memory.model import (
    ChangeAuthorAndReason,
    Engram,
    EngramVersion,
    LessonCounters,
    LessonProducer,
    LessonProvenance,
    LessonScope,
    LessonState,
    SelfPlayLessonBody,
    TrustLevel,
    parse_lesson_kind,
)
from habitus.memory.tables import engram_versions, engrams, memory_revision
from habitus.sql.change_notifications import ChangeTopic, get_change_feed


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedEngrams:
    """The current state of the engrams that changed after a revision."""

    revision: int
    engrams: tuple[Engram, ...] = ()


def build_erased_engram(engram: Engram, at: datetime) -> Engram:
    """Return the engram without any content, only its id and dates."""
    return Engram(
        id=engram.id,
        text="",
        kind=engram.kind,
        scope=engram.scope,
        state=LessonState.ERASED,
        counters=LessonCounters(frequency=0),
        version=engram.version,
        created_on=engram.created_on,
        updated_on=at,
    )


class EngramStore:
    """Engrams and their versions in the database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._news = get_change_feed(engine)

    def load_changed_engrams(self, after: int) -> ChangedEngrams:
        """Return the engrams that changed after a revision; all of them for 0."""
        found: list[ChangedEngrams] = []

        # The feed caches only the revision; the engrams loaded with it are used at once and not kept.
        def look() -> int:
            found.append(self._load_changes(after))
            return found[0].revision

        if self._news.fetch_cached(ChangeTopic.LESSONS, look) == after:
            return ChangedEngrams(revision=after)
        return found[0] if found else self._load_changes(after)

    def _load_changes(self, after: int) -> ChangedEngrams:
        with sql.read_transaction(self._engine) as conn:
            now = conn.execute(_REVISION).scalar() or 0
            changed = conn.execute(_CHANGED, {"after": after}).mappings() if now != after else ()
            return ChangedEngrams(revision=now, engrams=tuple(_engram_from_row(row) for row in changed))

    @contextmanager
    def write_transaction(self) -> Iterator[None]:
        """Open a write transaction that excludes all other changes to memory."""
        with sql.write_transaction(self._engine, lock="memory"):
            yield

    def load_engrams_by_ids(self, ids: Sequence[str]) -> dict[str, Engram]:
        """Return the engrams with these ids; unknown ids are left out."""
        with sql.read_transaction(self._engine) as conn:
            return _load_engrams(conn, ids)

    def save_new_versions_or_counters(
        self, changed: Sequence[Engram], cause: ChangeAuthorAndReason | None = None
    ) -> tuple[Engram, ...]:
        """Save new or changed engrams: as new versions with a cause, or only their counters without one."""
        if cause is not None:
            changed = [
                replace(e, version=e.version + 1, created_on=e.created_on or cause.at, updated_on=cause.at)
                for e in changed
            ]
        with sql.write_transaction(self._engine, lock="memory") as conn:
            revision = increment_revision(conn)
            for part in sql.split_batches(changed):
                # Counters change only on existing engrams, so the lookup is unnecessary then.
                known = {e.id for e in part} if cause is None else _load_existing_engram_ids(conn, [e.id for e in part])
                rows = [_build_engram_row(engram) | {"revision": revision} for engram in part]
                new = [row for row in rows if row["id"] not in known]
                if new:
                    conn.execute(_NEW, new)
                old = [{f"new_{name}": value for name, value in row.items()} for row in rows if row["id"] in known]
                if old:
                    values: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in rows[0] if name != "id"}
                    query = engrams.update().where(engrams.c.id == sa.bindparam("new_id")).values(values)
                    conn.execute(query, old)
                if cause is not None:
                    conn.execute(_NEW_VERSION, [_build_version_row(engram, cause) for engram in part])
        return tuple(changed)

    def erase(self, ids: Sequence[str], at: datetime) -> None:
        """Erase the content and all versions of these engrams, keeping only the ids."""
        with sql.write_transaction(self._engine, durable=True, lock="memory") as conn:
            revision = increment_revision(conn)
            for id, engram in _load_engrams(conn, ids).items():
                row = _build_engram_row(build_erased_engram(engram, at)) | {"revision": revision}
                conn.execute(engram_versions.delete().where(engram_versions.c.engram == id))
                conn.execute(engrams.update().where(engrams.c.id == id).values(row))

    def load_history(self, id: str) -> tuple[EngramVersion, ...]:
        """Return the versions of an engram, oldest first."""
        query = sa.select(engram_versions).where(engram_versions.c.engram == id).order_by(engram_versions.c.number)
        with sql.read_transaction(self._engine) as conn:
            return tuple(_version_from_row(row) for row in conn.execute(query).mappings())

    def load_all_engrams_as_of(self, timestamp: datetime) -> dict[str, Engram]:
        """Return every engram that existed at this time, as it was then."""
        table = engram_versions
        newest = (
            sa.select(table.c.engram, sa.func.max(table.c.number).label("number"))
            .where(table.c.made_on <= timestamp)
            .group_by(table.c.engram)
            .subquery()
        )
        both = (newest.c.engram == table.c.engram) & (newest.c.number == table.c.number)
        with sql.read_transaction(self._engine) as conn:
            rows = conn.execute(sa.select(table).join(newest, both)).mappings()
            return {row["engram"]: _version_from_row(row).engram for row in rows}


_REVISION = sa.select(memory_revision.c.revision).where(memory_revision.c.id == 1)
_RAISE_REVISION_QUERY = (
    memory_revision.update().values(revision=memory_revision.c.revision + 1).returning(memory_revision.c.revision)
)
_CHANGED = sa.select(engrams).where(engrams.c.revision > sa.bindparam("after"))
_KNOWN = sa.select(engrams.c.id).where(engrams.c.id.in_(sa.bindparam("ids", expanding=True)))
_NEW, _NEW_VERSION = engrams.insert(), engram_versions.insert()


def increment_revision(conn: sa.Connection) -> int:
    """Raise the revision of memory by one and return it."""
    found = conn.execute(_RAISE_REVISION_QUERY).scalar()
    if found is None:
        sql.insert_missing_rows(conn, memory_revision, [{"id": 1, "revision": 0}])
        found = conn.execute(_RAISE_REVISION_QUERY).scalar_one()
    return int(found)


def _load_existing_engram_ids(conn: sa.Connection, ids: Sequence[str]) -> set[str]:
    return set(conn.execute(_KNOWN, {"ids": ids}).scalars())


def _load_engrams(conn: sa.Connection, ids: Sequence[str]) -> dict[str, Engram]:
    found: dict[str, Engram] = {}
    for part in sql.split_batches(ids):
        query = sa.select(engrams).where(engrams.c.id.in_(part))
        found |= {row["id"]: _engram_from_row(row) for row in conn.execute(query).mappings()}
    return found


def _build_engram_row(engram: Engram) -> dict[str, Any]:
    return {
        "id": engram.id,
        **_build_definition_columns(engram),
        **asdict(engram.counters),
        "version": engram.version,
        "created_on": engram.created_on,
        "updated_on": engram.updated_on,
    }


def _build_definition_columns(engram: Engram) -> dict[str, Any]:
    # Only nested values become dictionaries: `asdict` of the whole would copy all of it, at every count.
    definition = json.dumps({name: getattr(engram, name) for name in _DEFINED}, ensure_ascii=False, default=asdict)
    return {**{name: str(getattr(engram, name)) for name in _OWN_COLUMNS}, "definition": definition}


_OWN_COLUMNS = ("state", "kind", "scope", "owner", "text")
_DEFINED = (
    *("confidence", "topic", "source", "trust", "produced_by", "evidence", "body", "verified", "reason"),
    "is_untold",
)


def _build_version_row(engram: Engram, cause: ChangeAuthorAndReason) -> dict[str, Any]:
    return {
        "engram": engram.id,
        "number": engram.version,
        **_build_definition_columns(engram),
        "made_on": cause.at,
        "made_by": cause.by,
        "reason": cause.reason,
    }


def _engram_from_row(row: Mapping[Any, Any]) -> Engram:
    counters = LessonCounters(**{name: row[name] for name in LessonCounters.__dataclass_fields__})
    marks = {name: row[name] for name in ("version", "created_on", "updated_on")}
    return replace(_engram_from_definition_row(row["id"], row), counters=counters, **marks)


def _version_from_row(row: Mapping[Any, Any]) -> EngramVersion:
    cause = ChangeAuthorAndReason(at=row["made_on"], by=row["made_by"], reason=row["reason"])
    engram = replace(_engram_from_definition_row(row["engram"], row), version=row["number"], updated_on=row["made_on"])
    return EngramVersion(number=row["number"], engram=engram, cause=cause)


def _engram_from_definition_row(id: str, row: Mapping[Any, Any]) -> Engram:
    defined = json.loads(row["definition"])
    evidence, body = defined["evidence"], defined["body"]
    typed = {
        "kind": parse_lesson_kind(row["kind"]),
        "scope": LessonScope(row["scope"]),
        "state": LessonState(row["state"]),
        "trust": TrustLevel(defined["trust"]),
        "produced_by": LessonProducer(defined["produced_by"]),
        "evidence": LessonProvenance(**{**evidence, "imported": tuple(evidence["imported"])}),
        "body": SelfPlayLessonBody(**{**body, "domains": tuple(body["domains"])}) if body else None,
    }
    return Engram(**{"id": id, "text": row["text"], "owner": row["owner"], **defined, **typed})
