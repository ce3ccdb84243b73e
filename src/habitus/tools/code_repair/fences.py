"""Markdown fences: which lines open and close a block, and which block is the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from habitus.tools.code_repair.source import has_definite_code, is_prose, pieces

_FENCE_LINE = re.compile(r"(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)")
_OPENS_AFTER_PROSE = re.compile(r"`{3}(?P<tag>python3?|py)[ \t]*+\Z", re.IGNORECASE)
_ONE_LINE = re.compile(r"```([^`\n]++)```")
_ONE_LINE_TAG = re.compile(r"(?:python3?|py3?)[ \t]", re.IGNORECASE)
_TAG = re.compile(r"\{?[ .]*([\w+#]+)")
_DEFINED = re.compile(r"^(?:async[ ]+)?(?:def|class)[ ]+(\w+)", re.MULTILINE)
_MENTIONED = re.compile(r"\b(?:def|class)[ ]+(\w+)[ ]*[(:]")
_THOUGHTS = re.compile(r"^[ \t]*</?(?:think|thinking|reasoning|thought)>", re.MULTILINE)
_PYTHON_TAGS = {"python", "python3", "py", "py3", "ipython", "pycon"}


MAX_FENCES = 400
"""More of them are no answer with code in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    tag: str
    text: str
    is_closed: bool

    @property
    def is_python(self) -> bool:
        return self.tag in _PYTHON_TAGS

    @property
    def defined_names(self) -> frozenset[str]:
        return frozenset(_DEFINED.findall(self.text))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fence:
    line: int
    indent: int
    mark: str
    tag: str
    prose: str = ""

    def may_close(self, opening: _Fence) -> bool:
        return not self.tag and self.mark.startswith(opening.mark) and self.indent <= opening.indent


def without_fences(text: str) -> Iterator[tuple[str, bool]]:
    """The code in the fences, likeliest reading first, each with whether its end was seen."""
    yield from _one_line(text)
    lines = text.split("\n")
    fences = list(_fences(lines))
    if not fences or len(fences) > MAX_FENCES or _THOUGHTS.search(text):
        return
    first, last = fences[0], fences[-1]
    if len(fences) > 2 and not last.tag and not has_definite_code("\n".join(lines[: first.line])):
        yield "\n".join(lines[first.line + 1 : last.line]), True  # fences inside belong to a docstring
    if len(fences) % 2 and not last.tag and not "".join(lines[last.line + 1 :]).strip():
        yield "\n".join(lines[: last.line]) + "\n", True
    for opened_before in (True, False):
        if opened_before and not _may_end_code(first, lines, fences):
            continue
        blocks, outside = _split(lines, fences, opened_before=opened_before)
        chosen = _choose(blocks)
        if chosen is not None and _is_only_talk(outside, chosen):
            yield chosen.text, chosen.is_closed


def _one_line(text: str) -> Iterator[tuple[str, bool]]:
    """A fence that opens and closes on the line of its code, and nothing but talk around it."""
    found = _ONE_LINE.search(text) if text.count("```") == 2 else None
    if found is None or has_definite_code(text[: found.start()] + text[found.end() :]):
        return
    code = found[1].strip()
    tag = _ONE_LINE_TAG.match(code)
    if code := code[tag.end() :].strip() if tag else code:
        yield f"{code}\n", True


def _may_end_code(first: _Fence, lines: list[str], fences: list[_Fence]) -> bool:
    """Is only the closing fence left, because the opening one was lost or was part of the prompt?"""
    before = [line for line in lines[: first.line] if line.strip()]
    if first.tag or not before:
        return False
    return has_definite_code("\n".join(before)) or (len(fences) % 2 == 1 and not all(map(is_prose, before)))


def _is_only_talk(outside: str, chosen: Block) -> bool:
    """Nothing is lost with it: no code, also not behind line numbers or marks."""
    return not has_definite_code(outside) and set(_MENTIONED.findall(outside)) <= set(_MENTIONED.findall(chosen.text))


def has_tilde_in_code(text: str) -> bool:
    """`~~~python` parses, as a name inverted three times; nobody means that."""
    return "~~~" in text and any(not literal and "~~~" in piece for literal, piece in pieces(text))


def _fences(lines: list[str]) -> Iterator[_Fence]:
    for number, line in enumerate(lines):
        if match := _FENCE_LINE.fullmatch(line):
            tag = _TAG.match(match["info"])
            name = tag.group(1).lower() if tag else ""
            yield _Fence(line=number, indent=len(match["indent"]), mark=match["mark"], tag=name)
        elif line.count("`") == 3 and (match := _OPENS_AFTER_PROSE.search(line)):
            yield _Fence(line=number, indent=0, mark="```", tag=match["tag"].lower(), prose=line[: match.start()])


def _split(lines: list[str], fences: list[_Fence], *, opened_before: bool) -> tuple[list[Block], str]:
    """The blocks, and all the text that is in none of them."""
    blocks: list[Block] = []
    outside: list[str] = []
    start = 0
    opening: _Fence | None = None
    if opened_before:
        opening = _Fence(line=-1, indent=fences[0].indent, mark=fences[0].mark, tag="python")
    for fence in fences:
        if opening is None:
            outside += [*lines[start : fence.line], fence.prose]
            opening = fence
        elif fence.may_close(opening):
            blocks.append(_block(opening, lines[opening.line + 1 : fence.line], is_closed=True))
            opening, start = None, fence.line + 1
        elif fence.tag and fence.indent <= opening.indent:
            blocks.append(_block(opening, lines[opening.line + 1 : fence.line], is_closed=False))
            opening = fence
    if opening is None:
        outside += lines[start:]
    else:
        blocks.append(_last_block(opening, lines[opening.line + 1 :]))
    return blocks, "\n".join(outside)


def _block(opening: _Fence, lines: list[str], *, is_closed: bool) -> Block:
    if opening.line >= 0 and opening.indent and all(not line[: opening.indent].strip() for line in lines):
        lines = [line[opening.indent :] for line in lines]
    if not opening.tag and lines and lines[0].strip().lower() in _PYTHON_TAGS:
        return Block(tag="python", text="\n".join(lines[1:]), is_closed=is_closed)
    return Block(tag=opening.tag, text="\n".join(lines), is_closed=is_closed)


def _last_block(opening: _Fence, lines: list[str]) -> Block:
    """A block that no proper fence closes: a crooked one may, or one glued to the last line."""
    text = "\n".join(lines).rstrip()
    if text.endswith(opening.mark):
        return _block(opening, text[: -len(opening.mark)].rstrip("`~").split("\n"), is_closed=True)
    return _block(opening, lines, is_closed=False)


def _choose(blocks: list[Block]) -> Block | None:
    """Python before untagged before others, definitions before usage, long before short; a later revision wins."""
    filled = [block for block in blocks if block.text.strip()]
    if not filled:
        return None
    best = max(filled, key=_weight)
    for block in filled[filled.index(best) + 1 :]:
        if best.defined_names and block.defined_names >= best.defined_names:
            best = block
    last = filled[-1]
    if last is not best and not last.is_closed and (last.is_python or not last.tag):
        return None  # the stream broke off in a block that might have been the code
    return best


def _weight(block: Block) -> tuple[int, bool, int]:
    rank = 2 if block.is_python else 1 if not block.tag else 0
    return rank, has_definite_code(block.text), len(block.text)
