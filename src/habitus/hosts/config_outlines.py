"""Outlines of config files for a person to read: every key, the values of our entries, and no value of anybody else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from habitus.hosts import config_text
from habitus.hosts.config_editing import ConfigEntry, ConfigFormat, parse_config_text

_HIDDEN = "…"


def outline_config_hiding_foreign_values(text: str, format: ConfigFormat, entries: Sequence[ConfigEntry]) -> list[str]:
    """Return the text as an outline of one key or value a line; comments are left out."""
    if format is ConfigFormat.BLOCK:
        return _outline_text_around_marked_block(text)
    return list(_outline_container_lines(parse_config_text(text, format), entries, ""))


def _outline_text_around_marked_block(text: str) -> list[str]:
    before, begin, rest = text.partition(config_text.BEGIN)
    inside, end, after = rest.partition(config_text.END)
    ours = f"{begin}{inside}{end}".splitlines()
    return [
        *map(_replace_line_by_placeholder, before.splitlines()),
        *ours,
        *map(_replace_line_by_placeholder, after.removeprefix("\n").splitlines()),
    ]


def _replace_line_by_placeholder(line: str) -> str:
    return _HIDDEN if line.strip() else ""


def _outline_container_lines(value: Any, entries: Sequence[ConfigEntry], indent: str) -> Iterator[str]:
    """Yield the lines of a container; entries are relative to it."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        name = f"{indent}- " if isinstance(value, list) else f"{indent}{_render_key(str(key))}: "
        inner = _select_entries_at_or_below_key(entries, key)
        if (line := _render_small_value_in_one_line(part, inner)) is not None:
            yield f"{name}{line}"
        else:
            yield name.rstrip()
            yield from _outline_container_lines(part, inner, f"{indent}  ")


def _render_key(key: str) -> str:
    return key if key.isprintable() and key else json.dumps(key)


def _render_small_value_in_one_line(value: Any, entries: Sequence[ConfigEntry]) -> str | None:
    """Render a scalar, an empty container or a list of scalars; None for anything larger."""
    if not isinstance(value, (dict, list)):
        drawn = json.dumps(value, ensure_ascii=False, default=str)
        is_ours = any(not entry.path and not entry.is_item and entry.value == value for entry in entries)
        return drawn if is_ours else _HIDDEN
    if not value:
        return json.dumps(value)
    if isinstance(value, dict) or any(isinstance(item, (dict, list)) for item in value):
        return None
    items = [
        _render_small_value_in_one_line(item, _select_entries_at_or_below_key(entries, at)) or ""
        for at, item in enumerate(value)
    ]
    return f"[{', '.join(items) if set(items) != {_HIDDEN} else _HIDDEN}]"


def _select_entries_at_or_below_key(entries: Sequence[ConfigEntry], key: str | int) -> list[ConfigEntry]:
    """Return the entries that lie at or below this key, relative to it."""
    found: list[ConfigEntry] = []
    for entry in entries:
        if entry.path:
            if entry.path[0] == key:
                found.append(replace(entry, path=entry.path[1:]))
        elif entry.is_item:
            found.append(replace(entry, is_item=False))
        else:
            value: Any = entry.value
            keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, (list, tuple)) else ()
            if key in keys:
                found.append(replace(entry, value=value[key]))
    return found
