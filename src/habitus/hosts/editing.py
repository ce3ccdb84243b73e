"""Edits to an agent's config as values: entries put in, or taken out again, in whatever format the file is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from habitus.errors import Invalid
from habitus.hosts import config_text

Path = tuple[str, ...]


class Format(StrEnum):
    JSON = "json"
    JSONC = "jsonc"  # with comments
    TOML = "toml"
    YAML = "yaml"
    BLOCK = "block"  # a marked block in a text


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A value at a path, or with `is_item` one item of the list there; in a text the path is empty."""

    path: Path
    value: Any
    is_item: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """The state before our entries: the values that were replaced, and the containers that were missing."""

    replaced: Mapping[Path, Any]
    missing: tuple[Path, ...]


def data(text: str, format: Format) -> Any:
    """The value of the text; `Invalid` names the line that can't be read."""
    match format:
        case Format.JSON | Format.JSONC:
            return config_text.read_json(text, comments=format is Format.JSONC)
        case Format.TOML:
            return config_text.read_toml(text)
        case Format.YAML:
            return config_text.read_yaml(text)
        case Format.BLOCK:
            return config_text.read_marked(text)
        case _:
            assert_never(format)


def apply_entries(text: str, format: Format, entries: Sequence[Entry]) -> str:
    """The text with all entries. Whatever way it is written in, nothing else may say something else afterwards."""
    wanted = deepcopy(data(text, format))
    for entry in entries:
        text = _put(text, format, entry)
        wanted = _with_entry(wanted, entry)
    if data(text, format) != wanted:
        raise Invalid("it is written in a way that only a person can change")
    return text


def before(text: str, format: Format, entries: Sequence[Entry]) -> Before:
    """The state of the text that `taken_out` has to know."""
    said = data(text, format)
    found = {entry.path: _at(said, entry.path) for entry in entries if not entry.is_item}
    holders = {entry.path[:end] for entry in entries for end in range(1, len(entry.path) + entry.is_item)}
    return Before(
        replaced={path: value for path, value in found.items() if value is not None},
        missing=tuple(sorted((path for path in holders if _at(said, path) is None), key=len, reverse=True)),
    )


def taken_out(text: str, format: Format, entries: Sequence[Entry], was: Before) -> str:
    """The text without our entries, whatever else somebody changed in it meanwhile."""
    for entry in entries:
        if entry.is_item:
            text = _without_item(text, format, entry)
        elif entry.path in was.replaced:
            text = _put(text, format, Entry(path=entry.path, value=was.replaced[entry.path]))
        else:
            text = _take(text, format, entry.path)
    for path in was.missing:
        if _at(data(text, format), path) in ({}, []):
            text = _take(text, format, path)
    return text


def _put(text: str, format: Format, entry: Entry) -> str:
    match format:
        case Format.JSON | Format.JSONC:
            comments = format is Format.JSONC
            change = config_text.append if entry.is_item else config_text.put_json
            return change(text, entry.path, entry.value, comments=comments)
        case Format.TOML:
            return config_text.put_toml(text, entry.path, entry.value)
        case Format.YAML:
            return config_text.put_yaml(text, entry.path, entry.value)
        case Format.BLOCK:
            return config_text.put_marked(text, entry.value)
        case _:
            assert_never(format)


def _take(text: str, format: Format, path: Sequence[str | int]) -> str:
    match format:
        case Format.JSON | Format.JSONC:
            return config_text.take_json(text, path, comments=format is Format.JSONC)
        case Format.TOML:
            return config_text.take_toml(text, [str(name) for name in path])
        case Format.YAML:
            return config_text.take_yaml(text, [str(name) for name in path])
        case Format.BLOCK:
            return config_text.take_marked(text)
        case _:
            assert_never(format)


def _without_item(text: str, format: Format, entry: Entry) -> str:
    """Without the item, also where somebody has changed it: then it is known by the commands in it."""
    items = _at(data(text, format), entry.path)
    for at, item in reversed(list(enumerate(items if isinstance(items, list) else ()))):
        if item == entry.value or (_commands(item) and _commands(item) <= _commands(entry.value)):
            text = _take(text, format, [*entry.path, at])
    return text


def _commands(item: Any) -> set[str]:
    """The commands that a group of hooks runs."""
    hooks = item.get("hooks") if isinstance(item, dict) else None
    found = [hook.get("command") for hook in hooks if isinstance(hook, dict)] if isinstance(hooks, list) else []
    return {command for command in found if isinstance(command, str)}


def _at(said: Any, path: Path) -> Any:
    for name in path:
        said = said.get(name) if isinstance(said, dict) else None
    return said


def _with_entry(said: Any, entry: Entry) -> Any:
    """The data with the entry."""
    if not entry.path:
        return entry.value.strip()
    holder = said
    for name in entry.path[:-1]:
        holder = holder.setdefault(name, {})
    if entry.is_item:
        holder.setdefault(entry.path[-1], []).append(entry.value)
    else:
        holder[entry.path[-1]] = entry.value
    return said
