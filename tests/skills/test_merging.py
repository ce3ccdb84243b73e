"""Laws of merging: one change can be taken out of a text, and what others did stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from habitus.files import build_tree_file
from habitus.skills.edits import merge_lines_three_way, revert_change

_LINES = st.lists(st.sampled_from("abcdef"), max_size=8)


@given(_LINES, _LINES)
def test_one_change_alone_is_that_change(base: list[str], changed: list[str]) -> None:
    assert merge_lines_three_way(base, changed, base) == changed
    assert merge_lines_three_way(base, base, changed) == changed
    assert merge_lines_three_way(base, changed, changed) == changed


@given(_LINES, _LINES, _LINES)
def test_the_order_of_two_changes_does_not_matter(base: list[str], one: list[str], other: list[str]) -> None:
    assert merge_lines_three_way(base, one, other) == merge_lines_three_way(base, other, one)


@given(_LINES, _LINES, _LINES)
def test_a_change_above_and_one_below_are_both_kept(above: list[str], below: list[str], changed: list[str]) -> None:
    base = [*above, "-", "=", *below]
    assert merge_lines_three_way(base, [*changed, "-", "=", *below], [*above, "-", "=", "new", *below]) in (
        [*changed, "-", "=", "new", *below],
        None if "new" in changed else [*changed, "-", "=", "new", *below],
    )


def test_files_that_are_no_text_and_files_that_are_gone_conflict_only_where_both_changed() -> None:
    old, new, other = (build_tree_file(content) for content in (b"\xff1", b"\xff2", b"\xff3"))
    assert revert_change({"a": old}, {"a": new}, {"a": new}).tree == {"a": old}
    assert revert_change({"a": old}, {"a": new}, {"a": other}).conflicts == ("a",)
    assert revert_change({}, {"a": new}, {"a": new, "b": other}).tree == {"b": other}
    assert revert_change({"a": old}, {}, {"b": other}).tree == {"a": old, "b": other}
    assert revert_change({"a": old}, {"a": new}, {}).conflicts == ("a",)
