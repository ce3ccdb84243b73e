"""Edit config files as text: set or remove one value in JSON, TOML or YAML, or a marked block in a text file.

Every other character stays where it is, comments included.
"""

from __future__ import annotations

import io
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from habitus.errors import Invalid

ValuePath = Sequence[str | int]
_BLANK = re.compile(r"[ \t\r\n]*")
# Blanks and comments.
_GAP = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_LITERAL = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null')
_MAX_DEPTH = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class _JsonNode:
    """A JSON value with its position `text[start:end]`; a member begins with its key, an item with itself."""

    start: int
    end: int
    value: Any
    # Where the member or item that holds the value begins.
    begins: int = 0
    parts: tuple[_JsonNode, ...] = ()
    keys: tuple[str, ...] = ()  # of an object, parallel to its parts
    is_container: bool = False

    def find_part_index(self, name: str | int) -> int | None:
        """Return the index of the part with this name.

        Of duplicate keys the last one counts, as for any JSON parser.
        """
        if isinstance(name, int):
            return name if isinstance(self.value, list) and -len(self.parts) <= name < len(self.parts) else None
        found = [at for at, key in enumerate(self.keys) if key == name]
        return found[-1] if found else None


def parse_json_config_text(text: str, *, comments: bool) -> Any:
    """Parse JSON; an empty file is an empty object."""
    return _parse_json_into_nodes(text, comments).value if text.strip("\ufeff \t\r\n") else {}


def set_json_value(text: str, path: ValuePath, value: Any, *, comments: bool) -> str:
    """Return the text with the value at this path; missing containers are created."""
    return _insert_or_replace_json_value(text, path, value, comments=comments, is_item=False)


def append_json_item(text: str, path: ValuePath, value: Any, *, comments: bool) -> str:
    """Return the text with one more item in the list at this path."""
    return _insert_or_replace_json_value(text, path, value, comments=comments, is_item=True)


def remove_json_value(text: str, path: ValuePath, *, comments: bool) -> str:
    """Return the text without the member or item at this path; unchanged if there is none."""
    holder = _parse_json_into_nodes(text, comments)
    for name in path[:-1]:
        at = holder.find_part_index(name)
        if at is None:
            return text
        holder = holder.parts[at]
    at = holder.find_part_index(path[-1])
    return text if at is None else _remove_json_part(text, holder, at)


def _insert_or_replace_json_value(text: str, path: ValuePath, value: Any, *, comments: bool, is_item: bool) -> str:
    if not text.strip("\ufeff \t\r\n"):
        text = ("\ufeff" if text.startswith("\ufeff") else "") + "{}\n"
    holder = _parse_json_into_nodes(text, comments)
    names = list(path)
    while names:
        at = holder.find_part_index(names[0])
        if at is None or not holder.is_container:
            break
        holder = holder.parts[at]
        names.pop(0)
    if names and not isinstance(holder.value, dict):
        raise Invalid(f"'{'.'.join(map(str, path))}' can't be set there: {json.dumps(holder.value)[:60]} holds it.")
    new = [value] if is_item and names else value
    for name in reversed(names[1:]):
        new = {name: new}
    if names:
        return _insert_json_part(text, holder, new, key=str(names[0]))
    if not is_item:
        return text[: holder.start] + _render_json_value_for_position(text, holder.start, new) + text[holder.end :]
    if not isinstance(holder.value, list):
        raise Invalid(f"'{'.'.join(map(str, path))}' is not a list.")
    return _insert_json_part(text, holder, new)


def _insert_json_part(text: str, holder: _JsonNode, value: Any, *, key: str = "") -> str:
    """Add a member or item at the end of its container, formatted like the others."""
    named = f"{json.dumps(key, ensure_ascii=False)}: " if key else ""
    close = holder.end - 1
    last = holder.parts[-1].end if holder.parts else holder.start + 1
    # Behind a comment or comma that stands there.
    after = last + len(text[last:close].rstrip())
    is_broken = "\n" in text[holder.start : close] or (
        not holder.parts and _should_write_empty_container_on_several_lines(text, holder.start)
    )
    comma = "," if holder.parts and "," not in _blank_comments(text[last:close]) else ""
    if not is_broken:
        space, tail = (" ", text[after:close]) if holder.parts else ("", "")
        drawn = f"{named}{json.dumps(value, ensure_ascii=False)}"
        return f"{text[:last]}{comma}{text[last:after]}{space}{drawn}{tail}{text[close:]}"
    newline, outer = _detect_newline(text), _detect_indent(text, holder.start)
    inner = _detect_indent(text, holder.parts[-1].begins) if holder.parts else outer + _detect_indent_unit(text)
    drawn = _render_indented_json(value, inner, _detect_indent_unit(text), newline)
    return f"{text[:last]}{comma}{text[last:after]}{newline}{inner}{named}{drawn}{newline}{outer}{text[close:]}"


def _remove_json_part(text: str, holder: _JsonNode, at: int) -> str:
    part, close = holder.parts[at], holder.end - 1
    before = holder.parts[at - 1].end if at else holder.start + 1
    # Behind the comment or comma before it.
    begins = before + len(text[before : part.begins].rstrip())
    end = part.end
    gap = _GAP.match(text, end)
    has_comma = gap is not None and text[gap.end() : gap.end() + 1] == ","
    if gap is not None and has_comma:
        end = gap.end() + 1
    left = text[:begins] + text[end:]
    # The last part has no comma behind it, so the one before it goes.
    if at and not has_comma:
        comma = before + _blank_comments(text[before:begins]).index(",")
        left = left[:comma] + left[comma + 1 :]
        close -= 1
    close -= end - begins
    inside = left[holder.start + 1 : close]
    return left if inside.strip() else left[: holder.start + 1] + left[close:]


def _render_json_value_for_position(text: str, start: int, value: Any) -> str:
    return _render_indented_json(value, _detect_indent(text, start), _detect_indent_unit(text), _detect_newline(text))


def _render_indented_json(value: Any, indent: str, unit: str, newline: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + indent)


def _detect_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _detect_indent(text: str, at: int) -> str:
    """Return the white space at the beginning of the line of this position."""
    line = text[text.rfind("\n", 0, at) + 1 : at].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _should_write_empty_container_on_several_lines(text: str, at: int) -> bool:
    """Whether an empty container stands in a text of several lines, or is all of it."""
    return "\n" in text.strip() or not text[:at].strip("\ufeff \t\r\n")


def _detect_indent_unit(text: str) -> str:
    found = re.search(r"\n([ \t]+)\S", text)
    return found.group(1) if found else "  "


def _blank_comments(gap: str) -> str:
    """Return the gap with its comments replaced by spaces, so positions stay the same."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda found: " " * len(found.group()), gap, flags=re.DOTALL)


def _parse_json_into_nodes(text: str, comments: bool) -> _JsonNode:
    gap = _GAP if comments else _BLANK
    start = _skip_spaces_and_comments(gap, text, 1 if text.startswith("\ufeff") else 0)
    node = _parse_json_value(text, start, start, gap, 0)
    end = _skip_spaces_and_comments(gap, text, node.end)
    if end != len(text):
        raise _make_syntax_error(text, end)
    return node


def _parse_json_value(text: str, at: int, begins: int, gap: re.Pattern[str], depth: int) -> _JsonNode:
    # A deeply nested file would otherwise exhaust the stack.
    if depth > _MAX_DEPTH:
        raise _make_syntax_error(text, at)
    if text[at : at + 1] in ("{", "["):
        return _parse_json_container(text, at, begins, gap, depth)
    found = _LITERAL.match(text, at)
    if found is None:
        raise _make_syntax_error(text, at)
    try:
        value = json.loads(found.group())
    except ValueError:
        raise _make_syntax_error(text, at) from None
    return _JsonNode(start=at, end=found.end(), value=value, begins=begins)


def _parse_json_container(text: str, start: int, begins: int, gap: re.Pattern[str], depth: int) -> _JsonNode:
    is_object = text[start] == "{"
    close = "}" if is_object else "]"
    parts: list[_JsonNode] = []
    keys: list[str] = []
    at = _skip_spaces_and_comments(gap, text, start + 1)
    while text[at : at + 1] != close:
        began = at
        if is_object:
            key = _LITERAL.match(text, at)
            if key is None or text[at] != '"':
                raise _make_syntax_error(text, at)
            keys.append(json.loads(key.group(), strict=False))
            at = _skip_spaces_and_comments(gap, text, key.end())
            if text[at : at + 1] != ":":
                raise _make_syntax_error(text, at)
            at = _skip_spaces_and_comments(gap, text, at + 1)
        parts.append(_parse_json_value(text, at, began, gap, depth + 1))
        at = _skip_spaces_and_comments(gap, text, parts[-1].end)
        if text[at : at + 1] == ",":
            at = _skip_spaces_and_comments(gap, text, at + 1)
            if text[at : at + 1] == close and gap is _BLANK:
                # A trailing comma is only allowed where comments are.
                raise _make_syntax_error(text, at)
        elif text[at : at + 1] != close:
            raise _make_syntax_error(text, at)
    values = [part.value for part in parts]
    value = dict(zip(keys, values, strict=True)) if is_object else values
    return _JsonNode(
        start=start, end=at + 1, value=value, begins=begins, parts=tuple(parts), keys=tuple(keys), is_container=True
    )


def _skip_spaces_and_comments(gap: re.Pattern[str], text: str, at: int) -> int:
    found = gap.match(text, at)
    return at if found is None else found.end()


def _make_syntax_error(text: str, at: int) -> Invalid:
    line = text.count("\n", 0, at) + 1
    what = f"{text[at : at + 20].splitlines()[0]!r} is not expected" if text[at : at + 1].strip() else "it ends early"
    return Invalid(f"line {line}: {what}")


def parse_toml_config_text(text: str) -> dict[str, Any]:
    """Parse TOML; `Invalid` if it is malformed."""
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise Invalid(str(error)) from None


def set_toml_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with the value at this path; missing tables are created."""
    # Imported here because only agents with a TOML config need it.
    import tomlkit

    document = tomlkit.parse(text)
    holder: Any = document
    for name in path[:-1]:
        if name not in holder:
            holder[name] = tomlkit.table(is_super_table=True)
        holder = holder[name]
    if not isinstance(holder, dict):
        raise Invalid(f"'{'.'.join(path[:-1])}' is not a table")
    holder[path[-1]] = value
    return tomlkit.dumps(document)


def remove_toml_value(text: str, path: Sequence[str]) -> str:
    """Return the text without the value at this path; unchanged if there is none."""
    import tomlkit

    document = tomlkit.parse(text)
    holder: Any = document
    for name in path[:-1]:
        holder = holder.get(name, {}) if isinstance(holder, dict) else {}
    if isinstance(holder, dict) and path[-1] in holder:
        del holder[path[-1]]
    return tomlkit.dumps(document)


def parse_yaml_config_text(text: str) -> Any:
    """Parse YAML; an empty file is an empty mapping."""
    # Imported here because only agents with a YAML config need it.
    import yaml

    try:
        said = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Invalid(" ".join(str(error).split())) from None
    return {} if said is None else said


def set_yaml_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with the value at this path; missing mappings are created."""
    document = _parse_editable_yaml(text)
    holder = document
    for name in path[:-1]:
        if holder.get(name) is None:
            holder[name] = {}
        holder = holder[name]
        if not isinstance(holder, dict):
            raise Invalid(f"'{'.'.join(path[:-1])}' is not a mapping")
    holder[path[-1]] = value
    return _render_yaml(document)


def remove_yaml_value(text: str, path: Sequence[str]) -> str:
    """Return the text without the value at this path; empty if nothing is left."""
    document = _parse_editable_yaml(text)
    holder = document
    for name in path[:-1]:
        holder = holder.get(name, {}) if isinstance(holder, dict) else {}
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
    return _render_yaml(document) if document else ""


def _make_yaml_editor() -> Any:
    from ruamel.yaml import YAML

    editor = YAML()
    editor.preserve_quotes = True
    # Wide enough that long lines of the user are never wrapped.
    editor.width = 1 << 20
    return editor


def _parse_editable_yaml(text: str) -> Any:
    try:
        document = _make_yaml_editor().load(text)
    # The exceptions of ruamel have no common base class.
    except Exception as error:
        raise Invalid(" ".join(str(error).split())) from None
    if document is None:
        return _make_yaml_editor().map()
    if not isinstance(document, dict):
        raise Invalid("it is not a mapping")
    return document


def _render_yaml(document: Any) -> str:
    stream = io.StringIO()
    _make_yaml_editor().dump(document, stream)
    return stream.getvalue()


BEGIN, END = "<!-- habitus:begin -->", "<!-- habitus:end -->"


def read_marked_block(text: str) -> str | None:
    """Return the text between the markers; None if there are none."""
    place = _find_marked_block(text)
    return None if place is None else text[place[0] + len(BEGIN) : place[1] - len(END)].strip()


def set_marked_block(text: str, value: str) -> str:
    """Return the text with this block, in place of the old one or at the end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    block = newline.join([BEGIN, *value.strip().splitlines(), END])
    place = _find_marked_block(text)
    if place is not None:
        return text[: place[0]] + block + text[place[1] :]
    if not text:
        return block + newline
    gap = "" if text.endswith(newline * 2) else newline if text.endswith("\n") else newline * 2
    return f"{text}{gap}{block}{newline}"


def remove_marked_block(text: str) -> str:
    """Return the text without the block and its markers."""
    place = _find_marked_block(text)
    if place is None:
        return text
    before, after = text[: place[0]], text[place[1] :].removeprefix("\r").removeprefix("\n")
    # At the end of the file, the empty line above the block was ours too.
    if not after:
        before = before[: -len(_detect_last_line_ending(before))] if before.endswith(("\n\n", "\r\n\r\n")) else before
    return before + after


def _detect_last_line_ending(text: str) -> str:
    return "\r\n" if text.endswith("\r\n") else "\n"


def _find_marked_block(text: str) -> tuple[int, int] | None:
    begins, ends = text.count(BEGIN), text.count(END)
    if not begins and not ends:
        return None
    start, end = text.find(BEGIN), text.find(END)
    if begins != 1 or ends != 1 or end < start:
        raise Invalid(f"its marks '{BEGIN}' and '{END}' don't stand there once each, in this order")
    return start, end + len(END)
