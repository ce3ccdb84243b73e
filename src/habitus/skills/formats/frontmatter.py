"""The YAML block at the head of a Markdown file: split off, read leniently, written strictly, edited in place.

Every scalar is text: `no`, `1.0` and dates stay what the author wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
class FrontMatter:
    """A Markdown file taken apart, every piece as it is written: put together they are the file again."""

    opening: str = "---\n"
    front: str | None = None  # what stands between the fences
    closing: str = "---\n"
    gap: str = ""  # the blank lines before the body
    body: str = ""
    ending: str = ""  # the line ends after it

    def joined(self) -> str:
        head = self.opening + (self.front or "") + self.closing
        return head + self.gap + self.body + self.ending

    def with_front(self, front: str) -> FrontMatter:
        return replace(self, front=front.replace("\n", _newline_of(self.opening)))

    def with_body(self, body: str) -> FrontMatter:
        """With another body, whose line ends become those of the file."""
        if not body:
            return replace(self, gap="", body="", ending="")
        newline = _newline_of(self.gap + self.body + self.ending, self.closing, self.opening)
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


def split(text: str, file: str) -> FrontMatter:
    """Take a file apart. A block that is opened and never closed is unreadable, not body."""
    opening = _OPENING.match(text)
    if opening is None:
        rest = text.removeprefix("\ufeff")
        return _with_rest(FrontMatter(opening=text[: len(text) - len(rest)], closing=""), rest)
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        raise Unreadable(
            Diagnostic(
                file=file,
                what="The frontmatter is opened with '---' and never closed.",
                mend="Put a line '---' after the last field.",
                severity=Severity.ERROR,
            )
        )
    head = FrontMatter(opening=opening[0], front=text[opening.end() : closing.start()], closing=closing[0])
    return _with_rest(head, text[closing.end() :])


def _with_rest(head: FrontMatter, rest: str) -> FrontMatter:
    body = rest.strip("\r\n")
    start = rest.index(body) if body else len(rest)
    return replace(head, gap=rest[:start], body=body, ending=rest[start + len(body) :])


def _newline_of(*texts: str) -> str:
    """How lines end in the first of the texts that has any."""
    return next((newline for text in texts for newline in ("\r\n", "\n", "\r") if newline in text), "\n")


def plain_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


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
    builder = _Builder(front)
    try:
        value = builder.document()
    except ValueError as error:
        raise yaml.YAMLError(str(error)) from None
    diagnostics += [
        Diagnostic(file=file, what=f"The field '{key[:80]}' stands twice; the last one counts.", mend="Remove one.")
        for key in builder.repeated
    ]
    return value


_LOADER = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
MAX_DEPTH = 50  # how far values may be nested
_MAX_VALUES = 10_000


class _Builder:
    """Makes texts, lists and mappings straight from the parser's events: tags mean nothing here, nesting is
    bounded before it can exhaust the stack, and aliases before they can exhaust the memory."""

    def __init__(self, front: str) -> None:
        self.repeated: list[str] = []
        self._events = yaml.parse(front, Loader=_LOADER)
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        self._most = max(_MAX_VALUES, len(front))

    def document(self) -> Any:
        next(self._events)  # the stream starts
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(next(self._events), 0)
        next(self._events)  # the document ends
        another = next(self._events)
        if not isinstance(another, yaml.StreamEndEvent):
            raise _refused("a second document begins here", another)
        return value

    def _value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._repeated_value(event, depth)
        if depth > MAX_DEPTH:
            raise _refused(f"values are nested more than {MAX_DEPTH} deep", event)
        before = self._count
        self._count += 1
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = list(self._items(depth))
        else:
            value = self._mapping(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._count - before
        return value

    def _repeated_value(self, event: Any, depth: int) -> Any:
        if event.anchor not in self._anchors:
            raise _refused(f"nothing before this is called '&{event.anchor}'", event)
        value, count = self._anchors[event.anchor]
        self._count += count
        if self._count > self._most or depth + height(value) > MAX_DEPTH:
            raise _refused("aliases repeat too much", event)
        return value

    def _items(self, depth: int) -> Iterator[Any]:
        while not isinstance(event := next(self._events), yaml.CollectionEndEvent):
            yield self._value(event, depth + 1)

    def _mapping(self, depth: int) -> Fields:
        fields: Fields = {}
        items = self._items(depth)
        for key in items:
            name = key if isinstance(key, str) else json.dumps(key)
            if name in fields:
                self.repeated.append(name)
            fields[name] = next(items)
        return fields


def height(value: object) -> int:
    """How far a value is nested: 0 for a text, 1 for a list of texts."""
    found, level = 0, [value]
    while level := [child for item in level for child in _children(item)]:
        found += 1
    return found


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refused(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


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
