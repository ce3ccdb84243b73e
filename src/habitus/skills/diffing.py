"""The difference of two versions of a skill's files, as text."""

from __future__ import annotations

import difflib

from habitus.files import File, Tree


def diff_trees(old: Tree, new: Tree, old_label: str, new_label: str) -> str:
    parts = []
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if before is not None and after is not None and before.sha256 == after.sha256:
            continue
        a, b = _text(before), _text(after)
        if a is None or b is None:
            parts.append(f"--- {old_label}/{path}\n+++ {new_label}/{path}\nnot text, or too large to be compared\n")
            continue
        lines = difflib.unified_diff(
            a.splitlines(keepends=True),
            b.splitlines(keepends=True),
            f"{old_label}/{path}" if before else "/dev/null",
            f"{new_label}/{path}" if after else "/dev/null",
        )
        parts += [line if line.endswith("\n") else f"{line}\n\\ no newline at end of file\n" for line in lines]
    return "".join(parts)


def _text(file: File | None) -> str | None:
    if file is None:
        return ""
    try:
        return None if file.content is None else file.content.decode()
    except UnicodeDecodeError:
        return None
