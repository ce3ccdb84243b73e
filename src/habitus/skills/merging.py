"""Merging: take one change out of files that have been changed since. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from habitus.files import File, Tree, file_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    """The files without the change; `conflicts` are those where both touched the same place."""

    tree: Tree
    conflicts: tuple[str, ...]


def without_change(before: Tree, after: Tree, now: Tree) -> Merged:
    """The files of now without what was done between `before` and `after`; what was done later stays."""
    tree: dict[str, File] = {}
    conflicts: list[str] = []
    for path in sorted({*before, *after, *now}):
        was, became, is_now = before.get(path), after.get(path), now.get(path)
        if _is_same(was, became) or _is_same(was, is_now):
            merged = is_now
        elif _is_same(became, is_now) and (was is None or was.content is not None):
            merged = was
        else:
            merged = _merged_file(was, became, is_now)
            conflicts += [path] if merged is None else []
        if merged is not None:
            tree[path] = merged
    return Merged(tree=tree, conflicts=tuple(conflicts))


def _is_same(one: File | None, other: File | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.sha256, one.executable) == (other.sha256, other.executable)


def _merged_file(was: File | None, became: File | None, is_now: File | None) -> File | None:
    if was is None or became is None or is_now is None:
        return None
    texts = [_lines(file) for file in (became, was, is_now)]
    if any(text is None for text in texts):
        return None
    lines = merged_lines(*(text or [] for text in texts))
    if lines is None:
        return None
    executable = was.executable if became.executable == is_now.executable else is_now.executable
    return file_of("\n".join(lines).encode(), executable=executable)


def _lines(file: File) -> list[str] | None:
    try:
        return None if file.content is None else file.content.decode().split("\n")
    except UnicodeDecodeError:
        return None


def merged_lines(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> list[str] | None:
    """Both changes of a text in one, or None where they touch the same lines in different ways."""
    edits = sorted({*_edits(base, ours), *_edits(base, theirs)})
    for one, other in pairwise(edits):
        both_insert = one[:2] == other[:2] and one[0] == one[1]
        if both_insert or other[0] < one[1]:
            return None
    merged: list[str] = []
    at = 0
    for start, end, new in edits:
        merged += [*base[at:start], *new]
        at = end
    return [*merged, *base[at:]]


def _edits(base: Sequence[str], changed: Sequence[str]) -> list[tuple[int, int, tuple[str, ...]]]:
    """(start, end, new lines) of each place of the base that is other in the changed text."""
    matcher = SequenceMatcher(None, base, changed, autojunk=False)
    return [(a, b, tuple(changed[c:d])) for what, a, b, c, d in matcher.get_opcodes() if what != "equal"]
