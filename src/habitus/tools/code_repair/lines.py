"""What stands in front of the lines: indentation, numbers, prompts, diff marks. Each yields (text, end was seen)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from habitus.tools.code_repair.source import code_lines, has_definite_code, parse

_NUMBERED = re.compile(r"[ \t]*L?(\d{1,7})([ ]*[:|→│.)\]]|\t|(?=[ ])|$)")
_PROMPT = re.compile(r"(?:>>>|In \[\d+\]:)(?: |$)")
_CONTINUED = re.compile(r"[ \t]*\.\.\.:?(?: |$)")
_PROMPTED_OUTPUT = re.compile(r"Out\[\d+\]:")
_DIFF_HEADER = ("diff --git", "index ", "--- ", "+++ ", "new file", "\\ No newline")
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_MARKS = ">|│┃+"
_TOP_LEVEL = re.compile(r"(?:def|class|async[ ]+def|import|from|@)\b|@|if[ ]+__name__|#")


def without_line_prefixes(text: str) -> Iterator[tuple[str, bool]]:
    """Consecutive numbers, or one mark, in front of every line."""
    lines = text.strip("\n").split("\n")
    if numbered := _without_numbers(lines):
        yield numbered, False
    filled = [line.lstrip() for line in lines if line.strip()]
    mark = filled[0][0] if filled else ""
    if mark and mark in _MARKS and not _PROMPT.match(filled[0]) and all(line[0] == mark for line in filled):
        bare = [line.lstrip()[1:] for line in lines]
        yield _dedent(bare) + "\n", False


def _without_numbers(lines: list[str]) -> str | None:
    rest: list[str] = []
    expected: int | None = None
    separators: set[str] = set()
    for line in lines:
        if not line.strip():
            rest.append("")
            continue
        match = _NUMBERED.match(line)
        if match is None or (expected is not None and int(match[1]) != expected):
            return None
        expected = int(match[1]) + 1
        separators |= {match[2].strip(" ")} if match.end() < len(line) else set()
        rest.append(line[match.end() :])
    return _dedent(rest) + "\n" if len(separators) == 1 and (len(rest) > 1 or expected == 2) else None


def without_prompts(text: str) -> Iterator[tuple[str, bool]]:
    """The input of an interactive session; its output goes."""
    lines = _dedent(text.strip("\n").split("\n")).split("\n")
    if not _PROMPT.match(lines[0]):
        return
    kept: list[str] = []
    dropped: list[str] = []
    for line in lines:
        if match := _PROMPT.match(line) or _CONTINUED.match(line):
            kept.append(line[match.end() :])
        else:
            dropped.append(line)
    if not has_definite_code("\n".join(line for line in dropped if not _PROMPTED_OUTPUT.match(line))):
        yield "\n".join(kept) + "\n", False


def without_diff(text: str) -> Iterator[tuple[str, bool]]:
    """A new file as a diff: one hunk from line 1. Other hunks show only a part of the file."""
    lines = text.strip("\n").split("\n")
    hunks = [match for line in lines if (match := _HUNK.match(line))]
    if not hunks or len(hunks) > 1 or hunks[0][1] != "1":
        return
    at = next(number for number, line in enumerate(lines) if _HUNK.match(line))
    body = [line for line in lines[at + 1 :] if not line.startswith(_DIFF_HEADER)]
    if all(line.startswith(_DIFF_HEADER) or not line.strip() for line in lines[:at]) and all(
        line[:1] in ("+", "-", " ", "") for line in body
    ):
        yield "\n".join(line[1:] for line in body if not line.startswith("-")) + "\n", False


def without_margin(text: str) -> Iterator[tuple[str, bool]]:
    """One margin in front of all lines, of all lines of code, or of all but the first."""
    lines = text.split("\n")
    if _margin(lines):
        yield _dedent(lines), False
    counts = code_lines(text)
    margin = _margin([line for line, is_code in zip(lines, counts, strict=True) if is_code])
    if margin > _margin(lines):
        yield _cut(lines, [True] * len(lines), margin), False
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    rest = [line for line, is_code in zip(lines[first + 1 :], counts[first + 1 :], strict=True) if is_code]
    if (margin := _margin(rest)) and not lines[first][:1].isspace():
        at_margin = [line[margin:] for line in rest if line.strip() and not line[margin : margin + 1].isspace()]
        if all(_TOP_LEVEL.match(line) for line in at_margin):
            yield _cut(lines, [number > first for number in range(len(lines))], margin), False


def _dedent(lines: list[str]) -> str:
    """Like `textwrap.dedent`, but blank lines keep what they hold beyond the margin: they may be in a string."""
    margin = _margin(lines)
    return "\n".join(line[margin:] for line in lines)


def is_part_of_diff(text: str) -> bool:
    return any(_HUNK.match(line) for line in text.split("\n"))


def _margin(lines: list[str]) -> int:
    return min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)


def _cut(lines: list[str], chosen: list[bool], margin: int) -> str:
    return "\n".join(
        line[min(margin, len(line) - len(line.lstrip())) :] if is_chosen else line
        for line, is_chosen in zip(lines, chosen, strict=True)
    )


def without_mixed_tabs(text: str) -> Iterator[tuple[str, bool]]:
    """Tabs as spaces, if every width that parses gives the same program; a guess could move a line to another block."""
    lines = text.split("\n")
    counts = code_lines(text)
    starts = [line[0] for line, is_code in zip(lines, counts, strict=True) if is_code and line[:1] in ("\t", " ")]
    if "\t" not in text or len(set(starts)) == 0:
        return
    readings: dict[str, str] = {}
    for width in (4, 8, 2):
        expanded = "\n".join(
            _expand(line, width) if is_code else line for line, is_code in zip(lines, counts, strict=True)
        )
        if module := parse(expanded):
            readings.setdefault(_shape(module), expanded)
    if len(readings) == 1:
        yield from ((expanded, False) for expanded in readings.values())


def _shape(module: ast.Module) -> str:
    """Which block each statement belongs to: all that indentation can change."""
    return " ".join(f"{type(node).__name__}{len(list(ast.iter_child_nodes(node)))}" for node in ast.walk(module))


def _expand(line: str, width: int) -> str:
    body = line.lstrip(" \t")
    return line[: len(line) - len(body)].expandtabs(width) + body
