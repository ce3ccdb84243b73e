"""Skills and texts that the tests of the formats make up, from plain to awkward."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from habitus.files import Tree, build_tree_file
from habitus.skills.formats import archives, conversion, skill_md
from habitus.skills.formats.archives import ArchiveLimits
from habitus.skills.formats.base import (
    ImportEntry,
    IncomingSkill,
    OutgoingSkill,
    PlaybookLesson,
    SkippedEntry,
    UnreadableEntryError,
)
from habitus.skills.formats.foreign_values import MAX_COUNT, DiagnosticCollector
from habitus.skills.model import Manifest, Skill, SkillSource, Stage
from habitus.use_counts import UsageCounts

NOW = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)

# Every property test writes files: a directory of its own for each example.
law = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

_AWKWARD = [
    *("---", "a: b", "- x", "{BOT_NAME}", "${HOME}", '"', "'", "`", "\\", "#", "|", ">", "<b>", "&amp;", "*x*", "%"),
    *(
        "\n",
        "\r\n",
        "\n---\n",
        "\n\n",
        "\t",
        "\x00",
        "\x07",
        "\x7f",
        "\x85",
        "\u2028",
        "\ufeff",
        "…",
        "日本語",
        "🙂",
        "é",
    ),
    *("true", "null", "1.0", "2026-01-01", "~", "[a, b]", "{}", "]]>", "$&", "\\1", " ", "```", "## x", "```yaml"),
]
chars = st.characters(exclude_categories=["Cs"])
any_text = st.lists(st.one_of(st.text(chars, max_size=12), st.sampled_from(_AWKWARD)), max_size=6).map("".join)
some_text = any_text.filter(lambda text: bool(text.strip()))
timestamps = st.datetimes(datetime(2001, 1, 1), datetime(2099, 1, 1)).map(lambda value: value.replace(tzinfo=UTC))
counts = st.integers(0, MAX_COUNT)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)
words = st.lists(st.text("abcxyz ._-:,'", min_size=1, max_size=12).map(str.strip).filter(bool), max_size=3).map(tuple)
legal_names = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,3}", fullmatch=True)
folder_names = st.one_of(
    legal_names,
    legal_names.map(lambda name: name.replace("-", "_")),
    st.text(chars, min_size=1, max_size=20),
).filter(lambda name: conversion.is_safe_file_name(name) and not name.startswith("."))


@st.composite
def counters(draw: st.DrawFn) -> UsageCounts:
    return UsageCounts(
        recommended=draw(counts),
        used=draw(counts),
        succeeded=draw(counts),
        failed=draw(counts),
        last_used=draw(st.none() | timestamps),
    )


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    flags = ("always_include", "admin_only", "cli", "experimental", "exclude_memory", "exclude_persona")
    lists = ("triggers", "resource_types", "source_types", "file_types", "companion_skills", "exclude_skills")
    spec = st.fixed_dictionaries({"var": st.text("ABC_", min_size=1), "from": any_text, "sensitive": st.booleans()})
    values: dict[str, Any] = {name: draw(st.booleans()) for name in (*flags, "exclude_resources")}
    values |= {name: draw(words) for name in lists}
    return Manifest(**values, dependencies=draw(words), env=tuple(draw(st.lists(spec, max_size=2))))


@st.composite
def skills(draw: st.DrawFn) -> Skill:
    """Any skill that SKILL.md can hold, with no trace of another layout."""
    raw = Skill(
        name=draw(legal_names),
        title=draw(any_text),
        description=draw(any_text),
        when_to_use=draw(any_text),
        tags=tuple(draw(st.lists(any_text, max_size=3))),
        source=draw(st.sampled_from(SkillSource)),
        version=draw(st.integers(1, 10_000)),
        enabled=draw(st.booleans()),
        created_on=draw(st.none() | timestamps),
        modified_on=draw(st.none() | timestamps),
        body=draw(any_text),
    )
    fitted = conversion.fit_to_skill_md(
        raw,
        format="",
        original_name=raw.name,
        frame=conversion.PLAIN_TEXT_FRAME,
        notes=DiagnosticCollector(""),
        remembered={},
    )
    return replace(fitted, provenance={})


def plain_skill(name: str = "csv-summary", **changes: Any) -> Skill:
    skill = Skill(name=name, description="Summarises a CSV file.", body="1. Read it.\n2. Say what is in it.")
    return replace(skill, **changes)


def outgoing(
    skill: Skill, files: Mapping[str, bytes] | None = None, counters: Mapping[Stage, UsageCounts] | None = None
) -> OutgoingSkill:
    tree = {"SKILL.md": build_tree_file(skill_md.render_skill_md(skill))}
    tree |= {path: build_tree_file(content) for path, content in (files or {}).items()}
    return OutgoingSkill(skill=skill, tree=tree, counters=counters or {})


def again(entry: IncomingSkill) -> OutgoingSkill:
    """What came in, as it goes out again once a library has it."""
    kept = replace(
        entry.skill,
        version=entry.version,
        enabled=entry.enabled,
        created_on=entry.created_on,
        modified_on=entry.modified_on,
    )
    return OutgoingSkill(skill=kept, tree=entry.tree, counters=entry.counters, status=entry.status)


T = TypeVar("T", IncomingSkill, SkippedEntry, PlaybookLesson)


def of_kind(entries: Iterable[ImportEntry], kind: type[T]) -> list[T]:
    return [entry for entry in entries if isinstance(entry, kind)]


def only(entries: Iterable[ImportEntry]) -> IncomingSkill:
    """The one skill of a reading that had nothing to complain about."""
    found = list(entries)
    assert len(found) == 1, found
    assert isinstance(found[0], IncomingSkill), found[0]
    return found[0]


def taken(entries: Iterable[ImportEntry]) -> list[str]:
    """The names of the skills, when nothing was left out."""
    found = list(entries)
    assert of_kind(found, SkippedEntry) == []
    return [entry.name for entry in of_kind(found, IncomingSkill)]


def reasons(entries: Iterable[ImportEntry]) -> dict[str, str]:
    return {entry.name: entry.reason for entry in of_kind(entries, SkippedEntry)}


def write_files(top: Path, files: Mapping[str, str | bytes]) -> Path:
    for path, content in files.items():
        target = top / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    return top


_number = itertools.count()


def fresh(tmp_path: Path) -> Path:
    """A path of its own for each example of a law."""
    return tmp_path / str(next(_number))


def contents(tree: Tree) -> dict[str, bytes]:
    return {path: file.content or b"" for path, file in tree.items()}


def reason_of(path: Path, limits: ArchiveLimits = archives.DEFAULT_LIMITS) -> str:
    """Why an archive is not unpacked; nothing of it is left anywhere."""
    usual = tempfile.tempdir
    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        try:
            with (
                pytest.raises(UnreadableEntryError) as caught,
                archives.unpack_archive_to_temporary_folder(path, limits=limits),
            ):
                raise AssertionError("it was unpacked")
        finally:
            tempfile.tempdir = usual
        assert not list(Path(scratch).iterdir())
    assert "\n" not in str(caught.value)
    return str(caught.value)
