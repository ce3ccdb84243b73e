"""Edits of an agent's config as values: add or remove entries, in any supported format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from habitus.errors import Invalid
from habitus.hosts import config_text

ConfigPath = tuple[str, ...]


class ConfigFormat(StrEnum):
    """The format of a config file."""

    JSON = "json"
    JSONC = "jsonc"  # with comments
    TOML = "toml"
    YAML = "yaml"
    # A marked block in a text file.
    BLOCK = "block"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigEntry:
    """A value at a path, or with `is_item` one item of the list there; a marked block has an empty path."""

    path: ConfigPath
    value: Any
    is_item: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigStateBeforeOurEntries:
    """The state before our entries: the values they replaced, and the containers they created."""

    replaced: Mapping[ConfigPath, Any]
    missing: tuple[ConfigPath, ...]


def parse_config_text(text: str, format: ConfigFormat) -> Any:
    """Parse the text; `Invalid` names the line of a syntax error."""
    match format:
        case ConfigFormat.JSON | ConfigFormat.JSONC:
            return config_text.parse_json_config_text(text, comments=format is ConfigFormat.JSONC)
        case ConfigFormat.TOML:
            return config_text.parse_toml_config_text(text)
        case ConfigFormat.YAML:
            return config_text.parse_yaml_config_text(text)
        case ConfigFormat.BLOCK:
            return config_text.read_marked_block(text)
        case _:
            assert_never(format)


def add_entries_to_config_text(text: str, format: ConfigFormat, entries: Sequence[ConfigEntry]) -> str:
    """Return the text with all entries; `Invalid` if an edit would change anything else."""
    # The text is edited by hand, so the parsed result is compared with the same edit made on the data.
    wanted = deepcopy(parse_config_text(text, format))
    for entry in entries:
        text = _set_entry_in_text(text, format, entry)
        wanted = _add_entry_to_data(wanted, entry)
    if parse_config_text(text, format) != wanted:
        raise Invalid("it is written in a way that only a person can change")
    return text


def extract_config_state_before_entries(
    text: str, format: ConfigFormat, entries: Sequence[ConfigEntry]
) -> ConfigStateBeforeOurEntries:
    """Return the state of the text that `remove_entries_from_config_text` needs later."""
    said = parse_config_text(text, format)
    found = {entry.path: _get_value_at_path(said, entry.path) for entry in entries if not entry.is_item}
    holders = {entry.path[:end] for entry in entries for end in range(1, len(entry.path) + entry.is_item)}
    return ConfigStateBeforeOurEntries(
        replaced={path: value for path, value in found.items() if value is not None},
        missing=tuple(
            sorted((path for path in holders if _get_value_at_path(said, path) is None), key=len, reverse=True)
        ),
    )


def remove_entries_from_config_text(
    text: str, format: ConfigFormat, entries: Sequence[ConfigEntry], was: ConfigStateBeforeOurEntries
) -> str:
    """Return the text without our entries, keeping all other changes made meanwhile."""
    for entry in entries:
        if entry.is_item:
            text = _remove_item_from_text(text, format, entry)
        elif entry.path in was.replaced:
            text = _set_entry_in_text(text, format, ConfigEntry(path=entry.path, value=was.replaced[entry.path]))
        else:
            text = _remove_value_from_text(text, format, entry.path)
    for path in was.missing:
        if _get_value_at_path(parse_config_text(text, format), path) in ({}, []):
            text = _remove_value_from_text(text, format, path)
    return text


def _set_entry_in_text(text: str, format: ConfigFormat, entry: ConfigEntry) -> str:
    match format:
        case ConfigFormat.JSON | ConfigFormat.JSONC:
            comments = format is ConfigFormat.JSONC
            change = config_text.append_json_item if entry.is_item else config_text.set_json_value
            return change(text, entry.path, entry.value, comments=comments)
        case ConfigFormat.TOML:
            return config_text.set_toml_value(text, entry.path, entry.value)
        case ConfigFormat.YAML:
            return config_text.set_yaml_value(text, entry.path, entry.value)
        case ConfigFormat.BLOCK:
            return config_text.set_marked_block(text, entry.value)
        case _:
            assert_never(format)


def _remove_value_from_text(text: str, format: ConfigFormat, path: Sequence[str | int]) -> str:
    match format:
        case ConfigFormat.JSON | ConfigFormat.JSONC:
            return config_text.remove_json_value(text, path, comments=format is ConfigFormat.JSONC)
        case ConfigFormat.TOML:
            return config_text.remove_toml_value(text, [str(name) for name in path])
        case ConfigFormat.YAML:
            return config_text.remove_yaml_value(text, [str(name) for name in path])
        case ConfigFormat.BLOCK:
            return config_text.remove_marked_block(text)
        case _:
            assert_never(format)


def _remove_item_from_text(text: str, format: ConfigFormat, entry: ConfigEntry) -> str:
    """Return the text without the item; one that the user has edited is recognized by its commands."""
    items = _get_value_at_path(parse_config_text(text, format), entry.path)
    # Backwards, because removing an item moves those behind it.
    for at, item in reversed(list(enumerate(items if isinstance(items, list) else ()))):
        if item == entry.value or (
            _list_hook_commands(item) and _list_hook_commands(item) <= _list_hook_commands(entry.value)
        ):
            text = _remove_value_from_text(text, format, [*entry.path, at])
    return text


def _list_hook_commands(item: Any) -> set[str]:
    """Return the commands that a group of hooks runs."""
    hooks = item.get("hooks") if isinstance(item, dict) else None
    found = [hook.get("command") for hook in hooks if isinstance(hook, dict)] if isinstance(hooks, list) else []
    return {command for command in found if isinstance(command, str)}


def _get_value_at_path(said: Any, path: ConfigPath) -> Any:
    for name in path:
        said = said.get(name) if isinstance(said, dict) else None
    return said


def _add_entry_to_data(said: Any, entry: ConfigEntry) -> Any:
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
