"""Splits a page into statements, whatever its layout: paragraphs, bullets, table cells, fences, comments. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"\s*(?:[-*+>]\s+|\d+[.)]\s+)?(`{3,}|~{3,})[ \t]*([\w+.#-]*)")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)", re.DOTALL)
_KEY = re.compile(r"([\w-]+):[ \t]*(.*)")
_DESCRIBES = frozenset({"description", "when_to_use", "when-to-use", "summary", "short-description", "triggers"})
_MARKS = re.compile(r"\s*(?:(?:>+|#{1,6}|[-*+•]|\d{1,3}[.)]|\[[ xX]\]|<!--|//|#)\s+)*(?:<!--)?")
_OPENS_UNIT = re.compile(r"\s*(?:#{1,6}\s|[-*+•]\s|\d{1,3}[.)]\s|\||<!--)")
_DECORATION = re.compile(r"\*\*|-->|\\(?=\|)|^\s*[-=_*]{3,}\s*$")
_CELL = re.compile(r"(?:[^`|]|`[^`]*`|`)+")
_RULER = re.compile(r"[\s|:-]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*_”’\]]{0,3}\s+(?=\S)|(?<=[。！？])|\s—\s(?=[A-Z])")
_LONGEST = 900  # characters of a statement; a longer sentence is cut
_SAID_IN_FENCES = re.compile(r"text|txt|md|markdown|prompt|plain|plaintext|none|html|xml|yaml|")
SHELL_FENCES = re.compile(r"(?:ba|z)?sh|shell|shell-session|console|terminal|powershell|ps1|cmd|text|txt|")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProseSentence:
    """A sentence, or what stands for one, without the marks of its layout."""

    text: str
    line: int
    unit: int  # counts paragraphs, list items and rows
    is_description: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeBlock:
    """A fence with the language that it claims to be in, or a line that may hold commands."""

    text: str
    line: int
    language: str
    is_runnable: bool  # a fence in a language that is run


@dataclass(frozen=True, kw_only=True, slots=True)
class ParagraphOrListItem:
    """A paragraph, list item or row, in which commands may stand, with the lines that it was joined from."""

    text: str
    ends: tuple[tuple[int, int], ...]  # where each line ends in the text, and its number

    def get_line_at(self, place: int) -> int:
        return next((number for end, number in self.ends if place < end), self.ends[-1][1])


@dataclass(frozen=True, kw_only=True, slots=True)
class ProsePage:
    statements: tuple[ProseSentence, ...]
    blocks: tuple[CodeBlock, ...]
    units: tuple[ParagraphOrListItem, ...]


def parse_page(text: str) -> ProsePage:
    return _PageReader().parse_page(text)


def split_sentences(text: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(text):
        for start in range(0, len(sentence), _LONGEST):
            if piece := sentence[start : start + _LONGEST].strip():
                yield piece


class _PageReader:
    def __init__(self) -> None:
        self.statements: list[ProseSentence] = []
        self.blocks: list[CodeBlock] = []
        self.units: list[ParagraphOrListItem] = []
        self.pending: list[tuple[int, str]] = []

    def parse_page(self, text: str) -> ProsePage:
        first = 1
        if front := _FRONT_MATTER.match(text):
            self._add_statements_of_front_matter(front[1])
            first += front[0].count("\n")
            text = text[front.end() :]
        fence, language, start, inside = "", "", 0, list[str]()
        for number, line in enumerate(text.split("\n"), first):
            mark = _FENCE.match(line)
            if fence:
                if mark and mark[1].startswith(fence) and not mark[2]:
                    self._add_code_block_at_fence_end(language, start, inside)
                    fence, inside = "", []
                else:
                    inside.append(line)
            elif mark:
                self._add_pending_lines_as_paragraph()
                fence, language, start = mark[1], mark[2].lower(), number + 1
            else:
                self._add_line_to_paragraph_or_table(number, line)
        if fence:
            self._add_code_block_at_fence_end(language, start, inside)
        self._add_pending_lines_as_paragraph()
        return ProsePage(statements=tuple(self.statements), blocks=tuple(self.blocks), units=tuple(self.units))

    def _add_statements_of_front_matter(self, front: str) -> None:
        """The description is in every prompt; other values are read like the rest."""
        key, value, start = "", list[str](), 2
        for number, line in enumerate([*front.split("\n"), "end:"], 2):
            if (found := _KEY.match(line)) and not line[0].isspace():
                text = " ".join(value).strip(" \"'>|")
                for sentence in split_sentences(text):
                    self._add_statement(sentence, start, is_description=key in _DESCRIBES)
                if key not in _DESCRIBES and text:
                    self.units.append(ParagraphOrListItem(text=text, ends=((len(text), start),)))
                key, value, start = found[1].lower(), [found[2]], number
            else:
                value.append(line.strip())

    def _add_code_block_at_fence_end(self, language: str, start: int, lines: list[str]) -> None:
        text = "\n".join(lines)
        self.blocks.append(
            CodeBlock(text=text, line=start, language=language, is_runnable=not _SAID_IN_FENCES.fullmatch(language))
        )
        for number, line in enumerate(lines, start):
            if _SAID_IN_FENCES.fullmatch(language):
                self._add_line_to_paragraph_or_table(number, line)
            elif "#" in line or "//" in line or "--" in line:
                self._add_line_to_paragraph_or_table(number, line)
                self._add_pending_lines_as_paragraph()
        self._add_pending_lines_as_paragraph()

    def _add_line_to_paragraph_or_table(self, number: int, line: str) -> None:
        if not line.strip() or (_OPENS_UNIT.match(line) and self.pending):
            self._add_pending_lines_as_paragraph()
        if line.lstrip().startswith("|") and line.count("|") > 1:
            self._add_statements_of_table_row(number, line)
        elif line.strip():
            self.pending.append((number, _DECORATION.sub("", _MARKS.sub("", line, count=1))))
            if line.lstrip().startswith("#"):
                self._add_pending_lines_as_paragraph()

    def _add_statements_of_table_row(self, number: int, line: str) -> None:
        """Each cell is a statement of its own; a command may have pipes in it, so the row is kept whole as well."""
        row = _DECORATION.sub("", line.strip().strip("|"))
        if _RULER.fullmatch(row):
            return
        self.units.append(ParagraphOrListItem(text=row, ends=((len(row), number),)))
        for cell in _CELL.findall(row):
            for sentence in split_sentences(cell.strip()):
                self._add_statement(sentence, number)

    def _add_pending_lines_as_paragraph(self) -> None:
        """A unit ends: its lines are joined, because a line break in it means nothing."""
        if not self.pending:
            return
        text = " ".join(line for _, line in self.pending)
        ends, at = list[tuple[int, int]](), 0
        for number, line in self.pending:
            at += len(line) + 1
            ends.append((at, number))
        unit = ParagraphOrListItem(text=text, ends=tuple(ends))
        self.units.append(unit)
        place = 0
        for sentence in split_sentences(text):
            place = max(text.find(sentence, place), place)
            self._add_statement(sentence, unit.get_line_at(place))
        self.pending = []

    def _add_statement(self, sentence: str, line: int, *, is_description: bool = False) -> None:
        self.statements.append(
            ProseSentence(text=sentence, line=line, unit=len(self.units), is_description=is_description)
        )
