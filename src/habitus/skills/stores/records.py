"""Skills as the database keeps them: summaries, diagnostics and authors as JSON text, of which only what differs
from the default is kept; and contents packed under their hash, and believed only when they still have it.
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

# The row itself has these.
_IN_THE_ROW = {"name", "layer", "version", "enabled", "created_on", "modified_on", "manifest", "body"}
_SUMMARY = [field for field in dataclasses.fields(Summary) if field.name not in _IN_THE_ROW]
_TUPLES = {field.name for field in dataclasses.fields(Manifest) if isinstance(field.default, tuple)}
_PLAIN = Summary(name="")


def pack_summary(summary: Summary) -> str:
    values: dict[str, Any] = {}
    for field in _SUMMARY:
        value = getattr(summary, field.name)
        if value != getattr(_PLAIN, field.name):
            values[field.name] = sorted(value) if isinstance(value, frozenset) else value
    manifest = summary.manifest is not PLAIN_MANIFEST and {
        field.name: value
        for field in dataclasses.fields(Manifest)
        if (value := getattr(summary.manifest, field.name)) != getattr(PLAIN_MANIFEST, field.name)
    }
    if manifest:
        values["manifest"] = manifest
    return json.dumps(values, ensure_ascii=False)


def unpack_summary(values: dict[str, Any], **row: Any) -> Summary:
    """The summary that a row describes, from its JSON; `row` gives the fields that have columns of their own."""
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
    values = {field.name: getattr(summary, field.name) for field in dataclasses.fields(Summary)}
    return Skill(**values, body=body)


def without_body(skill: Summary, **changes: Any) -> Summary:
    return Summary(**{field.name: getattr(skill, field.name) for field in dataclasses.fields(Summary)} | changes)


def pack_diagnostics(diagnostics: Iterable[Diagnostic]) -> str:
    return json.dumps([[d.file, d.what, d.mend, d.severity] for d in diagnostics], ensure_ascii=False)


def unpack_diagnostics(text: str) -> tuple[Diagnostic, ...]:
    if text == "[]":
        return ()
    return tuple(
        Diagnostic(file=file, what=what, mend=mend, severity=Severity(severity))
        for file, what, mend, severity in json.loads(text)
    )


def pack_author(author: Author) -> str:
    return json.dumps([author.actor, author.name, author.reason, author.change], ensure_ascii=False)


def unpack_author(text: str) -> Author:
    actor, name, reason, *change = json.loads(text)
    return Author(actor=Actor(actor), name=name, reason=reason, change=change[0] if change else "")


def pack_tree(tree: Tree) -> str:
    return json.dumps({path: [file.sha256, file.size, file.executable] for path, file in tree.items()})


def unpack_tree(text: str) -> dict[str, File]:
    """A tree without contents; `Ledger.contents` adds them."""
    return {
        path: File(sha256=sha256, size=size, executable=executable)
        for path, (sha256, size, executable) in json.loads(text).items()
    }


T = TypeVar("T")


def pack(content: bytes) -> bytes:
    """Most files are small: a small window takes a third less time and hardly more room."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 13, 6)
    return packer.compress(content) + packer.flush()


def unpack(packed: bytes, sha256: str) -> bytes | None:
    """The content that was kept under this hash; None where it is another, or can't be unpacked."""
    with suppress(zlib.error, TypeError):
        content = zlib.decompress(packed)
        return content if hashlib.sha256(content).hexdigest() == sha256 else None
    return None


def whole(kept: T | None) -> T:
    """The text that history keeps, unless it is not the one that was put there."""
    if kept is None:
        what = "What the history keeps of this version is damaged: its files are not those of its hash."
        raise StorageFailed(what, mend="See 'habitus doctor'.")
    return kept
