"""Serialization of skills for the database: JSON text that omits defaults, and compressed file contents verified by
their hash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

from habitus.errors import StorageFailed
from habitus.files import Tree, TreeFile
from habitus.skills.editable_fields import LIST_FIELDS
from habitus.skills.model import (
    DEFAULT_MANIFEST,
    ActorKind,
    Author,
    Diagnostic,
    Manifest,
    Severity,
    Skill,
    SkillSource,
    SkillSummary,
    Stage,
)

# These fields have columns of their own.
_ROW_FIELDS = {"name", "layer", "version", "enabled", "created_on", "modified_on", "manifest", "body"}
_SUMMARY_FIELDS = [field for field in dataclasses.fields(SkillSummary) if field.name not in _ROW_FIELDS]
_TUPLE_FIELDS = {field.name for field in dataclasses.fields(Manifest) if isinstance(field.default, tuple)}
_DEFAULT_SUMMARY = SkillSummary(name="")


def pack_summary(summary: SkillSummary) -> str:
    """Serialize a summary as JSON, without defaults and without the fields that have columns."""
    values: dict[str, Any] = {}
    for field in _SUMMARY_FIELDS:
        value = getattr(summary, field.name)
        if value != getattr(_DEFAULT_SUMMARY, field.name):
            values[field.name] = sorted(value) if isinstance(value, frozenset) else value
    # Identity first: comparing every field of the default manifest would dominate a large import.
    manifest = summary.manifest is not DEFAULT_MANIFEST and {
        field.name: value
        for field in dataclasses.fields(Manifest)
        if (value := getattr(summary.manifest, field.name)) != getattr(DEFAULT_MANIFEST, field.name)
    }
    if manifest:
        values["manifest"] = manifest
    return json.dumps(values, ensure_ascii=False)


def unpack_summary(values: dict[str, Any], **row: Any) -> SkillSummary:
    """Rebuild a summary from its JSON; `row` gives the fields that have columns."""
    for name in LIST_FIELDS & values.keys():
        values[name] = tuple(values[name])
    if "source" in values:
        values["source"] = SkillSource(values["source"])
    if "stated" in values:
        values["stated"] = frozenset(values["stated"])
    if "stages" in values:
        values["stages"] = frozenset(Stage(name) for name in values["stages"])
    if "manifest" in values:
        manifest: dict[str, Any] = {
            key: tuple(value) if key in _TUPLE_FIELDS else value for key, value in values["manifest"].items()
        }
        values["manifest"] = Manifest(**manifest)
    return SkillSummary(**values, **row)


def build_skill_from_summary(summary: SkillSummary, body: str) -> Skill:
    """Return the summary as a skill with this body."""
    values = {field.name: getattr(summary, field.name) for field in dataclasses.fields(SkillSummary)}
    return Skill(**values, body=body)


def to_summary(skill: SkillSummary, **changes: Any) -> SkillSummary:
    """Return the skill as a summary, with some fields replaced."""
    return SkillSummary(**{one.name: getattr(skill, one.name) for one in dataclasses.fields(SkillSummary)} | changes)


def pack_diagnostics(diagnostics: Iterable[Diagnostic]) -> str:
    """Serialize diagnostics as JSON."""
    return json.dumps([[d.file, d.message, d.hint, d.severity] for d in diagnostics], ensure_ascii=False)


def unpack_diagnostics(text: str) -> tuple[Diagnostic, ...]:
    # Most skills have none, and parsing thousands of empty lists takes time.
    """Rebuild diagnostics from their JSON."""
    if text == "[]":
        return ()
    return tuple(
        Diagnostic(file=file, message=what, hint=hint, severity=Severity(severity))
        for file, what, hint, severity in json.loads(text)
    )


def pack_author(author: Author) -> str:
    """Serialize an author; queries match the beginning and end of this text."""
    return json.dumps([author.actor, author.name, author.reason, author.change_id], ensure_ascii=False)


def unpack_author(text: str) -> Author:
    """Rebuild an author from its JSON."""
    # Rows written before changes had ids hold three elements.
    actor, name, reason, *change = json.loads(text)
    return Author(actor=ActorKind(actor), name=name, reason=reason, change_id=change[0] if change else "")


def pack_tree(tree: Tree) -> str:
    """Serialize a tree as path → [sha256, size, executable], without contents."""
    return json.dumps({path: [file.sha256, file.size, file.executable] for path, file in tree.items()})


def unpack_tree(text: str) -> dict[str, TreeFile]:
    """Return a tree without contents; `LayerDatabase.load_contents` adds them."""
    return {
        path: TreeFile(sha256=sha256, size=size, executable=executable)
        for path, (sha256, size, executable) in json.loads(text).items()
    }


T = TypeVar("T")


def compress_content(content: bytes) -> bytes:
    """Compress the content of a file."""
    # Most files are small: level 1 with a small window takes a third less time and hardly more space.
    packer = zlib.compressobj(1, zlib.DEFLATED, 13, 6)
    return packer.compress(content) + packer.flush()


def decompress_content(packed: bytes, sha256: str) -> bytes | None:
    """Return the content stored under this hash, or None if it is damaged."""
    with suppress(zlib.error, TypeError):
        content = zlib.decompress(packed)
        return content if hashlib.sha256(content).hexdigest() == sha256 else None
    return None


def require_intact(kept: T | None) -> T:
    """Return a stored value; raise `StorageFailed` if it is None because it failed its hash check."""
    if kept is None:
        what = "What the history keeps of this version is damaged: its files are not those of its hash."
        raise StorageFailed(what, hint="See 'habitus doctor'.")
    return kept
