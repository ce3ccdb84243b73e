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
from habitus.files import File, Tree
from habitus.skills.editable_fields import LISTS
from habitus.skills.model import (
    PLAIN_MANIFEST,
    Actor,
    Author,
    Diagnostic,
    Manifest,
    Severity,
    Skill,
    Source,
    Stage,
    Summary,
)

# These fields have columns of their own.
_IN_THE_ROW = {"name", "layer", "version", "enabled", "created_on", "modified_on", "manifest", "body"}
_SUMMARY = [field for field in dataclasses.fields(Summary) if field.name not in _IN_THE_ROW]
_TUPLES = {field.name for field in dataclasses.fields(Manifest) if isinstance(field.default, tuple)}
_PLAIN = Summary(name="")


def pack_summary(summary: Summary) -> str:
    """Serialize a summary as JSON, without defaults and without the fields that have columns."""
    values: dict[str, Any] = {}
    for field in _SUMMARY:
        value = getattr(summary, field.name)
        if value != getattr(_PLAIN, field.name):
            values[field.name] = sorted(value) if isinstance(value, frozenset) else value
    # Identity first: comparing every field of the default manifest would dominate a large import.
    manifest = summary.manifest is not PLAIN_MANIFEST and {
        field.name: value
        for field in dataclasses.fields(Manifest)
        if (value := getattr(summary.manifest, field.name)) != getattr(PLAIN_MANIFEST, field.name)
    }
    if manifest:
        values["manifest"] = manifest
    return json.dumps(values, ensure_ascii=False)


def unpack_summary(values: dict[str, Any], **row: Any) -> Summary:
    """Rebuild a summary from its JSON; `row` gives the fields that have columns."""
    for name in LISTS & values.keys():
        values[name] = tuple(values[name])
    if "source" in values:
        values["source"] = Source(values["source"])
    if "stated" in values:
        values["stated"] = frozenset(values["stated"])
    if "stages" in values:
        values["stages"] = frozenset(Stage(name) for name in values["stages"])
    if "manifest" in values:
        manifest: dict[str, Any] = {
            key: tuple(value) if key in _TUPLES else value for key, value in values["manifest"].items()
        }
        values["manifest"] = Manifest(**manifest)
    return Summary(**values, **row)


def with_body(summary: Summary, body: str) -> Skill:
    """Return the summary as a skill with this body."""
    values = {field.name: getattr(summary, field.name) for field in dataclasses.fields(Summary)}
    return Skill(**values, body=body)


def without_body(skill: Summary, **changes: Any) -> Summary:
    """Return the skill as a summary, with some fields replaced."""
    return Summary(**{field.name: getattr(skill, field.name) for field in dataclasses.fields(Summary)} | changes)


def pack_diagnostics(diagnostics: Iterable[Diagnostic]) -> str:
    """Serialize diagnostics as JSON."""
    return json.dumps([[d.file, d.what, d.hint, d.severity] for d in diagnostics], ensure_ascii=False)


def unpack_diagnostics(text: str) -> tuple[Diagnostic, ...]:
    # Most skills have none, and parsing thousands of empty lists takes time.
    """Rebuild diagnostics from their JSON."""
    if text == "[]":
        return ()
    return tuple(
        Diagnostic(file=file, what=what, hint=hint, severity=Severity(severity))
        for file, what, hint, severity in json.loads(text)
    )


def pack_author(author: Author) -> str:
    """Serialize an author; queries match the beginning and end of this text."""
    return json.dumps([author.actor, author.name, author.reason, author.change], ensure_ascii=False)


def unpack_author(text: str) -> Author:
    """Rebuild an author from its JSON."""
    # Rows written before changes had ids hold three elements.
    actor, name, reason, *change = json.loads(text)
    return Author(actor=Actor(actor), name=name, reason=reason, change=change[0] if change else "")


def pack_tree(tree: Tree) -> str:
    """Serialize a tree as path → [sha256, size, executable], without contents."""
    return json.dumps({path: [file.sha256, file.size, file.executable] for path, file in tree.items()})


def unpack_tree(text: str) -> dict[str, File]:
    """Return a tree without contents; `LayerDatabase.load_contents` adds them."""
    return {
        path: File(sha256=sha256, size=size, executable=executable)
        for path, (sha256, size, executable) in json.loads(text).items()
    }


T = TypeVar("T")


def pack(content: bytes) -> bytes:
    """Compress the content of a file."""
    # Most files are small: level 1 with a small window takes a third less time and hardly more space.
    packer = zlib.compressobj(1, zlib.DEFLATED, 13, 6)
    return packer.compress(content) + packer.flush()


def unpack(packed: bytes, sha256: str) -> bytes | None:
    """Return the content stored under this hash, or None if it is damaged."""
    with suppress(zlib.error, TypeError):
        content = zlib.decompress(packed)
        return content if hashlib.sha256(content).hexdigest() == sha256 else None
    return None


def whole(kept: T | None) -> T:
    """Return a stored value; raise `StorageFailed` if it is None because it failed its hash check."""
    if kept is None:
        what = "What the history keeps of this version is damaged: its files are not those of its hash."
        raise StorageFailed(what, hint="See 'habitus doctor'.")
    return kept
