"""The five edit operations, and everything that makes them refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.errors import Invalid
from habitus.skills import edits
from habitus.skills.edits import EditOperation, TextEdit

pytestmark = pytest.mark.req("SK-09")

SOME_TEXT = st.text("ab$&\\1\n .*[", min_size=1, max_size=12)
ANY_TEXT = st.text("ab$&\\1\n .*[", max_size=30)


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (TextEdit(), "one two one"),
        (TextEdit(operation=EditOperation.REPLACE, content="new"), "new"),
        (TextEdit(operation=EditOperation.REPLACE, content=""), ""),
        (TextEdit(operation=EditOperation.APPEND, content="three"), "one two one\nthree"),
        (TextEdit(operation=EditOperation.PREPEND, content="zero"), "zero\none two one"),
        (TextEdit(operation=EditOperation.DELETE, content="one"), " two one"),
        (TextEdit(operation=EditOperation.FIND_REPLACE, find="one", replace="1"), "1 two one"),
        (TextEdit(operation=EditOperation.FIND_REPLACE, find="one", replace="1", replace_all=True), "1 two 1"),
        (TextEdit(operation=EditOperation.FIND_REPLACE, find="one", replace=""), " two one"),
    ],
)
def test_each_operation(edit: TextEdit, after: str) -> None:
    assert edits.apply_edit("one two one", edit) == after


@pytest.mark.parametrize("literal", ["$&", r"\1", r"\g<0>", "$1", "\\", "%s", "{0}", ".*", "[a"])
def test_text_is_literal_on_both_sides(literal: str) -> None:
    find = TextEdit(operation=EditOperation.FIND_REPLACE, find="x", replace=literal)
    assert edits.apply_edit("axb", find) == f"a{literal}b"
    back = TextEdit(operation=EditOperation.FIND_REPLACE, find=literal, replace="x")
    assert edits.apply_edit(f"a{literal}b", back) == "axb"
    assert edits.apply_edit(f"a{literal}b", TextEdit(operation=EditOperation.DELETE, content=literal)) == "ab"


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("a", "b", "a\nb"),
        ("a\n", "b", "a\nb"),
        ("a", "\nb", "a\nb"),
        ("a\n", "\nb", "a\n\nb"),
        ("", "b", "b"),
        ("a", "", "a"),
    ],
)
def test_one_newline_is_put_between_the_parts_where_there_is_none(first: str, second: str, joined: str) -> None:
    assert edits.apply_edit(first, TextEdit(operation=EditOperation.APPEND, content=second)) == joined
    assert edits.apply_edit(second, TextEdit(operation=EditOperation.PREPEND, content=first)) == joined


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (TextEdit(content="x"), "'content' was given without an operation"),
        (TextEdit(find="x"), "'find' was given without an operation"),
        (TextEdit(replace="x"), "'replace' was given without an operation"),
        (TextEdit(content=""), "'content' was given without an operation"),
        (TextEdit(operation=EditOperation.REPLACE), "'replace' needs 'content'"),
        (TextEdit(operation=EditOperation.APPEND), "'append' needs 'content'"),
        (TextEdit(operation=EditOperation.PREPEND), "'prepend' needs 'content'"),
        (TextEdit(operation=EditOperation.DELETE), "'delete' needs 'content'"),
        (TextEdit(operation=EditOperation.FIND_REPLACE, replace="x"), "'find_replace' needs 'find'"),
        (TextEdit(operation=EditOperation.FIND_REPLACE, find="x"), "'find_replace' needs 'replace'"),
        (TextEdit(operation=EditOperation.FIND_REPLACE, find="", replace="x"), "The text to find is empty"),
        (TextEdit(operation=EditOperation.DELETE, content=""), "The text to find is empty"),
        (
            TextEdit(operation=EditOperation.FIND_REPLACE, find="nope", replace="x"),
            "The text 'nope' is not in the skill",
        ),
        (TextEdit(operation=EditOperation.DELETE, content="a\nnope"), r"The text 'a\\nnope' is not in the skill"),
    ],
)
def test_a_wrong_edit_says_which_part_is_wrong(edit: TextEdit, says: str) -> None:
    with pytest.raises(Invalid, match=says) as caught:
        edits.apply_edit("text", edit)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_long_text_that_is_not_found_is_shown_short() -> None:
    with pytest.raises(Invalid) as caught:
        edits.apply_edit("text", TextEdit(operation=EditOperation.DELETE, content="x" * 10_000))
    assert len(str(caught.value)) < 200


@given(ANY_TEXT, SOME_TEXT, SOME_TEXT)
def test_replacing_all_leaves_none_behind_and_touches_nothing_else(text: str, find: str, replace: str) -> None:
    edit = TextEdit(operation=EditOperation.FIND_REPLACE, find=find, replace=replace, replace_all=True)
    if find not in text:
        with pytest.raises(Invalid):
            edits.apply_edit(text, edit)
        return
    assert edits.apply_edit(text, edit).split(replace) == replace.join(text.split(find)).split(replace)


@given(ANY_TEXT, SOME_TEXT, ANY_TEXT)
def test_deleting_what_was_put_in_gives_back_the_text(before: str, part: str, after: str) -> None:
    whole = before + part + after
    left = edits.apply_edit(whole, TextEdit(operation=EditOperation.DELETE, content=part))
    at = whole.index(part)
    assert left == whole[:at] + whole[at + len(part) :]


@given(ANY_TEXT, ANY_TEXT)
def test_append_keeps_both_parts_whole_with_a_newline_between(text: str, added: str) -> None:
    joined = edits.apply_edit(text, TextEdit(operation=EditOperation.APPEND, content=added))
    assert joined.startswith(text)
    assert joined.endswith(added)
    assert len(joined) - len(text) - len(added) in (0, 1)
    assert not text or not added or "\n" in joined[len(text) - 1 : len(joined) - len(added) + 1]
