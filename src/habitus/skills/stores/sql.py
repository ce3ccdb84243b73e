"""A shelf in SQL: skills as rows of `agent_skills`, which other systems may read and write, files beside them."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.files import File, Tree, file_of, tree_hash
from habitus.skills import names, records, trees
from habitus.skills.formats import skill_md
from habitus.skills.model import Diagnostic, Severity, Skill, Source
from habitus.skills.stores.base import Facts, Found
from habitus.skills.tables import agent_skill_files as files
from habitus.skills.tables import agent_skills as rows

MAIN = "SKILL.md"


class SqlShelf:
    """Every method joins the transaction that its caller holds, so a change and its record are one commit."""

    can_write = True
    keeps_facts = True

    def __init__(self, engine: sa.Engine, cache: Path, *, only: str = "") -> None:
        self._engine = engine
        self._cache = cache
        self._only = only

    def look(self, known: Mapping[str, str]) -> Mapping[str, str]:
        query = _STAMPS.where(rows.c._id.in_({*known, self._only})) if self._only else _STAMPS
        with sql.reading(self._engine) as connection:
            return {row.id: _stamp(row) for row in connection.execute(query)}

    def is_fresh(self, folder: str, stamp: str) -> bool:
        with sql.reading(self._engine) as connection:
            row = connection.execute(_STAMPS.where(rows.c._id == folder)).first()
        return row is not None and _stamp(row) == stamp

    def read(self, folder: str, expected: Tree | None = None) -> Found | None:
        with sql.reading(self._engine) as connection:
            stamped = connection.execute(_STAMPS.where(rows.c._id == folder)).first()
            row = connection.execute(sa.select(rows).where(rows.c._id == folder)).mappings().first()
            if row is None or stamped is None:
                return None
            others = self._files(connection, folder)
        stamp, facts = _stamp(stamped), _facts(row)
        try:
            skill = _skill(row)
            tree = {**others, MAIN: file_of(_main_content(skill, others.get(MAIN)))}
        except ValueError as error:
            problem = Diagnostic(
                file=f"agent_skills/{folder}",
                what=f"The row can't be read: {error}.",
                mend="Correct its columns.",
                severity=Severity.ERROR,
            )
            return Found(tree=others, stamp=stamp, problem=problem, facts=facts)
        return Found(tree=tree, stamp=stamp, facts=facts)

    def read_file(self, folder: str, path: str) -> bytes | None:
        found = self.read(folder)
        return found.tree[path].content if found is not None and path in found.tree else None

    def directory(self, folder: str) -> Path | None:
        """A copy of the files on disk, named by their hash: for scripts that are to run."""
        found = self.read(folder)
        if found is None:
            return None
        place = self._cache / tree_hash(found.tree)[:32] / folder
        if not place.exists():
            _materialise(found.tree, place)
        return place

    def write(self, folder: str, tree: Tree, before: Tree) -> None:
        parsed = trees.parse(folder, tree)
        main = trees.main_file(tree)
        content = tree[main].content if main is not None else None
        with sql.writing(self._engine) as connection:
            there = self._files(connection, folder)
            kept = {path: file for path, file in there.items() if path not in before and path != MAIN}
            values = _values(parsed.skill) if parsed.skill is not None else {"content": None, "fields": None}
            sql.insert_missing(connection, rows, [{"_id": folder}])
            connection.execute(rows.update().where(rows.c._id == folder).values(values))
            others = {path: file for path, file in tree.items() if path != main}
            if content is not None and (
                parsed.skill is None or skill_md.render(parsed.skill, is_checked=False) != content
            ):
                # Comments, order and unknown keys of a hand-written file: the columns don't hold them.
                others[MAIN] = file_of(content)
            self._put_files(connection, folder, {**kept, **others})

    def record(self, folder: str, facts: Facts) -> str:
        with sql.writing(self._engine) as connection:
            connection.execute(
                rows.update()
                .where(rows.c._id == folder)
                .values(
                    version=facts.version,
                    enabled=int(facts.enabled is not False),
                    created_on=_iso(facts.created_on),
                    modified_on=_iso(facts.modified_on),
                )
            )
            connection.execute(files.update().where(files.c.skill == folder).values(version=facts.version))
            return _stamp(connection.execute(_STAMPS.where(rows.c._id == folder)).one())

    def put_away(self, folder: str, archived_as: str) -> None:
        """The history keeps every file, so the row can go."""
        with sql.writing(self._engine) as connection:
            connection.execute(files.delete().where(files.c.skill == folder))
            connection.execute(rows.delete().where(rows.c._id == folder))

    def bring_back(self, archived_as: str, folder: str) -> bool:
        return False

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()

    def tidy(self) -> None:
        pass

    def _files(self, connection: sa.Connection, folder: str) -> dict[str, File]:
        query = sa.select(files).where(files.c.skill == folder).order_by(files.c.path)
        return {row.path: file_of(bytes(row.bytes), executable=row.executable) for row in connection.execute(query)}

    def _put_files(self, connection: sa.Connection, folder: str, wanted: Tree) -> None:
        connection.execute(files.delete().where(files.c.skill == folder))
        values = [
            {
                "skill": folder,
                "version": 0,
                "path": path,
                "bytes": file.content,
                "sha256": file.sha256,
                "executable": file.executable,
            }
            for path, file in wanted.items()
            if file.content is not None
        ]
        if values:
            connection.execute(files.insert(), values)


_STAMPS = sa.select(
    rows.c._id.label("id"),
    rows.c.version,
    rows.c.enabled,
    rows.c.modified_on,
    *(sa.func.length(rows.c[name]) for name in ("title", "description", "content", "tags", "source", "fields")),
).order_by(rows.c._id)


def _stamp(row: Any) -> str:
    return "|".join("" if value is None else str(value) for value in row)


def _facts(row: Mapping[Any, Any]) -> Facts:
    return Facts(
        version=row["version"] or 0,
        enabled=None if row["enabled"] is None else bool(row["enabled"]),
        created_on=_moment(row["created_on"]),
        modified_on=_moment(row["modified_on"]),
    )


def _skill(row: Mapping[Any, Any]) -> Skill:
    """The skill that the columns describe; a ValueError says which column makes no sense."""
    fields = json.loads(row["fields"] or "{}")
    tags = json.loads(row["tags"] or "[]")
    if not isinstance(fields, dict) or not isinstance(tags, list):
        raise ValueError("'tags' must be a JSON list and 'fields' a JSON object")
    values = {**fields, "title": row["title"] or "", "description": row["description"] or ""}
    summary = records.unpack_summary(values, name=names.slugify(row["_id"]))
    source = Source(row["source"]) if row["source"] in list(Source) else Source.USER
    skill = records.with_body(summary, skill_md.normal_body(row["content"] or ""))
    return replace(skill, tags=tuple(str(tag) for tag in tags), source=source)


def _main_content(skill: Skill, raw: File | None) -> bytes:
    """SKILL.md as the row says it: the hand-written text where there is one, brought up to date with the columns."""
    if raw is not None and raw.content is not None:
        return skill_md.update(raw.content, skill, is_checked=False)
    return skill_md.render(skill, is_checked=False)


def _values(skill: Skill) -> dict[str, Any]:
    fields = json.loads(records.pack_summary(skill))
    for column in ("title", "description", "tags", "source", "stages", "stated"):
        fields.pop(column, None)
    return {
        "title": skill.title,
        "description": skill.description,
        "content": skill.body,
        "tags": json.dumps(list(skill.tags), ensure_ascii=False),
        "source": skill.source.value,
        "fields": json.dumps(fields, ensure_ascii=False),
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def _materialise(tree: Tree, place: Path) -> None:
    """Write the files aside and move them into place whole; whoever comes second finds them there."""
    aside = place.parent.with_name(f".{secrets.token_hex(6)}")
    for path, file in tree.items():
        if file.content is not None:
            target = aside / place.name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(0o700 if file.executable else 0o600)
    try:
        aside.rename(place.parent)
    except OSError:
        shutil.rmtree(aside)
