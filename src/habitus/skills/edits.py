"""Text edits, diffs and three-way merges of a skill's files, as pure functions. Search text is literal, never a
pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import assert_never

from habitus.comparing import BoundedSequenceMatcher, ComparisonStepBudget
from habitus.errors import Invalid
from habitus.files import Tree, TreeFile, build_tree_file


class EditOperation(StrEnum):
    """The kind of a text edit."""

    REPLACE = "replace"
    FIND_REPLACE = "find_replace"
    APPEND = "append"
    PREPEND = "prepend"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True, slots=True)
class TextEdit:
    """An edit of a text. Without an operation it does nothing and must have no operands."""

    operation: EditOperation | None = None
    content: str | None = None
    find: str | None = None
    replace: str | None = None
    replace_all: bool = False


def apply_edit(text: str, edit: TextEdit) -> str:
    """Return the edited text; raise `Invalid` if an operand is missing or the text to find is absent."""
    match edit.operation:
        case None:
            _refuse_unused_operands(edit)
            return text
        case EditOperation.REPLACE:
            return _require_operand(edit, "content")
        case EditOperation.APPEND:
            return _join_with_newline(text, _require_operand(edit, "content"))
        case EditOperation.PREPEND:
            return _join_with_newline(_require_operand(edit, "content"), text)
        case EditOperation.DELETE:
            return _replace_text(text, _require_operand(edit, "content"), "", replace_all=False)
        case EditOperation.FIND_REPLACE:
            return _replace_text(
                text, _require_operand(edit, "find"), _require_operand(edit, "replace"), replace_all=edit.replace_all
            )
        case never:
            assert_never(never)


def _refuse_unused_operands(edit: TextEdit) -> None:
    for name in ("content", "find", "replace"):
        if getattr(edit, name) is not None:
            raise Invalid(f"'{name}' was given without an operation.", hint=f"Say which: {', '.join(EditOperation)}.")


def _require_operand(edit: TextEdit, name: str) -> str:
    value: str | None = getattr(edit, name)
    if value is None:
        raise Invalid(f"The operation '{edit.operation}' needs '{name}'.", hint=f"Give '{name}' as text.")
    return value


def _join_with_newline(first: str, second: str) -> str:
    """Join two texts with exactly one newline between them where there is none."""
    if not first or not second or first.endswith("\n") or second.startswith("\n"):
        return first + second
    return f"{first}\n{second}"


def _replace_text(text: str, find: str, replacement: str, *, replace_all: bool) -> str:
    if not find:
        raise Invalid("The text to find is empty.", hint="Give the exact text from the skill.")
    if find not in text:
        shown = find if len(find) <= 60 else find[:57] + "…"
        raise Invalid(f"The text {shown!r} is not in the skill.", hint="Copy it exactly, with its spaces and case.")
    return text.replace(find, replacement, -1 if replace_all else 1)


def diff_trees(old: Tree, new: Tree, old_label: str, new_label: str) -> str:
    """Return a unified diff of two file trees, empty if they are equal; binary files are only mentioned."""
    parts: list[str] = []
    budget = ComparisonStepBudget()
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if before is not None and after is not None and before.sha256 == after.sha256:
            continue
        a, b = _decode_file_text(before), _decode_file_text(after)
        if a is None or b is None:
            parts.append(f"--- {old_label}/{path}\n+++ {new_label}/{path}\nnot text, or too large to be compared\n")
            continue
        matcher = BoundedSequenceMatcher(a.splitlines(keepends=True), b.splitlines(keepends=True), budget)
        if groups := list(matcher.get_grouped_opcodes()):
            parts += [f"--- {old_label}/{path}\n" if before else "--- /dev/null\n"]
            parts += [f"+++ {new_label}/{path}\n" if after else "+++ /dev/null\n"]
            lines = (line for group in groups for line in _render_hunk(matcher, group))
            parts += [line if line.endswith("\n") else f"{line}\n\\ no newline at end of file\n" for line in lines]
    return "".join(parts)


def _render_hunk(matcher: BoundedSequenceMatcher, group: Sequence[tuple[str, int, int, int, int]]) -> Iterator[str]:
    before = _format_hunk_line_range(group[0][1], group[-1][2])
    after = _format_hunk_line_range(group[0][3], group[-1][4])
    yield f"@@ -{before} +{after} @@\n"
    for what, a, b, c, d in group:
        if what == "equal":
            yield from (f" {line}" for line in matcher.before[a:b])
        else:
            yield from (f"-{line}" for line in matcher.before[a:b])
            yield from (f"+{line}" for line in matcher.after[c:d])


def _format_hunk_line_range(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + (length > 0)},{length}"


def _decode_file_text(file: TreeFile | None) -> str | None:
    if file is None:
        return ""
    try:
        return None if file.content is None else file.content.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeResult:
    """The files after a merge; `conflicts` lists the paths that both sides changed."""

    tree: Tree
    conflicts: tuple[str, ...]


def revert_change(before: Tree, after: Tree, current: Tree) -> MergeResult:
    """Return the current files without the change from `before` to `after`; later changes stay."""
    tree: dict[str, TreeFile] = {}
    conflicts: list[str] = []
    for path in sorted({*before, *after, *current}):
        was, became, is_now = before.get(path), after.get(path), current.get(path)
        if _is_same_file(was, became) or _is_same_file(was, is_now):
            merged = is_now
        # A file too large for the history has no content to go back to, so that case falls through to a conflict.
        elif _is_same_file(became, is_now) and (was is None or was.content is not None):
            merged = was
        else:
            # Reverting is a merge with the roles turned: the changed file is the base, the old and the current file
            # the sides.
            merged = _revert_change_in_file(was, became, is_now)
            conflicts += [path] if merged is None else []
        if merged is not None:
            tree[path] = merged
    return MergeResult(tree=tree, conflicts=tuple(conflicts))


def _is_same_file(one: TreeFile | None, other: TreeFile | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.sha256, one.executable) == (other.sha256, other.executable)


def _revert_change_in_file(was: TreeFile | None, became: TreeFile | None, is_now: TreeFile | None) -> TreeFile | None:
    if was is None or became is None or is_now is None:
        return None
    texts = [_decode_file_lines(file) for file in (became, was, is_now)]
    if any(text is None for text in texts):
        return None
    lines = merge_lines_three_way(*(text or [] for text in texts))
    if lines is None:
        return None
    # Keep the current mode if it was changed later; otherwise revert it together with the text.
    executable = was.executable if became.executable == is_now.executable else is_now.executable
    return build_tree_file("\n".join(lines).encode(), executable=executable)


def _decode_file_lines(file: TreeFile) -> list[str] | None:
    try:
        return None if file.content is None else file.content.decode().split("\n")
    except UnicodeDecodeError:
        return None


def merge_lines_three_way(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> list[str] | None:
    """Merge two changes of a text; None if they change the same lines in different ways."""
    edits = sorted({*_list_changed_ranges(base, ours), *_list_changed_ranges(base, theirs)})
    for one, other in pairwise(edits):
        # Two insertions at one place have no order, so they conflict even though they don't overlap.
        both_insert = one[:2] == other[:2] and one[0] == one[1]
        if both_insert or other[0] < one[1]:
            return None
    merged: list[str] = []
    at = 0
    for start, end, new in edits:
        merged += [*base[at:start], *new]
        at = end
    return [*merged, *base[at:]]


def _list_changed_ranges(base: Sequence[str], changed: Sequence[str]) -> list[tuple[int, int, tuple[str, ...]]]:
    """Return (start, end, new lines) for each part of the base that differs in the changed text."""
    opcodes = BoundedSequenceMatcher(base, changed).get_opcodes()
    return [(a, b, tuple(changed[c:d])) for what, a, b, c, d in opcodes if what != "equal"]
