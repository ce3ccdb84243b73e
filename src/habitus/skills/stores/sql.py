"""A backend in SQL: skills as rows of `agent_skills`, which other systems may read and write, with their files beside
them.
"""

from __future__ import annotations

import functools
import json
import secrets
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.files import File, Tree, file_of, tree_hash
from habitus.skills import names, trees
from habitus.skills.formats import skill_md
from habitus.skills.model import Diagnostic, Severity, Skill, Source
from habitus.skills.stores import records
from habitus.skills.stores.base import Facts, Found, Write
from habitus.skills.stores.tables import agent_skill_files as files
from habitus.skills.stores.tables import agent_skills as rows

MAIN = "SKILL.md"


class SqlShelf:
    """Skill folders as database rows. Every method joins the caller's transaction, so a change and its record commit
    together.
    """

    can_write = True
    keeps_facts = True

    def __init__(self, engine: sa.Engine, cache: Path, *, only: str = "") -> None:
        self._engine = engine
        self._cache = cache
        self._only = only

    def look(self, known: Mapping[str, str]) -> Mapping[str, str]:
        query = _STAMPS.where(rows.c._id.in_({*known, self._only})) if self._only else _STAMPS
        with sql.reading(self._engine) as connection:
            return dict(connection.execute(query).all())

    def is_fresh(self, folder: str, stamp: str) -> bool:
        with sql.reading(self._engine) as connection:
            return self._stamps(connection, [folder]).get(folder) == stamp

    def read(self, folder: str) -> Found | None:
        return self.read_many([folder], {}).get(folder)

    def read_many(self, folders: Collection[str], expected: Mapping[str, Tree]) -> Mapping[str, Found]:
        with sql.reading(self._engine) as connection:
            found = connection.execute(_SOME_ROWS, {"folders": list(folders)}).mappings().all()
            others = self._files(connection, [row["_id"] for row in found])
        return {row["_id"]: _folder_of_row(row, row["stamp"], others[row["_id"]]) for row in found}

    def read_file(self, folder: str, path: str) -> bytes | None:
        found = self.read(folder)
        return found.tree[path].content if found is not None and path in found.tree else None

    def main_files(self, folders: Collection[str]) -> Mapping[str, bytes]:
        return trees.main_contents({folder: found.tree for folder, found in self.read_many(folders, {}).items()})

    def directory(self, folder: str) -> Path | None:
        """Return a directory with a copy of the files, for running scripts; None if there is no such skill."""
        found = self.read(folder)
        if found is None:
            return None
        # Named by the hash of the files, so a copy never changes while a script runs in it.
        place = self._cache / tree_hash(found.tree)[:32] / folder
        if not place.exists():
            _materialise(found.tree, place)
        return place

    def write_many(self, writes: Sequence[Write]) -> None:
        """Write the skills as rows and files."""
        changed: list[dict[str, Any]] = []
        wanted: dict[str, Tree] = {}
        with sql.writing(self._engine) as connection:
            there = self._files(connection, [each.folder for each in writes])
            for each in writes:
                skill, others = _taken_apart(each.folder, each.tree)
                kept = {p: file for p, file in there[each.folder].items() if p not in each.before and p != MAIN}
                changed.append({"_id": each.folder, **(_NO_VALUES if skill is None else _values(skill))})
                wanted[each.folder] = {**kept, **others}
            sql.upsert(connection, rows, changed, _columns_to_replace)
            self._put_files(connection, wanted, there)

    def record(self, facts: Mapping[str, Facts]) -> Mapping[str, str]:
        with sql.writing(self._engine) as connection:
            connection.execute(
                rows.update().where(rows.c._id == sa.bindparam("folder")),
                [
                    {
                        "folder": folder,
                        "version": known.version,
                        "enabled": int(known.enabled is not False),
                        "created_on": _iso(known.created_on),
                        "modified_on": _iso(known.modified_on),
                    }
                    for folder, known in facts.items()
                ],
            )
            # The files' version column follows the row, for other systems that join on it.
            versions = sa.select(rows.c.version).where(rows.c._id == files.c.skill).scalar_subquery()
            connection.execute(files.update().where(files.c.skill.in_(list(facts))).values(version=versions))
            return self._stamps(connection, facts)

    def put_away(self, folder: str, archived_as: str) -> None:
        """Delete the row; the history has every file."""
        with sql.writing(self._engine) as connection:
            connection.execute(files.delete().where(files.c.skill == folder))
            connection.execute(rows.delete().where(rows.c._id == folder))

    def bring_back(self, archived_as: str, folder: str) -> bool:
        """Return False: there is no archive, and the history restores the files."""
        return False

    def tidy(self) -> None:
        pass

    def _stamps(self, connection: sa.Connection, folders: Collection[str]) -> dict[str, str]:
        query = _STAMPS.where(rows.c._id.in_(list(folders)))
        return dict(connection.execute(query).all())

    def _files(self, connection: sa.Connection, folders: Collection[str]) -> dict[str, dict[str, File]]:
        found: dict[str, dict[str, File]] = {folder: {} for folder in folders}
        for row in connection.execute(_FILES, {"folders": list(folders)}) if folders else ():
            found[row.skill][row.path] = file_of(bytes(row.bytes), executable=row.executable)
        return found

    def _put_files(self, connection: sa.Connection, wanted: Mapping[str, Tree], there: Mapping[str, Tree]) -> None:
        if any(there.values()):
            connection.execute(files.delete().where(files.c.skill.in_(list(wanted))))
        values = [
            {
                "skill": folder,
                "version": 0,
                "path": path,
                "bytes": file.content,
                "sha256": file.sha256,
                "executable": file.executable,
            }
            for folder, tree in wanted.items()
            for path, file in tree.items()
            if file.content is not None
        ]
        if values:
            connection.execute(files.insert(), values)


_STAMPED = (
    *(rows.c[name] for name in ("_id", "version", "enabled", "modified_on")),
    *(sa.func.length(rows.c[name]) for name in ("title", "description", "content", "tags", "source", "fields")),
)
# One text per row, built by the database: building a hundred thousand of them in Python takes seconds.
_TEXTS: list[sa.ColumnElement[str]] = [sa.func.coalesce(sa.cast(value, sa.Text), "") for value in _STAMPED]
_STAMP = functools.reduce(lambda said, one: said + "|" + one, _TEXTS)
_STAMPS = sa.select(rows.c._id, _STAMP).order_by(rows.c._id)
# Built once: building the statement takes longer than reading the row.
_FOLDERS: sa.BindParameter[str] = sa.bindparam("folders", expanding=True)
_SOME_ROWS = sa.select(rows, _STAMP.label("stamp")).where(rows.c._id.in_(_FOLDERS))
_FILES = sa.select(files).where(files.c.skill.in_(_FOLDERS)).order_by(files.c.path)


def _folder_of_row(row: Mapping[Any, Any], stamp: str, others: Tree) -> Found:
    """Return a row and its files as the content of one folder."""
    try:
        main = file_of(_main_content(_skill(row), others.get(MAIN)))
    except ValueError as error:
        problem = Diagnostic(
            file=f"agent_skills/{row['_id']}",
            what=f"The row can't be read: {error}.",
            hint="Correct its columns.",
            severity=Severity.ERROR,
        )
        return Found(tree=others, stamp=stamp, problem=problem, facts=_facts(row))
    return Found(tree={**others, MAIN: main}, stamp=stamp, facts=_facts(row))


def _taken_apart(folder: str, tree: Tree) -> tuple[Skill | None, Tree]:
    """Split a tree into the skill for the columns and the files to store beside them."""
    skill, main = trees.parse(folder, tree).skill, trees.main_file(tree)
    content = tree[main].content if main is not None else None
    others = {path: file for path, file in tree.items() if path != main}
    if content is not None and (skill is None or skill_md.render(skill, is_checked=False) != content):
        # The columns can't hold the comments, order and unknown keys of a hand-written file.
        others[MAIN] = file_of(content)
    return skill, others


def _facts(row: Mapping[Any, Any]) -> Facts:
    return Facts(
        version=row["version"] or 0,
        enabled=None if row["enabled"] is None else bool(row["enabled"]),
        created_on=_parse_timestamp(row["created_on"]),
        modified_on=_parse_timestamp(row["modified_on"]),
    )


def _skill(row: Mapping[Any, Any]) -> Skill:
    """Parse the skill from its columns; raise ValueError for an invalid one."""
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
    """Render SKILL.md from the row, based on the hand-written text if there is one."""
    if raw is not None and raw.content is not None:
        return skill_md.update(raw.content, skill, is_checked=False)
    return skill_md.render(skill, is_checked=False)


_NO_VALUES: Mapping[str, Any] = dict.fromkeys(("title", "description", "content", "tags", "source", "fields"))


def _columns_to_replace(new: sa.ColumnCollection[str, Any]) -> dict[str, Any]:
    """Return the columns that a write replaces; NULL in the new row keeps the old title and the like."""
    kept = {name: sa.func.coalesce(new[name], rows.c[name]) for name in ("title", "description", "tags", "source")}
    return {**kept, "content": new["content"], "fields": new["fields"]}


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


def _iso(timestamp: datetime | None) -> str | None:
    return None if timestamp is None else timestamp.astimezone(UTC).isoformat()


def _parse_timestamp(text: str | None) -> datetime | None:
    try:
        timestamp = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    # Other systems write times without a zone; they mean UTC.
    return timestamp if timestamp is None or timestamp.tzinfo else timestamp.replace(tzinfo=UTC)


def _materialise(tree: Tree, place: Path) -> None:
    """Write the files to a temporary directory and rename it into place."""
    aside = place.parent.with_name(f".{secrets.token_hex(6)}")
    for path, file in tree.items():
        if file.content is not None:
            target = aside / place.name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(0o700 if file.executable else 0o600)
    try:
        aside.rename(place.parent)
    # Another process was faster, and its copy is the same.
    except OSError:
        shutil.rmtree(aside)
