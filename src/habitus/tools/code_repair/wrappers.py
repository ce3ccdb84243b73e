"""Unwraps code from CDATA, XML tags, template tokens, JSON, chat and Markdown fences.

Each function yields candidates as pairs: the text, and whether the end of the wrapper was seen.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from habitus.tools.code_repair.source import (
    LITERAL,
    has_definite_code,
    is_prose_line,
    parse_module,
    split_text_at_literals,
)

_CDATA_OPEN = re.compile(r"(?:<|&lt;)!\[CDATA\[?")
_CDATA_CLOSE = re.compile(r"\]\](?:>|&gt;)")
_TAG = re.compile(r"(?:<|&lt;)/?[A-Za-z_][\w:.=-]*(?:[ \t][^<>\n]*)?/?(?:>|&gt;)")
_HALF_TAG = re.compile(r"</[\w:.-]*")
_CODE_TAG = re.compile(
    r"<(?P<name>(?:antml:)?(?:parameter|param|argument|arg|python_code|python|code|script|source|tool_code))\b"
    r"(?P<rest>[^<>\n]*)>"
)
_CLOSING_LINE = re.compile(r"^[ \t]*</[A-Za-z_][\w:.-]*>?[ \t]*$|^[ \t]*</[A-Za-z_][\w:.-]*>[ \t]*<", re.MULTILINE)
_THINKING = re.compile(r"\s*+<(think|thinking|reasoning|thought)>")
_THINKING_END = re.compile(r"^[ \t]*</(?:think|thinking|reasoning|thought)>[ \t]*$", re.MULTILINE)
_TOKEN = re.compile(r"<[|｜][^<>|｜\n]{1,40}[|｜]>|\[/?INST\]|<<<END>>>")
_ROLE = re.compile(r"(?:assistant|python|code)[ \t]*\n")
_FIELDS = ("python_code", "code", "source_code", "source", "script", "content", "arguments", "input", "parameters")


def strip_thinking(text: str) -> str | None:
    """Return the text after the model's thoughts; None if there are none, "" if they never end."""
    if opening := _THINKING.match(text):
        return text.partition(f"</{opening.group(1)}>")[2]
    if ending := _THINKING_END.search(text):
        return None if has_definite_code(text[: ending.start()]) else text[ending.end() :]
    return None


def unwrap_cdata(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the content of a CDATA section."""
    opened = _CDATA_OPEN.search(text)
    if opened and has_definite_code(text[: opened.start()]):
        opened = None
    body = text[opened.end() :] if opened else text
    # The way a CDATA section spells its own end marker.
    body = body.replace("]]]]><![CDATA[>", "]]\0>")
    closes = list(_CDATA_CLOSE.finditer(body))
    if closes and not has_definite_code(body[closes[-1].end() :]):
        yield body[: closes[-1].start()].replace("]]\0>", "]]>"), True
    elif opened:
        body = body.replace("]]\0>", "]]>")
        head, _, tail = body.rstrip().rpartition("\n")
        yield (head, True) if tail.strip() in ("]]", "]") else (body, False)


def unwrap_tags(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text without tags at both ends, the parameter that holds the code, or all up to a closing line."""
    stripped, is_closed = _strip_tags(text)
    if stripped != text:
        yield stripped, is_closed
    if opening := _find_code_tag(text):
        inner = text[opening.end() :]
        end = f"</{opening['name']}>"
        for cut in (inner.rfind(end), inner.find(end)):
            if cut >= 0 and not has_definite_code(text[: opening.start()]):
                yield inner[:cut], True
    if closing := _CLOSING_LINE.search(stripped):
        yield stripped[: closing.start()], True


def _find_code_tag(text: str) -> re.Match[str] | None:
    for match in _CODE_TAG.finditer(text):
        if not match["name"].endswith(("parameter", "param", "argument", "arg")):
            return match
        if any(field in match["rest"] for field in ("code", "source", "script")):
            return match
    return None


def _strip_tags(text: str) -> tuple[str, bool]:
    start, end, is_closed = 0, len(text.rstrip()), False
    while match := _TAG.match(text, _find_end_of_space(text, start)):
        start = match.end()
    while (at := _find_opening_of_last_tag(text, start, end)) >= 0 and (
        _TAG.fullmatch(text, at, end) or _HALF_TAG.fullmatch(text, at, end)
    ):
        end, is_closed = _find_start_of_space_before(text, at), True
    if not start and not is_closed:
        return text, False
    return (text[start:end].lstrip("\n") + "\n", True) if is_closed else (text[start:].lstrip("\n"), False)


def _find_opening_of_last_tag(text: str, start: int, end: int) -> int:
    """Return where the last tag may begin, searching only the end because tags are short."""
    # A longer stretch would make this quadratic on texts full of `<`.
    near = max(start, end - 300)
    return max(text.rfind("<", near, end), text.rfind("&lt;", near, end))


def _find_end_of_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _find_start_of_space_before(text: str, at: int) -> int:
    while at and text[at - 1].isspace():
        at -= 1
    return at


def strip_template_tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text without leading template tokens and everything after the first trailing one."""
    start = 0
    while match := _TOKEN.match(text, _find_end_of_space(text, start)):
        start = match.end()
        if role := _ROLE.match(text, start):
            start = role.end()
    behind = _TOKEN.search(text, start)
    end = behind.start() if behind else len(text)
    if start or behind:
        yield text[start:end].lstrip("\r\n"), behind is not None and not _is_in_comment(text, end)


def _is_in_comment(text: str, at: int) -> bool:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return any(match.group().startswith("#") for match in LITERAL.finditer(line))


def unwrap_json(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the decoded string, or the code field of an object or tool call."""
    stripped = text.strip().rstrip(",;").rstrip()
    if stripped[:1] not in ('"', "'", "{", "[") and stripped[:2] not in ('r"', "r'"):
        return
    for spelled in (stripped, f"{{{stripped}}}"):
        try:
            value = json.loads(spelled, strict=False)
        except (ValueError, RecursionError):
            continue
        found = _find_code_field(value)
        if found is not None:
            yield found, True
        return
    module = parse_module(stripped)
    if module and len(module.body) == 1 and isinstance(module.body[0], ast.Expr):
        found = _find_code_field(_evaluate_literal(module.body[0].value))
        if found is not None:
            yield found, True


def _evaluate_literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _find_code_field(value: Any, depth: int = 0) -> str | None:
    match value:
        case str() if depth and value.lstrip().startswith("{"):
            try:
                return _find_code_field(json.loads(value, strict=False), depth + 1) or value
            except (ValueError, RecursionError):
                return value
        case str():
            return value
        case list() if depth and value and all(isinstance(line, str) for line in value):
            return "".join(line if line.endswith("\n") else f"{line}\n" for line in value)
        case dict() if depth < 5:
            known = (value[field] for field in (*_FIELDS, "function") if field in value)
            return next((code for inner in known if (code := _find_code_field(inner, depth + 1)) is not None), None)
    return None


def strip_chat(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text without sentences before and after the code, where no fence separates them."""
    lines = text.split("\n")
    before = sum(1 for _ in takewhile(_is_chat_or_blank_line, lines))
    after = sum(1 for _ in takewhile(_is_chat_or_blank_line, reversed(lines[before:])))
    kept = lines[before : len(lines) - after]
    said_before = any(line.strip() for line in lines[:before])
    said_after = any(line.strip() for line in lines[len(lines) - after :])
    if kept and (said_before or said_after):
        yield "\n".join(kept) + "\n" * said_after, said_after


def _is_chat_or_blank_line(line: str) -> bool:
    """Whether a line is blank or an unindented sentence; an indented line belongs to the code unless a list item."""
    if not line.strip():
        return True
    return is_prose_line(line) and (not line[0].isspace() or line.lstrip()[0] in "-*•")


_FENCE_LINE = re.compile(r"(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)")
_OPENS_AFTER_PROSE = re.compile(r"`{3}(?P<tag>python3?|py)[ \t]*+\Z", re.IGNORECASE)
_ONE_LINE = re.compile(r"```([^`\n]++)```")
_ONE_LINE_TAG = re.compile(r"(?:python3?|py3?)[ \t]", re.IGNORECASE)
_LANGUAGE = re.compile(r"\{?[ .]*([\w+#]+)")
_DEFINED = re.compile(r"^(?:async[ ]+)?(?:def|class)[ ]+(\w+)", re.MULTILINE)
_MENTIONED = re.compile(r"\b(?:def|class)[ ]+(\w+)[ ]*[(:]")
_THOUGHTS = re.compile(r"^[ \t]*</?(?:think|thinking|reasoning|thought)>", re.MULTILINE)
_PYTHON_TAGS = {"python", "python3", "py", "py3", "ipython", "pycon"}
# Texts with more fences are no answer that contains code.
MAX_FENCES = 400


"""More of them are no answer with code in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FencedBlock:
    """A fenced block with its language tag."""

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
class _FenceLine:
    line: int
    indent: int
    mark: str
    tag: str
    prose: str = ""

    def may_close(self, opening: _FenceLine) -> bool:
        return not self.tag and self.mark.startswith(opening.mark) and self.indent <= opening.indent


def unwrap_fences(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the code in the fences, likeliest reading first."""
    yield from _unwrap_inline_fence(text)
    lines = text.split("\n")
    fences = list(_find_fences(lines))
    if not fences or len(fences) > MAX_FENCES or _THOUGHTS.search(text):
        return
    first, last = fences[0], fences[-1]
    if len(fences) > 2 and not last.tag and not has_definite_code("\n".join(lines[: first.line])):
        # The inner fences belong to a docstring.
        yield "\n".join(lines[first.line + 1 : last.line]), True
    if len(fences) % 2 and not last.tag and not "".join(lines[last.line + 1 :]).strip():
        yield "\n".join(lines[: last.line]) + "\n", True
    for opened_before in (True, False):
        if opened_before and not _is_lone_closing_fence(first, lines, fences):
            continue
        blocks, outside = _split_fenced_blocks_from_other_text(lines, fences, opened_before=opened_before)
        chosen = _choose_block(blocks)
        if chosen is not None and _has_only_prose_outside(outside, chosen):
            yield chosen.text, chosen.is_closed


def _unwrap_inline_fence(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the code of a fence that opens and closes on one line, with only prose around it."""
    found = _ONE_LINE.search(text) if text.count("```") == 2 else None
    if found is None or has_definite_code(text[: found.start()] + text[found.end() :]):
        return
    code = found[1].strip()
    tag = _ONE_LINE_TAG.match(code)
    if code := code[tag.end() :].strip() if tag else code:
        yield f"{code}\n", True


def _is_lone_closing_fence(first: _FenceLine, lines: list[str], fences: list[_FenceLine]) -> bool:
    """Whether this is a closing fence whose opening one was lost or part of the prompt."""
    before = [line for line in lines[: first.line] if line.strip()]
    if first.tag or not before:
        return False
    return has_definite_code("\n".join(before)) or (len(fences) % 2 == 1 and not all(map(is_prose_line, before)))


def _has_only_prose_outside(outside: str, chosen: FencedBlock) -> bool:
    """Whether no code would be lost with the text outside the block."""
    return not has_definite_code(outside) and set(_MENTIONED.findall(outside)) <= set(_MENTIONED.findall(chosen.text))


def has_tilde_in_code(text: str) -> bool:
    """Whether code contains `~~~`: `~~~python` parses as a triple inversion, which is never meant."""
    return "~~~" in text and any(not literal and "~~~" in piece for literal, piece in split_text_at_literals(text))


def _find_fences(lines: list[str]) -> Iterator[_FenceLine]:
    for number, line in enumerate(lines):
        if match := _FENCE_LINE.fullmatch(line):
            tag = _LANGUAGE.match(match["info"])
            name = tag.group(1).lower() if tag else ""
            yield _FenceLine(line=number, indent=len(match["indent"]), mark=match["mark"], tag=name)
        elif line.count("`") == 3 and (match := _OPENS_AFTER_PROSE.search(line)):
            yield _FenceLine(line=number, indent=0, mark="```", tag=match["tag"].lower(), prose=line[: match.start()])


def _split_fenced_blocks_from_other_text(
    lines: list[str], fences: list[_FenceLine], *, opened_before: bool
) -> tuple[list[FencedBlock], str]:
    """Return the blocks, and the text outside of them."""
    blocks: list[FencedBlock] = []
    outside: list[str] = []
    start = 0
    opening: _FenceLine | None = None
    if opened_before:
        opening = _FenceLine(line=-1, indent=fences[0].indent, mark=fences[0].mark, tag="python")
    for fence in fences:
        if opening is None:
            outside += [*lines[start : fence.line], fence.prose]
            opening = fence
        elif fence.may_close(opening):
            blocks.append(_build_block(opening, lines[opening.line + 1 : fence.line], is_closed=True))
            opening, start = None, fence.line + 1
        elif fence.tag and fence.indent <= opening.indent:
            blocks.append(_build_block(opening, lines[opening.line + 1 : fence.line], is_closed=False))
            opening = fence
    if opening is None:
        outside += lines[start:]
    else:
        blocks.append(_build_unclosed_fenced_block(opening, lines[opening.line + 1 :]))
    return blocks, "\n".join(outside)


def _build_block(opening: _FenceLine, lines: list[str], *, is_closed: bool) -> FencedBlock:
    if opening.line >= 0 and opening.indent and all(not line[: opening.indent].strip() for line in lines):
        lines = [line[opening.indent :] for line in lines]
    if not opening.tag and lines and lines[0].strip().lower() in _PYTHON_TAGS:
        return FencedBlock(tag="python", text="\n".join(lines[1:]), is_closed=is_closed)
    return FencedBlock(tag=opening.tag, text="\n".join(lines), is_closed=is_closed)


def _build_unclosed_fenced_block(opening: _FenceLine, lines: list[str]) -> FencedBlock:
    """Return a block without a proper closing fence; one may be glued to the last line."""
    text = "\n".join(lines).rstrip()
    if text.endswith(opening.mark):
        return _build_block(opening, text[: -len(opening.mark)].rstrip("`~").split("\n"), is_closed=True)
    return _build_block(opening, lines, is_closed=False)


def _choose_block(blocks: list[FencedBlock]) -> FencedBlock | None:
    """Choose a block: Python before untagged, definitions before usage, long before short; later revisions win."""
    filled = [block for block in blocks if block.text.strip()]
    if not filled:
        return None
    best = max(filled, key=_rank_block)
    for block in filled[filled.index(best) + 1 :]:
        if best.defined_names and block.defined_names >= best.defined_names:
            best = block
    last = filled[-1]
    if last is not best and not last.is_closed and (last.is_python or not last.tag):
        # The stream broke off in a block that might have been the code.
        return None
    return best


def _rank_block(block: FencedBlock) -> tuple[int, bool, int]:
    rank = 2 if block.is_python else 1 if not block.tag else 0
    return rank, has_definite_code(block.text), len(block.text)
