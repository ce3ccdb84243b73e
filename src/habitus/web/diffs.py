"""Differences side by side: lines that belong together in one row, with the words marked that differ."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from habitus.app.library.content import FileChange

_AROUND = 2  # equal lines that are shown beside a change
_LONGEST = 4000  # lines of a text; a longer one is compared as a whole

Piece = tuple[bool, str]  # whether it differs, and the text


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffRow:
    """A line before and after; None where there is none. `is_gap` stands for equal lines that are left out."""

    before: tuple[Piece, ...] | None = None
    after: tuple[Piece, ...] | None = None
    is_changed: bool = True
    is_gap: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One file of a comparison, ready to be drawn; no rows for what is not text."""

    path: str
    rows: tuple[DiffRow, ...]


def draw_diffs(changes: Iterable[FileChange]) -> tuple[Compared, ...]:
    """Files before and after, side by side."""
    return tuple(
        Compared(path=change.path, rows=side_by_side(change.before or "", change.after or "") if change.is_text else ())
        for change in changes
    )


def side_by_side(before: str, after: str) -> tuple[DiffRow, ...]:
    old, new = before.splitlines()[:_LONGEST], after.splitlines()[:_LONGEST]
    rows: list[DiffRow] = []
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_AROUND)
    end = 0
    for group in groups:
        if group[0][1] > end:
            rows.append(DiffRow(is_gap=True, is_changed=False))
        end = group[-1][2]
        for tag, i1, i2, j1, j2 in group:
            rows += _equal(old[i1:i2]) if tag == "equal" else _changed_rows(old[i1:i2], new[j1:j2])
    if rows and end < len(old):
        rows.append(DiffRow(is_gap=True, is_changed=False))
    return tuple(rows)


def _equal(lines: Sequence[str]) -> Iterator[DiffRow]:
    for line in lines:
        yield DiffRow(before=((False, line),), after=((False, line),), is_changed=False)


def _changed_rows(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffRow]:
    for before, after in zip_longest(old, new):
        if before is None or after is None:
            yield DiffRow(
                before=None if before is None else ((True, before),), after=None if after is None else ((True, after),)
            )
        else:
            yield _by_word(before, after)


def _by_word(before: str, after: str) -> DiffRow:
    old, new = re.findall(r"\s+|\w+|[^\w\s]", before), re.findall(r"\s+|\w+|[^\w\s]", after)
    left: list[Piece] = []
    right: list[Piece] = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        left.append((tag != "equal", "".join(old[i1:i2])))
        right.append((tag != "equal", "".join(new[j1:j2])))
    return DiffRow(before=tuple(piece for piece in left if piece[1]), after=tuple(piece for piece in right if piece[1]))
