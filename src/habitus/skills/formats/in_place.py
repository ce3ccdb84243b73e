"""Changing some fields of a frontmatter block while its comments, order and every other byte stay as they are."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping

from habitus.skills.formats import frontmatter
from habitus.skills.formats.frontmatter import Fields
from habitus.skills.model import Unreadable

Changes = Mapping[str, "str | Mapping[str, str | None] | None"]  # None removes; a mapping changes a nested block

_ENTRY = re.compile(
    r"""(?P<indent>[ ]*)(?P<quote>["']?)(?P<key>[^\s"'#:\[\]{},&*!|>%@`-][^"'#]*?)(?P=quote)[ \t]*:(?=[ \t\n]|$)"""
)


def change(front: str, changes: Changes, file: str) -> str:
    """The block with the changes made. Lines are replaced one entry at a time; where that can't do it (flow style,
    anchors) a YAML round trip does, and at the very last the fields are written anew. Each result is read back:
    it counts only when it says exactly what was asked."""
    if front and not front.endswith("\n"):
        front += "\n"
    wanted = _apply_changes(_read(front, file), changes)
    for way in (_operate, _round_trip):
        try:
            changed = way(front, changes)
            if _read(changed, file) == wanted:
                return changed
        except (Unreadable, _Unfit):
            continue
    import yaml  # needed at the very last, and no command should wait for it

    return yaml.safe_dump(wanted, allow_unicode=True, sort_keys=False, width=10_000) if wanted else ""


class _Unfit(Exception):
    """The block is not made of plain `key: value` lines."""


def _read(front: str, file: str) -> Fields:
    return frontmatter.read(front, file)[0]


def _apply_changes(fields: Fields, changes: Changes) -> Fields:
    result = dict(fields)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, str):
            result[key] = value
        else:
            below = result.get(key)
            nested = _apply_changes(below if isinstance(below, dict) else {}, value)
            if nested:
                result[key] = nested
            else:
                result.pop(key, None)
    return result


def _operate(front: str, changes: Changes, indent: str = "") -> str:
    entries = _entries(front, indent)
    pending = dict(changes)
    kept: list[str] = []
    for key, lines in entries:
        if key not in changes:
            kept.append(lines)
            continue
        if key not in pending:  # it stands twice, and the last one would count
            kept.append(_comments(_lead(lines, indent)))
            continue
        value = pending.pop(key)
        if isinstance(value, Mapping):
            kept.append(_edit_nested(key, lines, value, indent))
        elif value is not None:
            kept.append(_lead(lines, indent) + _render_key(key, value, indent))
        else:
            kept.append(_comments(_lead(lines, indent)))
    for key, value in pending.items():
        if isinstance(value, Mapping):
            value = {name: text for name, text in value.items() if text is not None}
        if value:
            kept.append(_render_key(key, value, indent))
        elif value == "":
            kept.append(_render_key(key, "", indent))
    return "".join(kept)


def _entries(front: str, indent: str) -> list[tuple[str, str]]:
    """The block cut into entries: (key, its lines with the comments and blank lines above them)."""
    entries: list[tuple[str, str]] = []
    above, key, own = "", "", ""
    for line in front.splitlines(keepends=True):
        is_blank = not line.strip() or line.lstrip().startswith("#")
        found = None if is_blank else _ENTRY.match(line)
        if found is not None and found["indent"] == indent:
            if key:
                entries.append((key, own))
            key, own, above = found["key"], above + line, ""
        elif is_blank and (not line.strip() or len(line) - len(line.lstrip(" ")) <= len(indent)):
            above += line
        elif key:
            own, above = own + above + line, ""
        else:
            raise _Unfit(line)
    if key:
        entries.append((key, own))
    if above:
        entries.append(("", above))
    return entries


def _lead(lines: str, indent: str) -> str:
    """The comments and blank lines above an entry's own first line."""
    lead = ""
    for line in lines.splitlines(keepends=True):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        lead += line
    return lead


def _comments(lead: str) -> str:
    return lead if lead.strip() else ""


def _edit_nested(key: str, lines: str, changes: Mapping[str, str | None], indent: str) -> str:
    lead = _lead(lines, indent)
    head, _, below = lines[len(lead) :].partition("\n")
    opened = head.rstrip()
    if not opened.endswith(":") or not below.strip():
        raise _Unfit(head)
    first = next(line for line in below.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    deeper = " " * (len(first) - len(first.lstrip(" ")))
    if len(deeper) <= len(indent):
        raise _Unfit(head)
    changed = _operate(below, changes, deeper)
    if not any(line.strip() and not line.lstrip().startswith("#") for line in changed.splitlines()):
        return lead
    return f"{lead}{head}\n{changed}"


def _render_key(key: str, value: str | Mapping[str, str | None], indent: str) -> str:
    if isinstance(value, str):
        text = frontmatter.write({key: value})
    else:
        text = frontmatter.write({key: {name: text for name, text in value.items() if text is not None}})
    return "".join(indent + line for line in text.splitlines(keepends=True))


def _round_trip(front: str, changes: Changes) -> str:
    from ruamel.yaml import YAML  # only for the rare block that is not made of plain lines
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    def put(target: CommentedMap, wanted: Changes) -> None:
        for key, value in wanted.items():
            if isinstance(value, str):
                target[key] = DoubleQuotedScalarString(value)
                continue
            if value is not None:
                below = target.get(key)
                if not isinstance(below, CommentedMap):
                    below = target[key] = CommentedMap()
                put(below, value)
            if not value or not target.get(key):
                target.pop(key, None)

    editor = YAML()
    editor.preserve_quotes = True
    editor.width = 10_000
    out = io.StringIO()
    try:
        tree = editor.load(front)
        put(tree, changes)
        editor.dump(tree, out)
    except Exception as error:  # ruamel has no common root for what it raises
        raise _Unfit(str(error)) from None
    return out.getvalue()
