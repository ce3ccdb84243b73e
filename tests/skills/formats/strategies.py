"""Skills and files of every kind, for laws about formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from habitus.skills.formats import frontmatter_fields, skill_md
from habitus.skills.model import Manifest, Skill, SkillSource

# What YAML, its lenient readers and people who write by hand trip over.
_TRAPS = [
    "---", "--- ", "\n---\n", ": ", " #", "# ", "'", '"', "\\", "\n", "\r\n", "\t", "  ", "- ", "? ", "| ", "> ",
    "&a", "*a", "!!int ", "%", "@", "`", "{", "}", "[", "]", ",", "yes", "no", "null", "~", "true", "1.0", "0x1F",
    "2024-01-01", ".inf", "…", "é", "中", "😀", "\u200d", "\u2028", "\x85", "\xa0", "\x07", "\x1b[31m", "\x00",
    "\ufeff", "=", "<<", "...", "a", "Z",
]  # fmt: skip

_CHARACTERS = st.characters(exclude_categories=["Cs"])


def texts(*, max_size: int = 60, without: str = "") -> st.SearchStrategy[str]:
    """Any text, with the traps more often than chance would have them."""
    pieces = st.lists(st.sampled_from(_TRAPS) | st.text(_CHARACTERS, max_size=6), max_size=8).map("".join)
    return pieces.map(lambda text: "".join(c for c in text if c not in without)[:max_size])


_LISTS = st.lists(texts(max_size=20), max_size=3).map(tuple)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | texts(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(max_size=10), inner, max_size=3),
    max_leaves=5,
)
_OBJECTS = st.dictionaries(texts(max_size=10), _JSON, max_size=3)

MANIFESTS = st.builds(
    Manifest,
    triggers=_LISTS,
    always_include=st.booleans(),
    admin_only=st.booleans(),
    experimental=st.booleans(),
    dependencies=_LISTS,
    env=st.lists(_OBJECTS, max_size=2).map(tuple),
    paths=_LISTS,
    requires_tools=_LISTS,
    extends=st.booleans(),
    placeholders=st.booleans(),
    user_invocable=st.booleans(),
) | st.just(Manifest())

_KNOWN = {key.replace("-", "_") for key in frontmatter_fields.STANDARD_KEYS} | set(Manifest.__slots__)
_FOREIGN = texts(max_size=12).filter(lambda key: not key.startswith(frontmatter_fields.METADATA_PREFIX))
_UNKNOWN = st.sampled_from(["version", "model", "argument-hint", "hooks", "x y", "---"])

SKILLS = st.builds(
    Skill,
    name=st.sampled_from(["csv-summary", "a", "x" * 64]),
    title=texts(),
    description=texts(without="<>").filter(lambda text: text.strip()),
    when_to_use=texts(without="<>"),
    tags=_LISTS,
    source=st.sampled_from(SkillSource),
    license=texts(),
    compatibility=texts(),
    allowed_tools=texts(),
    manifest=MANIFESTS,
    provenance=_OBJECTS,
    metadata=st.dictionaries(_FOREIGN, texts(), max_size=3),
    extra=st.dictionaries(_UNKNOWN, _JSON, max_size=2),
    body=texts(max_size=200, without="\x00"),
)


def as_kept(skill: Skill) -> Skill:
    """The skill as a file keeps it: texts without the space around them, lists without empty entries."""
    manifest = skill.manifest
    lists = {name: _kept(getattr(manifest, name)) for name in ("triggers", "dependencies", "paths", "requires_tools")}
    return replace(
        skill,
        title=skill.title.strip(),
        description=skill.description if skill.when_to_use.strip() else skill.description.strip(),
        when_to_use=skill.when_to_use.strip(),
        tags=_kept(skill.tags),
        license=skill.license.strip(),
        compatibility=skill.compatibility.strip(),
        allowed_tools=skill.allowed_tools.strip(),
        manifest=replace(manifest, **lists),  # type: ignore[arg-type]  # all of them are tuples of texts
        body=skill_md.normalize_body(skill.body),
        stated=frozenset(),
    )


def _kept(items: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text for item in items if (text := item.strip()))


_LINES = st.sampled_from(
    [
        "name: csv-summary", "name: yes", "name: [a]", "description: Sums: up", "description: 'quoted'",
        "description: |", "  indented text", "description: >-", "# a comment", "", "title: T # trailing",
        "tags: [a, b]", "tags: a, b", "tags:", "- item", "  - item", "metadata:", "  habitus.title: T",
        "  habitus.tags: '[\"a\"]'", "  author: me", "metadata: {a: b}", "metadata: x", "anchor: &a [x]",
        "alias: *a", "<<: *a", "? complex", ": value", "version: 1.0", "when_to_use: Now",
        "description: D. Use when now", "  habitus.description: D", "  habitus.when_to_use: now", "\tname: tab",
        "key: !!int x", "title: 'a'", "title: b", '"quoted key": v', "allowed-tools: [Read, Bash]",
        "always_include: perhaps", "env: [{a: b}]", "...", "--- x", "extra: {a: b}", "provenance: {a: [b]}",
        "triggers: [[a]]", "a-b: 1", "a_b: 2", "hooks: {a: {b: [c]}}",
    ]
)  # fmt: skip
_NEWLINES = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"])


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Files as people, programs and accidents write them."""
    newlines = _NEWLINES if draw(st.booleans()) else st.just(draw(_NEWLINES))
    text = draw(st.sampled_from(["", "", "", "\ufeff", " ", "\n"]))
    text += draw(st.sampled_from(["---", "---", "---", "--- ", "----", ""])) + draw(newlines)
    if draw(st.booleans()):
        text += "name: csv-summary" + draw(newlines) + "description: D" + draw(newlines)
    for line in draw(st.lists(_LINES, max_size=6)):
        text += line + draw(newlines)
    text += draw(st.sampled_from(["---", "---", "---", "---\t", ""])) + draw(st.just("") | newlines)
    text += draw(st.sampled_from(["", "\n", "\n\n", "\r\n"])) + draw(texts(max_size=80)) + draw(st.just("") | newlines)
    return text.encode()


def without_database_fields(skill: Skill | None) -> Mapping[str, Any]:
    """Everything a file says of a skill."""
    assert skill is not None
    return {name: getattr(skill, name) for name in skill.__dataclass_fields__ if name not in ("stated", "stages")}
