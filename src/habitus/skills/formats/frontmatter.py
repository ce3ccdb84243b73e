"""The YAML block at the head of a Markdown file: split off, read leniently, written strictly, edited in place.

Every scalar is text: `no`, `1.0` and dates stay what the author wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from habitus.skills.model import Diagnostic, Severity

Fields = dict[str, Any]  # text, lists and mappings of such


class Unreadable(Exception):
    """The block can't be read; carries the diagnostic."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        super().__init__(str(diagnostic))


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """A Markdown file taken apart; `newline` and `gap` let an edit put it together as it was."""

    front: str | None  # without the fences, with `\n` line ends
    body: str
    newline: str = "\n"
    gap: str = "\n"  # what stands between the closing fence and the body
    ending: str = "\n"  # what stands after the body
    bom: bool = False

    def joined(self) -> str:
        head = f"---\n{self.front}---\n" if self.front is not None else ""
        text = head + (self.gap + self.body + self.ending if self.body else "")
        return ("\ufeff" if self.bom else "") + (text.replace("\n", "\r\n") if self.newline == "\r\n" else text)


_OPENING = re.compile(r"---[ \t]*\n")
_CLOSING = re.compile(r"^---[ \t]*$", re.MULTILINE)


def split(text: str, file: str) -> Parts:
    """Take a file apart. A block that is opened and never closed is unreadable, not body."""
    bom = text.startswith("\ufeff")
    newline = "\r\n" if "\r\n" in text else "\n"
    text = plain_newlines(text.removeprefix("\ufeff"))
    opening = _OPENING.match(text)
    if opening is None:
        return Parts(front=None, newline=newline, bom=bom, **_outer_newlines(text, after_fence=False))
    closing = _CLOSING.search(text, opening.end() - 1)
    if closing is None:
        raise Unreadable(
            Diagnostic(
                file=file,
                what="The frontmatter is opened with '---' and never closed.",
                mend="Put a line '---' after the last field.",
                severity=Severity.ERROR,
            )
        )
    rest = text[closing.end() + 1 :]
    return Parts(
        front=text[opening.end() : closing.start()],
        newline=newline,
        bom=bom,
        **_outer_newlines(rest, after_fence=True),
    )


def plain_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _outer_newlines(text: str, *, after_fence: bool) -> Any:
    body = text.strip("\n")
    if not body:
        return {"body": "", "gap": "\n" if after_fence else "", "ending": "\n"}
    start = text.index(body)
    return {"body": body, "gap": text[:start], "ending": text[start + len(body) :]}


class _TextLoader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]  # one of two bases, both SafeLoaders
    """A safe loader in which every scalar is text, and a repeated key is noticed."""

    repeated: list[str]


_TextLoader.yaml_implicit_resolvers = {}


def _mapping(loader: _TextLoader, node: yaml.MappingNode) -> Fields:
    fields: Fields = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        key = key if isinstance(key, str) else json.dumps(key, default=str)
        if key in fields:
            loader.repeated.append(key)
        fields[key] = loader.construct_object(value_node, deep=True)
    return fields


_TextLoader.add_constructor("tag:yaml.org,2002:map", _mapping)
_TextLoader.add_constructor(
    None, lambda loader, node: getattr(node, "value", "") if isinstance(node, yaml.ScalarNode) else None
)


def read(front: str, file: str) -> tuple[Fields, list[Diagnostic]]:
    """The fields of a block, with what was odd about it. An unquoted colon in a value is mended and said."""
    diagnostics: list[Diagnostic] = []
    try:
        fields = _load(front, file, diagnostics)
    except yaml.YAMLError as error:
        mended = _with_colons_quoted(front)
        if mended == front:
            raise Unreadable(_yaml_problem(error, file)) from None
        try:
            fields = _load(mended, file, diagnostics)
        except yaml.YAMLError:
            raise Unreadable(_yaml_problem(error, file)) from None
        diagnostics.append(
            Diagnostic(
                file=file,
                what="A value has a ': ' in it and no quotes around it; it was read as one text.",
                mend="Put the value in double quotes; stricter readers refuse the file.",
            )
        )
    if fields is None:
        fields = {}
    if not isinstance(fields, dict):
        kind = "a list" if isinstance(fields, list) else "a single text"
        raise Unreadable(
            Diagnostic(
                file=file,
                what=f"The frontmatter is {kind}, not fields.",
                mend="Write 'name: …' and 'description: …', one a line.",
                severity=Severity.ERROR,
            )
        )
    return fields, diagnostics


def _load(front: str, file: str, diagnostics: list[Diagnostic]) -> Any:
    loader = _TextLoader(front)
    loader.repeated = []
    try:
        value = loader.get_single_data()
    except (ValueError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from None
    finally:
        loader.dispose()
    diagnostics += [
        Diagnostic(file=file, what=f"The field '{key}' stands twice; the last one counts.", mend="Remove one.")
        for key in loader.repeated
    ]
    return value


def _yaml_problem(error: yaml.YAMLError, file: str) -> Diagnostic:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    where = f" (line {mark.line + 2})" if mark is not None else ""
    return Diagnostic(
        file=file,
        what=f"The frontmatter is not valid YAML{where}: {problem}.",
        mend="Quote the value on that line, or correct its indentation.",
        severity=Severity.ERROR,
    )


_SIMPLE_ENTRY = re.compile(r"(?P<key>[A-Za-z_][\w.-]*):[ \t]+(?P<value>[^\s\"'\[{|>&*!%@`#].*)")


def _with_colons_quoted(front: str) -> str:
    """Quote the top-level one-line values that hold a `: ` or end in a colon."""
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


def scalar(text: str) -> str:
    """Text as every YAML reader will read it back: plain where that is certain, else in quotes."""
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
    return quoted(text)


def quoted(value: object) -> str:
    """Text in double quotes, or a JSON value, on one line of YAML."""
    shown = "".join(map(_escaped, json.dumps(value, ensure_ascii=False)))
    # Some readers cut a value at '---', whatever the quotes.
    return shown.replace("---", "\\u002d" * 3)


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def write(fields: Mapping[str, str | Mapping[str, str]]) -> str:
    """A block with these fields, in this order."""
    return "".join(_entry(key, value, "") for key, value in fields.items())


def _entry(key: str, value: str | Mapping[str, str], indent: str) -> str:
    if isinstance(value, str):
        return f"{indent}{_key(key)}: {scalar(value)}\n"
    return f"{indent}{_key(key)}:\n" + "".join(_entry(name, text, indent + "  ") for name, text in value.items())


def _key(key: str) -> str:
    is_plain = re.fullmatch(r"[A-Za-z_][\w.-]*", key) and key.isascii() and key.lower() not in _SPECIAL
    return key if is_plain and "---" not in key else quoted(key)
