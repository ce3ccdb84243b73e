"""Edits of an agent's config as values: add or remove entries, in any supported format."""

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
    """The format of a config file."""

    JSON = "json"
    JSONC = "jsonc"  # with comments
    TOML = "toml"
    YAML = "yaml"
    # A marked block in a text file.
    BLOCK = "block"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A value at a path, or with `is_item` one item of the list there; a marked block has an empty path."""

    path: Path
    value: Any
    is_item: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """The state before our entries: the values they replaced, and the containers they created."""

    replaced: Mapping[Path, Any]
    missing: tuple[Path, ...]


def data(text: str, format: Format) -> Any:
    """Parse the text; `Invalid` names the line of a syntax error."""
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
    """Return the text with all entries; `Invalid` if an edit would change anything else."""
    # The text is edited by hand, so the parsed result is compared with the same edit made on the data.
    wanted = deepcopy(data(text, format))
    for entry in entries:
        text = _put(text, format, entry)
        wanted = _with_entry(wanted, entry)
    if data(text, format) != wanted:
        raise Invalid("it is written in a way that only a person can change")
    return text


def before(text: str, format: Format, entries: Sequence[Entry]) -> Before:
    """Return the state of the text that `remove_entries` needs later."""
    said = data(text, format)
    found = {entry.path: _at(said, entry.path) for entry in entries if not entry.is_item}
    holders = {entry.path[:end] for entry in entries for end in range(1, len(entry.path) + entry.is_item)}
    return Before(
        replaced={path: value for path, value in found.items() if value is not None},
        missing=tuple(sorted((path for path in holders if _at(said, path) is None), key=len, reverse=True)),
    )


def taken_out(text: str, format: Format, entries: Sequence[Entry], was: Before) -> str:
    """Return the text without our entries, keeping all other changes made meanwhile."""
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
    """Return the text without the item; one that the user has edited is recognized by its commands."""
    items = _at(data(text, format), entry.path)
    # Backwards, because removing an item moves those behind it.
    for at, item in reversed(list(enumerate(items if isinstance(items, list) else ()))):
        if item == entry.value or (_commands(item) and _commands(item) <= _commands(entry.value)):
            text = _take(text, format, [*entry.path, at])
    return text


def _commands(item: Any) -> set[str]:
    """Return the commands that a group of hooks runs."""
    hooks = item.get("hooks") if isinstance(item, dict) else None
    found = [hook.get("command") for hook in hooks if isinstance(hook, dict)] if isinstance(hooks, list) else []
    return {command for command in found if isinstance(command, str)}


def _at(said: Any, path: Path) -> Any:
    for name in path:
        said = said.get(name) if isinstance(said, dict) else None
    return said


def _with_entry(said: Any, entry: Entry) -> Any:
    """Return the data with the entry."""
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
