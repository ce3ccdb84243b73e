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
from habitus.files import Tree, TreeFile, build_tree_file, compute_tree_hash
from habitus.skills import names, trees
from habitus.skills.formats import skill_md
from habitus.skills.model import Diagnostic, Severity, Skill, SkillSource
from habitus.skills.stores import records
from habitus.skills.stores.base import BackendSkillFacts, FolderContents, FolderWrite
from habitus.skills.stores.tables import agent_skill_files as files
from habitus.skills.stores.tables import agent_skills as rows

MAIN_FILE = "SKILL.md"


class SqlBackend:
    """Skill folders as database rows. Every method joins the caller's transaction, so a change and its record commit
    together.
    """

    can_write = True
    keeps_facts = True

    def __init__(self, engine: sa.Engine, cache: Path, *, only: str = "") -> None:
        self._engine = engine
        self._cache = cache
        self._only = only

    def list_folder_change_stamps(self, known: Mapping[str, str]) -> Mapping[str, str]:
        query = _STAMPS_QUERY.where(rows.c._id.in_({*known, self._only})) if self._only else _STAMPS_QUERY
        with sql.read_transaction(self._engine) as conn:
            return dict(conn.execute(query).all())

    def is_stamp_current(self, folder: str, stamp: str) -> bool:
        with sql.read_transaction(self._engine) as conn:
            return self._read_stamps(conn, [folder]).get(folder) == stamp

    def read_folder(self, folder: str) -> FolderContents | None:
        return self.read_folders([folder], {}).get(folder)

    def read_folders(self, folders: Collection[str], expected: Mapping[str, Tree]) -> Mapping[str, FolderContents]:
        with sql.read_transaction(self._engine) as conn:
            found = conn.execute(_ROWS_QUERY, {"folders": list(folders)}).mappings().all()
            others = self._read_files(conn, [row["_id"] for row in found])
        return {row["_id"]: _build_folder_contents_from_row(row, row["stamp"], others[row["_id"]]) for row in found}

    def read_file(self, folder: str, path: str) -> bytes | None:
        found = self.read_folder(folder)
        return found.tree[path].content if found is not None and path in found.tree else None

    def read_main_files(self, folders: Collection[str]) -> Mapping[str, bytes]:
        return trees.read_main_files({folder: found.tree for folder, found in self.read_folders(folders, {}).items()})

    def find_directory(self, folder: str) -> Path | None:
        """Return a directory with a copy of the files, for running scripts; None if there is no such skill."""
        found = self.read_folder(folder)
        if found is None:
            return None
        # Named by the hash of the files, so a copy never changes while a script runs in it.
        place = self._cache / compute_tree_hash(found.tree)[:32] / folder
        if not place.exists():
            _write_directory(found.tree, place)
        return place

    def write_folders(self, writes: Sequence[FolderWrite]) -> None:
        """Write the skills as rows and files."""
        changed: list[dict[str, Any]] = []
        wanted: dict[str, Tree] = {}
        with sql.write_transaction(self._engine) as conn:
            there = self._read_files(conn, [each.folder for each in writes])
            for each in writes:
                skill, others = _split_skill_from_files(each.folder, each.tree)
                kept = {p: file for p, file in there[each.folder].items() if p not in each.before and p != MAIN_FILE}
                changed.append({"_id": each.folder, **(_NO_VALUES if skill is None else _build_column_values(skill))})
                wanted[each.folder] = {**kept, **others}
            sql.upsert_rows(conn, rows, changed, _build_replaced_column_expressions)
            self._replace_files(conn, wanted, there)

    def store_versions_and_dates(self, facts: Mapping[str, BackendSkillFacts]) -> Mapping[str, str]:
        with sql.write_transaction(self._engine) as conn:
            conn.execute(
                rows.update().where(rows.c._id == sa.bindparam("folder")),
                [
                    {
                        "folder": folder,
                        "version": known.version,
                        "enabled": int(known.enabled is not False),
                        "created_on": _format_timestamp(known.created_on),
                        "modified_on": _format_timestamp(known.modified_on),
                    }
                    for folder, known in facts.items()
                ],
            )
            # The files' version column follows the row, for other systems that join on it.
            versions = sa.select(rows.c.version).where(rows.c._id == files.c.skill).scalar_subquery()
            conn.execute(files.update().where(files.c.skill.in_(list(facts))).values(version=versions))
            return self._read_stamps(conn, facts)

    def archive_folder(self, folder: str, archived_as: str) -> None:
        """Delete the row; the history has every file."""
        with sql.write_transaction(self._engine) as conn:
            conn.execute(files.delete().where(files.c.skill == folder))
            conn.execute(rows.delete().where(rows.c._id == folder))

    def unarchive_folder(self, archived_as: str, folder: str) -> bool:
        """Return False: there is no archive, and the history restores the files."""
        return False

    def remove_leftovers_of_interrupted_writes(self) -> None:
        pass

    def _read_stamps(self, conn: sa.Connection, folders: Collection[str]) -> dict[str, str]:
        query = _STAMPS_QUERY.where(rows.c._id.in_(list(folders)))
        return dict(conn.execute(query).all())

    def _read_files(self, conn: sa.Connection, folders: Collection[str]) -> dict[str, dict[str, TreeFile]]:
        found: dict[str, dict[str, TreeFile]] = {folder: {} for folder in folders}
        for row in conn.execute(_FILES_QUERY, {"folders": list(folders)}) if folders else ():
            found[row.skill][row.path] = build_tree_file(bytes(row.bytes), executable=row.executable)
        return found

    def _replace_files(self, conn: sa.Connection, wanted: Mapping[str, Tree], there: Mapping[str, Tree]) -> None:
        if any(there.values()):
            conn.execute(files.delete().where(files.c.skill.in_(list(wanted))))
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
            conn.execute(files.insert(), values)


_STAMP_COLUMNS = (
    *(rows.c[name] for name in ("_id", "version", "enabled", "modified_on")),
    *(sa.func.length(rows.c[name]) for name in ("title", "description", "content", "tags", "source", "fields")),
)
# One text per row, built by the database: building a hundred thousand of them in Python takes seconds.
_STAMP_TEXTS: list[sa.ColumnElement[str]] = [sa.func.coalesce(sa.cast(value, sa.Text), "") for value in _STAMP_COLUMNS]
_STAMP = functools.reduce(lambda said, one: said + "|" + one, _STAMP_TEXTS)
_STAMPS_QUERY = sa.select(rows.c._id, _STAMP).order_by(rows.c._id)
# Built once: building the statement takes longer than reading the row.
_FOLDERS_PARAMETER: sa.BindParameter[str] = sa.bindparam("folders", expanding=True)
_ROWS_QUERY = sa.select(rows, _STAMP.label("stamp")).where(rows.c._id.in_(_FOLDERS_PARAMETER))
_FILES_QUERY = sa.select(files).where(files.c.skill.in_(_FOLDERS_PARAMETER)).order_by(files.c.path)


def _build_folder_contents_from_row(row: Mapping[Any, Any], stamp: str, others: Tree) -> FolderContents:
    """Return a row and its files as the content of one folder."""
    try:
        main = build_tree_file(_render_main_file(_parse_skill(row), others.get(MAIN_FILE)))
    except ValueError as error:
        problem = Diagnostic(
            file=f"agent_skills/{row['_id']}",
            message=f"The row can't be read: {error}.",
            hint="Correct its columns.",
            severity=Severity.ERROR,
        )
        return FolderContents(tree=others, stamp=stamp, problem=problem, facts=_parse_facts(row))
    return FolderContents(tree={**others, MAIN_FILE: main}, stamp=stamp, facts=_parse_facts(row))


def _split_skill_from_files(folder: str, tree: Tree) -> tuple[Skill | None, Tree]:
    """Split a tree into the skill for the columns and the files to store beside them."""
    skill, main = trees.parse_skill_tree(folder, tree).skill, trees.find_main_file(tree)
    content = tree[main].content if main is not None else None
    others = {path: file for path, file in tree.items() if path != main}
    if content is not None and (skill is None or skill_md.render_skill_md(skill, is_checked=False) != content):
        # The columns can't hold the comments, order and unknown keys of a hand-written file.
        others[MAIN_FILE] = build_tree_file(content)
    return skill, others


def _parse_facts(row: Mapping[Any, Any]) -> BackendSkillFacts:
    return BackendSkillFacts(
        version=row["version"] or 0,
        enabled=None if row["enabled"] is None else bool(row["enabled"]),
        created_on=_parse_timestamp(row["created_on"]),
        modified_on=_parse_timestamp(row["modified_on"]),
    )


def _parse_skill(row: Mapping[Any, Any]) -> Skill:
    """Parse the skill from its columns; raise ValueError for an invalid one."""
    fields = json.loads(row["fields"] or "{}")
    tags = json.loads(row["tags"] or "[]")
    if not isinstance(fields, dict) or not isinstance(tags, list):
        raise ValueError("'tags' must be a JSON list and 'fields' a JSON object")
    values = {**fields, "title": row["title"] or "", "description": row["description"] or ""}
    summary = records.unpack_summary(values, name=names.slugify(row["_id"]))
    source = SkillSource(row["source"]) if row["source"] in list(SkillSource) else SkillSource.USER
    skill = records.build_skill_from_summary(summary, skill_md.normalize_body(row["content"] or ""))
    return replace(skill, tags=tuple(str(tag) for tag in tags), source=source)


def _render_main_file(skill: Skill, raw: TreeFile | None) -> bytes:
    """Render SKILL.md from the row, based on the hand-written text if there is one."""
    if raw is not None and raw.content is not None:
        return skill_md.update_skill_md(raw.content, skill, is_checked=False)
    return skill_md.render_skill_md(skill, is_checked=False)


_NO_VALUES: Mapping[str, Any] = dict.fromkeys(("title", "description", "content", "tags", "source", "fields"))


def _build_replaced_column_expressions(new: sa.ColumnCollection[str, Any]) -> dict[str, Any]:
    """Return the columns that a write replaces; NULL in the new row keeps the old title and the like."""
    kept = {name: sa.func.coalesce(new[name], rows.c[name]) for name in ("title", "description", "tags", "source")}
    return {**kept, "content": new["content"], "fields": new["fields"]}


def _build_column_values(skill: Skill) -> dict[str, Any]:
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


def _format_timestamp(timestamp: datetime | None) -> str | None:
    return None if timestamp is None else timestamp.astimezone(UTC).isoformat()


def _parse_timestamp(text: str | None) -> datetime | None:
    try:
        timestamp = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    # Other systems write times without a zone; they mean UTC.
    return timestamp if timestamp is None or timestamp.tzinfo else timestamp.replace(tzinfo=UTC)


def _write_directory(tree: Tree, place: Path) -> None:
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
