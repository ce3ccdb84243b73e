"""Changing some fields of a block while every other byte stays."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.skills.formats import frontmatter
from tests.skills.formats.strategies import texts

HAND_WRITTEN = """\
# The monthly numbers
name: report   # keep this
"title": 'Old title'

# Seen by everybody
description: >-
  Builds the report
  from the export.
tags: [a, b]
metadata:
  # ours
  habitus.title: "T"
  author: me
  deep:
    - 1
custom: {x: 1}  # unknown to us
# the end
"""


def _changed(front: str, changes: frontmatter.FrontMatterChanges) -> str:
    return frontmatter.change_fields(front, changes, "SKILL.md")


def _difference(changes: frontmatter.FrontMatterChanges, front: str = HAND_WRITTEN) -> list[str]:
    """The lines that a change takes away and puts in."""
    lines = difflib.ndiff(front.splitlines(), _changed(front, changes).splitlines())
    return [line for line in lines if line[0] in "+-"]


def test_no_change_changes_nothing() -> None:
    assert _changed(HAND_WRITTEN, {}) == HAND_WRITTEN


def test_each_kind_of_change_touches_only_its_own_lines() -> None:
    assert _difference({"title": "New: title"}) == ["- \"title\": 'Old title'", '+ title: "New: title"']
    assert _difference({"description": "Short."}) == [
        "- description: >-",
        "+ description: Short.",
        "-   Builds the report",
        "-   from the export.",
    ]
    assert _difference({"tags": None}) == ["- tags: [a, b]"]
    assert _difference({"license": "MIT"}) == ["+ license: MIT"]
    assert _difference({"metadata": {"author": "you", "habitus.tags": '["x"]', "habitus.title": None}}) == [
        '-   habitus.title: "T"',
        "-   author: me",
        "+   author: you",
        "+   habitus.tags: '[\"x\"]'",
    ]


def test_a_nested_block_that_loses_its_last_entry_goes() -> None:
    assert _changed("name: a\nmetadata:\n  x: y\nz: 1\n", {"metadata": {"x": None}}) == "name: a\nz: 1\n"


def test_a_nested_block_is_made_where_there_is_none() -> None:
    assert _changed("name: a\n", {"metadata": {"habitus.title": "T"}}) == "name: a\nmetadata:\n  habitus.title: T\n"
    assert _changed("", {"name": "a"}) == "name: a\n"


@pytest.mark.parametrize(
    ("front", "changes", "kept"),
    [
        ("{name: a, title: b}  # flow\n", {"title": "c"}, "# flow"),
        ("name: &n a\ntitle: *n\n# note\n", {"title": "c"}, "# note"),
        ("name: a\nmetadata: {x: y}\n# note\n", {"metadata": {"x": "z"}}, "# note"),
        ("name: a\ndescription: Sums: all\n# note\n", {"name": "b"}, "# note\n"),
        ("title: a\n# note\ntitle: b\n", {"title": "c"}, "# note\n"),
        ("name: a\nmetadata: just text\n", {"metadata": {"x": "z"}}, "name: a\n"),
        ("? name\n: a\ntitle: b\n", {"title": "c"}, ""),
        ("{name: a, name: b}\n", {"name": "c"}, ""),
        ("description: Sums: all\nmetadata: {a: b}\n", {"metadata": {"a": "c"}}, ""),
        ('{a: "x: y", metadata: {a: b}}\n', {"metadata": {"a": None}}, ""),
    ],
)  # fmt: skip
def test_what_lines_cannot_do_is_done_all_the_same(
    front: str, changes: frontmatter.FrontMatterChanges, kept: str
) -> None:
    wanted = frontmatter.parse_fields_with_diagnostics(front, "SKILL.md")[0]
    for key, value in changes.items():
        if isinstance(value, str):
            wanted[key] = value
        elif value is not None:
            below = wanted.get(key)
            merged = {**(below if isinstance(below, dict) else {}), **value}
            wanted[key] = {name: text for name, text in merged.items() if text is not None}
            if not wanted[key]:
                del wanted[key]
    after = _changed(front, changes)
    assert frontmatter.parse_fields_with_diagnostics(after, "SKILL.md")[0] == wanted
    assert kept in after


_KEYS = st.sampled_from(
    ["name", "title", "description", "tags", "license", "custom", "habitus.x", "weird key", "---", "no"]
)
_NESTED = st.dictionaries(
    st.sampled_from(["author", "deep", "habitus.title", "new: one"]), texts() | st.none(), min_size=1
)


@given(st.dictionaries(_KEYS, texts() | st.none(), max_size=3), _NESTED | st.none(), st.booleans())
def test_the_block_says_what_was_asked_and_keeps_every_comment(
    plain: dict[str, str | None], nested: dict[str, str | None] | None, is_gone: bool
) -> None:
    changes: dict[str, str | dict[str, str | None] | None] = dict(plain)
    if nested is not None:
        changes["metadata"] = None if is_gone else nested
    after = _changed(HAND_WRITTEN, changes)
    fields = frontmatter.parse_fields_with_diagnostics(after, "SKILL.md")[0]
    before = frontmatter.parse_fields_with_diagnostics(HAND_WRITTEN, "SKILL.md")[0]
    for key in {*before, *fields, *changes} - {"metadata"}:
        assert fields.get(key) == (changes[key] if key in changes else before.get(key))
    for comment in ("# The monthly numbers", "# Seen by everybody", "# the end"):
        assert comment in after.splitlines()
    if "metadata" not in changes:
        assert fields["metadata"] == before["metadata"]
