"""The YAML block at the head of a Markdown file: split off, read leniently, written strictly, and edited in place
without touching comments, order or other bytes.
"""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from habitus.skills.model import Diagnostic, MalformedFileError

FrontMatterFields = dict[str, Any]  # texts, lists and mappings of such


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontMatterDocument:
    """A Markdown file in parts, unchanged: joined, they give the same file."""

    opening: str = "---\n"
    front: str | None = None  # the text between the fences
    closing: str = "---\n"
    gap: str = ""  # the blank lines before the body
    body: str = ""
    ending: str = ""  # the line ends after the body

    def render_document(self) -> str:
        """Return the file."""
        head = self.opening + (self.front or "") + self.closing
        return head + self.gap + self.body + self.ending

    def with_front(self, front: str) -> FrontMatterDocument:
        """Return the parts with another block, in the file's line ends."""
        return replace(self, front=front.replace("\n", _detect_newline(self.opening)))

    def with_body(self, body: str) -> FrontMatterDocument:
        """Return the parts with another body, in the file's line ends."""
        if not body:
            return replace(self, gap="", body="", ending="")
        newline = _detect_newline(self.gap + self.body + self.ending, self.closing, self.opening)
        closing = self.closing if self.closing.endswith(("\n", "\r")) else self.closing + newline
        return replace(
            self,
            closing=closing,
            gap=self.gap or newline,
            body=body.replace("\n", newline),
            ending=self.ending or newline,
        )


_OPENING = re.compile(r"\ufeff?---[ \t]*(\r\n|\n|\r)")
_CLOSING = re.compile(r"(?<=[\r\n])---[ \t]*(\r\n|\n|\r|\Z)")


def split_front_matter(text: str, file: str) -> FrontMatterDocument:
    """Split a file; raise `MalformedFileError` if a block is opened and never closed."""
    opening = _OPENING.match(text)
    if opening is None:
        rest = text.removeprefix("\ufeff")
        return _build_document(rest, head=text[: len(text) - len(rest)], front=None, closing="")
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        what = "The frontmatter is opened with '---' and never closed."
        raise MalformedFileError(what, "Put a line '---' after the last field.", file=file)
    front = text[opening.end() : closing.start()]
    return _build_document(text[closing.end() :], head=opening[0], front=front, closing=closing[0])


def _build_document(rest: str, *, head: str, front: str | None, closing: str) -> FrontMatterDocument:
    body = rest.strip("\r\n")
    start = len(rest) - len(rest.lstrip("\r\n")) if body else len(rest)
    ending = rest[start + len(body) :]
    return FrontMatterDocument(opening=head, front=front, closing=closing, gap=rest[:start], body=body, ending=ending)


def _detect_newline(*texts: str) -> str:
    """Return the line end of the first text that has one."""
    return next((newline for text in texts for newline in ("\r\n", "\n", "\r") if newline in text), "\n")


def normalize_newlines(text: str) -> str:
    """Return the text with line feeds alone at the ends of lines."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def parse_fields_with_diagnostics(front: str, file: str) -> tuple[FrontMatterFields, list[Diagnostic]]:
    """Return the fields of a block and its diagnostics. An unquoted colon in a value is accepted with a warning."""
    try:
        fields, odd = _parse_fields(front)
    except MalformedFileError as error:
        raise MalformedFileError(error.diagnostic.message, error.diagnostic.hint, file=file) from None
    return dict(fields), [replace(each, file=file) for each in odd]


# A change reads the file, edits some fields and reads the result: the same two texts several times.
@functools.lru_cache(maxsize=64)
def _parse_fields(front: str) -> tuple[FrontMatterFields, list[Diagnostic]]:
    # The YAML parser is slow to import, and a cached read doesn't need it.
    from habitus.skills.formats.yaml_values import load_yaml_with_text_scalars

    diagnostics: list[Diagnostic] = []
    try:
        fields = load_yaml_with_text_scalars(front, diagnostics)
    except MalformedFileError as error:
        # An unquoted colon in a description is a common mistake, so try again with such values quoted.
        quoted = _quote_values_with_colons(front)
        if quoted == front:
            raise
        try:
            fields = load_yaml_with_text_scalars(quoted, diagnostics)
        except MalformedFileError:
            # Quoting did not help, so report the problem of the original text.
            raise error from None
        diagnostics.append(
            Diagnostic(
                file="",
                message="A value has a ': ' in it and no quotes around it; it was read as one text.",
                hint="Put the value in double quotes; stricter readers refuse the file.",
            )
        )
    if fields is None:
        fields = {}
    if not isinstance(fields, dict):
        kind = "a list" if isinstance(fields, list) else "a single text"
        hint = "Write 'name: …' and 'description: …', one a line."
        raise MalformedFileError(f"The frontmatter is {kind}, not fields.", hint)
    return fields, diagnostics


_SIMPLE_ENTRY = re.compile(r"(?P<key>[A-Za-z_][\w.-]*):[ \t]+(?P<value>[^\s\"'\[{|>&*!%@`#].*)")


def _quote_values_with_colons(front: str) -> str:
    """Quote the top-level one-line values that contain `: ` or end in a colon."""
    lines = []
    for line in front.split("\n"):
        found = _SIMPLE_ENTRY.fullmatch(line)
        if found and (": " in found["value"] or found["value"].rstrip().endswith(":")):
            line = f"{found['key']}: {json.dumps(found['value'].rstrip(), ensure_ascii=False)}"
        lines.append(line)
    return "\n".join(lines)


# Writing

_PLAIN = re.compile(r"[A-Za-z][\w ./,()'+-]*")
_SPECIAL = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def format_scalar(text: str) -> str:
    """Render a text as every YAML reader reads it back: plain if that is certain, otherwise quoted."""
    is_plain = (
        _PLAIN.fullmatch(text)
        and text.isascii()
        and text.lower() not in _SPECIAL
        and "---" not in text
        and not text.endswith(" ")
    )
    if is_plain:
        return text
    if '"' in text and "'" not in text and "---" not in text and text.isascii() and text.isprintable():
        return f"'{text}'"
    return quote_value(text)


def quote_value(value: object) -> str:
    """Render a text in double quotes, or a JSON value, on one line of YAML."""
    shown = "".join(map(_escape_char, json.dumps(value, ensure_ascii=False)))
    # Some readers cut a value at '---', even inside quotes.
    return shown.replace("---", "\\u002d" * 3)


def _escape_char(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def render_fields(fields: Mapping[str, str | Mapping[str, str]]) -> str:
    """Render a block with these fields, in this order."""
    return "".join(_render_field(key, value, "") for key, value in fields.items())


def _render_field(key: str, value: str | Mapping[str, str], indent: str) -> str:
    if isinstance(value, str):
        return f"{indent}{_format_key(key)}: {format_scalar(value)}\n"
    return f"{indent}{_format_key(key)}:\n" + "".join(
        _render_field(name, one, indent + "  ") for name, one in value.items()
    )


def _format_key(key: str) -> str:
    is_plain = re.fullmatch(r"[A-Za-z_][\w.-]*", key) and key.isascii() and key.lower() not in _SPECIAL
    return key if is_plain and "---" not in key else quote_value(key)


FrontMatterChanges = Mapping[
    str, "str | Mapping[str, str | None] | None"
]  # None removes; a mapping changes a nested block
_ENTRY = re.compile(
    r"""(?P<indent>[ ]*)(?P<quote>["']?)(?P<key>[^\s"'#:\[\]{},&*!|>%@`-][^"'#]*?)(?P=quote)[ \t]*:(?=[ \t\n]|$)"""
)


def change_fields(front: str, changes: FrontMatterChanges, file: str) -> str:
    """Return the block with the changes applied.

    Entries are replaced line by line; if that fails (flow style, anchors), a YAML round trip follows, and as a
    last resort the fields are rewritten. Each result is read back and counts only if it says exactly what was
    asked.
    """
    if front and not front.endswith("\n"):
        front += "\n"
    wanted = _apply_changes_to_fields(_parse_fields_without_diagnostics(front, file), changes)
    for way in (_edit_field_lines, _edit_with_ruamel):
        try:
            changed = way(front, changes)
            if _parse_fields_without_diagnostics(changed, file) == wanted:
                return changed
        except (MalformedFileError, _UnsupportedBlockError):
            continue
    # Imported late: this is the last resort, and no command should wait for it.
    import yaml

    # Unescaped, characters that end a line only in YAML would be folded away.
    for is_escaped in (False, True):
        changed = yaml.safe_dump(wanted, allow_unicode=not is_escaped, sort_keys=False, width=10_000) if wanted else ""
        if _parse_fields_without_diagnostics(changed, file) == wanted:
            break
    return changed


class _UnsupportedBlockError(Exception):
    """Raised if a block is not made of plain `key: value` lines."""


def _parse_fields_without_diagnostics(front: str, file: str) -> FrontMatterFields:
    return parse_fields_with_diagnostics(front, file)[0]


def _apply_changes_to_fields(fields: FrontMatterFields, changes: FrontMatterChanges) -> FrontMatterFields:
    result = dict(fields)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, str):
            result[key] = value
        else:
            below = result.get(key)
            nested = _apply_changes_to_fields(below if isinstance(below, dict) else {}, value)
            if nested:
                result[key] = nested
            else:
                result.pop(key, None)
    return result


def _edit_field_lines(front: str, changes: FrontMatterChanges, indent: str = "") -> str:
    entries = _split_entries(front, indent)
    pending = dict(changes)
    kept: list[str] = []
    for key, lines in entries:
        if key not in changes:
            kept.append(lines)
            continue
        # A repeated key: the last one counts for readers, so only its comments stay.
        if key not in pending:
            kept.append(_drop_text_if_blank(_extract_comments_above_entry(lines)))
            continue
        value = pending.pop(key)
        if isinstance(value, Mapping):
            kept.append(_edit_nested_block(key, lines, value, indent))
        elif value is not None:
            kept.append(_extract_comments_above_entry(lines) + _render_indented_field(key, value, indent))
        else:
            kept.append(_drop_text_if_blank(_extract_comments_above_entry(lines)))
    for key, value in pending.items():
        if isinstance(value, Mapping):
            value = {name: text for name, text in value.items() if text is not None}
        if value or value == "":
            kept.append(_render_indented_field(key, value, indent))
    return "".join(kept)


def _split_entries(front: str, indent: str) -> list[tuple[str, str]]:
    """Split the block into entries: (key, its lines with the comments and blank lines above them)."""
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
            raise _UnsupportedBlockError(line)
    if key:
        entries.append((key, own))
    if above:
        entries.append(("", above))
    return entries


def _extract_comments_above_entry(lines: str) -> str:
    """Return the comments and blank lines above an entry's first line."""
    lead = ""
    for line in lines.splitlines(keepends=True):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        lead += line
    return lead


def _drop_text_if_blank(lead: str) -> str:
    return lead if lead.strip() else ""


def _edit_nested_block(key: str, lines: str, changes: Mapping[str, str | None], indent: str) -> str:
    lead = _extract_comments_above_entry(lines)
    head, _, below = lines[len(lead) :].partition("\n")
    opened = head.rstrip()
    if not opened.endswith(":") or not below.strip():
        raise _UnsupportedBlockError(head)
    first = next(line for line in below.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    deeper = " " * (len(first) - len(first.lstrip(" ")))
    if len(deeper) <= len(indent):
        raise _UnsupportedBlockError(head)
    changed = _edit_field_lines(below, changes, deeper)
    if not any(line.strip() and not line.lstrip().startswith("#") for line in changed.splitlines()):
        return lead
    return f"{lead}{head}\n{changed}"


def _render_indented_field(key: str, value: str | Mapping[str, str | None], indent: str) -> str:
    if isinstance(value, str):
        text = render_fields({key: value})
    else:
        text = render_fields({key: {name: text for name, text in value.items() if text is not None}})
    return "".join(indent + line for line in text.splitlines(keepends=True))


def _edit_with_ruamel(front: str, changes: FrontMatterChanges) -> str:
    # Only needed for the rare block that is not made of plain lines.
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    def put(target: CommentedMap, wanted: FrontMatterChanges) -> None:
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
    # ruamel's exceptions have no common base class.
    except Exception as error:
        raise _UnsupportedBlockError(str(error)) from None
    return out.getvalue()
