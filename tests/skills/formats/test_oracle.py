"""Our reading and writing against the reference validator of the standard, `skills-ref`."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import skills_ref
from hypothesis import given

from habitus.skills.formats import skill_md
from habitus.skills.model import Severity, Skill
from tests.skills.formats.strategies import SKILLS, files

pytestmark = pytest.mark.req("SK-01", "SK-02")


def _oracle(content: bytes, name: str) -> list[str]:
    """What the reference validator says of a file; one that it can't even read counts as refused."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / name
        folder.mkdir()
        (folder / "SKILL.md").write_bytes(content)
        try:
            return list(skills_ref.validate(folder))
        except Exception as error:  # it raises on some input
            return [f"{type(error).__name__}: {error}"]


@pytest.mark.full
@given(SKILLS)
def test_everything_we_write_is_valid(skill: Skill) -> None:
    assert _oracle(skill_md.render_skill_md(skill), skill.name) == []


# Where the reference and we differ, and why ours is the better word: what a verdict says → the reason.
REFUSED_ONLY_THERE = {
    r"must start with YAML frontmatter": "a byte order mark is read past; it is no character of the text",
    r"not properly closed": "it counts any '---', we count lines",
    r"Invalid YAML": "strict YAML refuses flow style, tags, anchors, repeated keys and unquoted colons; we read "
    "and say them. And it cuts the block at any '---', also inside a value",
    r"UnicodeDecodeError|CharacterError|ReaderError|special characters": "it raises where we say what is wrong",
    r"Unexpected fields": "said as a note: strict readers want them under metadata",
    r"required field in frontmatter: name|must match skill name|Skill name|'name' must": "the folder names the skill; "
    "another name is said",
    r"required field in frontmatter: description|'description' must|Description exceeds": "said as a warning",
    r"Compatibility exceeds|'compatibility' must": "a list is read as text; length matters to the reader only",
    r"must be a YAML mapping": "an empty block is a skill without fields; it is said that they are missing",
}
REFUSED_ONLY_HERE = {
    r"never closed": "it takes '------' or a '---' amid a line for the closing fence",
    r"no frontmatter": "it takes '----' for the opening fence",
    r"not valid YAML|is a list|is a single text": "it reads only up to the first '---', we read the whole block",
    r"NUL byte": "it never looks at the body; a NUL ends the text in many a tool",
}
SAID_ONLY_HERE = {
    r"no steps": "the standard has no word on the body; a skill without one teaches nothing",
    r"which is not|not a block": "fields whose form the standard leaves open",
    r"no description|no legal name|the folder counts|appears twice|no quotes": "it saw only the part before a '---'",
}


def _is_in(table: dict[str, str], said: str) -> bool:
    return any(re.search(pattern, said) for pattern in table)


def _unexplained(content: bytes, name: str) -> list[str]:
    """What one of the two says, the other doesn't, and no table explains."""
    theirs = _oracle(content, name)
    ours = skill_md.parse_skill_md_with_diagnostics(name, content)
    if ours.skill is None:
        return [] if theirs or _is_in(REFUSED_ONLY_HERE, ours.diagnostics[-1].message) else [str(ours.diagnostics[-1])]
    if theirs:
        return [said for said in theirs if not _is_in(REFUSED_ONLY_THERE, said)]
    loud = [d.message for d in ours.diagnostics if d.severity is Severity.WARNING]
    return [what for what in loud if not _is_in(SAID_ONLY_HERE, what)]


@given(files())
def test_our_verdict_on_any_file_agrees_or_the_table_says_why(content: bytes) -> None:
    assert _unexplained(content, "csv-summary") == []


def test_our_verdict_on_collected_files_agrees_or_the_table_says_why() -> None:
    """Every SKILL.md of the public collections, where they are at hand; else the ones that come along."""
    data = os.environ.get("HABITUS_BENCH_DATA")
    root = Path(data) / "skill_collections" if data else Path(skill_md.__file__).parents[2] / "bundled"
    found = [path for path in sorted(root.rglob("*")) if path.name in ("SKILL.md", "skill.md")]
    loadable = Counter(
        skill_md.parse_skill_md_with_diagnostics(path.parent.name, path.read_bytes()).skill is not None
        for path in found
    )
    assert loadable[True] >= 0.9 * len(found)
    assert {path: said for path in found if (said := _unexplained(path.read_bytes(), path.parent.name))} == {}
