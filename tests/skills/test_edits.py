"""The five edit operations, and everything that makes them refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.errors import Invalid
from habitus.skills import edits
from habitus.skills.edits import Edit, Operation

pytestmark = pytest.mark.req("SK-09")

SOME_TEXT = st.text("ab$&\\1\n .*[", min_size=1, max_size=12)
ANY_TEXT = st.text("ab$&\\1\n .*[", max_size=30)


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (Edit(), "one two one"),
        (Edit(operation=Operation.REPLACE, content="new"), "new"),
        (Edit(operation=Operation.REPLACE, content=""), ""),
        (Edit(operation=Operation.APPEND, content="three"), "one two one\nthree"),
        (Edit(operation=Operation.PREPEND, content="zero"), "zero\none two one"),
        (Edit(operation=Operation.DELETE, content="one"), " two one"),
        (Edit(operation=Operation.FIND_REPLACE, find="one", replace="1"), "1 two one"),
        (Edit(operation=Operation.FIND_REPLACE, find="one", replace="1", replace_all=True), "1 two 1"),
        (Edit(operation=Operation.FIND_REPLACE, find="one", replace=""), " two one"),
    ],
)
def test_each_operation(edit: Edit, after: str) -> None:
    assert edits.apply("one two one", edit) == after


@pytest.mark.parametrize("literal", ["$&", r"\1", r"\g<0>", "$1", "\\", "%s", "{0}", ".*", "[a"])
def test_text_is_literal_on_both_sides(literal: str) -> None:
    find = Edit(operation=Operation.FIND_REPLACE, find="x", replace=literal)
    assert edits.apply("axb", find) == f"a{literal}b"
    back = Edit(operation=Operation.FIND_REPLACE, find=literal, replace="x")
    assert edits.apply(f"a{literal}b", back) == "axb"
    assert edits.apply(f"a{literal}b", Edit(operation=Operation.DELETE, content=literal)) == "ab"


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
    assert edits.apply(first, Edit(operation=Operation.APPEND, content=second)) == joined
    assert edits.apply(second, Edit(operation=Operation.PREPEND, content=first)) == joined


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (Edit(content="x"), "'content' was given without an operation"),
        (Edit(find="x"), "'find' was given without an operation"),
        (Edit(replace="x"), "'replace' was given without an operation"),
        (Edit(content=""), "'content' was given without an operation"),
        (Edit(operation=Operation.REPLACE), "'replace' needs 'content'"),
        (Edit(operation=Operation.APPEND), "'append' needs 'content'"),
        (Edit(operation=Operation.PREPEND), "'prepend' needs 'content'"),
        (Edit(operation=Operation.DELETE), "'delete' needs 'content'"),
        (Edit(operation=Operation.FIND_REPLACE, replace="x"), "'find_replace' needs 'find'"),
        (Edit(operation=Operation.FIND_REPLACE, find="x"), "'find_replace' needs 'replace'"),
        (Edit(operation=Operation.FIND_REPLACE, find="", replace="x"), "The text to find is empty"),
        (Edit(operation=Operation.DELETE, content=""), "The text to find is empty"),
        (Edit(operation=Operation.FIND_REPLACE, find="nope", replace="x"), "The text 'nope' is not in the skill"),
        (Edit(operation=Operation.DELETE, content="a\nnope"), r"The text 'a\\nnope' is not in the skill"),
    ],
)
def test_a_wrong_edit_says_which_part_is_wrong(edit: Edit, says: str) -> None:
    with pytest.raises(Invalid, match=says) as caught:
        edits.apply("text", edit)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_long_text_that_is_not_found_is_shown_short() -> None:
    with pytest.raises(Invalid) as caught:
        edits.apply("text", Edit(operation=Operation.DELETE, content="x" * 10_000))
    assert len(str(caught.value)) < 200


@given(ANY_TEXT, SOME_TEXT, SOME_TEXT)
def test_replacing_all_leaves_none_behind_and_touches_nothing_else(text: str, find: str, replace: str) -> None:
    edit = Edit(operation=Operation.FIND_REPLACE, find=find, replace=replace, replace_all=True)
    if find not in text:
        with pytest.raises(Invalid):
            edits.apply(text, edit)
        return
    assert edits.apply(text, edit).split(replace) == replace.join(text.split(find)).split(replace)


@given(ANY_TEXT, SOME_TEXT, ANY_TEXT)
def test_deleting_what_was_put_in_gives_back_the_text(before: str, part: str, after: str) -> None:
    whole = before + part + after
    left = edits.apply(whole, Edit(operation=Operation.DELETE, content=part))
    at = whole.index(part)
    assert left == whole[:at] + whole[at + len(part) :]


@given(ANY_TEXT, ANY_TEXT)
def test_append_keeps_both_parts_whole_with_a_newline_between(text: str, added: str) -> None:
    joined = edits.apply(text, Edit(operation=Operation.APPEND, content=added))
    assert joined.startswith(text)
    assert joined.endswith(added)
    assert len(joined) - len(text) - len(added) in (0, 1)
    assert not text or not added or "\n" in joined[len(text) - 1 : len(joined) - len(added) + 1]
