"""Wrappers around code: CDATA, XML tags, template tokens, JSON and chat. Each yields (text, end was seen)."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from habitus.tools.code_repair.source import LITERAL, has_definite_code, is_prose, parse

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


def without_thinking(text: str) -> str | None:
    """What follows the model's thoughts; nothing if there are none. Thoughts without an end leave an empty text."""
    if opening := _THINKING.match(text):
        return text.partition(f"</{opening.group(1)}>")[2]
    if ending := _THINKING_END.search(text):
        return None if has_definite_code(text[: ending.start()]) else text[ending.end() :]
    return None


def without_cdata(text: str) -> Iterator[tuple[str, bool]]:
    opened = _CDATA_OPEN.search(text)
    if opened and has_definite_code(text[: opened.start()]):
        opened = None
    body = text[opened.end() :] if opened else text
    body = body.replace("]]]]><![CDATA[>", "]]\0>")  # how a CDATA section spells its own end
    closes = list(_CDATA_CLOSE.finditer(body))
    if closes and not has_definite_code(body[closes[-1].end() :]):
        yield body[: closes[-1].start()].replace("]]\0>", "]]>"), True
    elif opened:
        body = body.replace("]]\0>", "]]>")
        head, _, tail = body.rstrip().rpartition("\n")
        yield (head, True) if tail.strip() in ("]]", "]") else (body, False)


def without_tags(text: str) -> Iterator[tuple[str, bool]]:
    """Tags at both ends; the parameter that holds the code; or all up to the first closing line."""
    stripped, is_closed = _strip_tags(text)
    if stripped != text:
        yield stripped, is_closed
    if opening := _code_tag(text):
        inner = text[opening.end() :]
        end = f"</{opening['name']}>"
        for cut in (inner.rfind(end), inner.find(end)):
            if cut >= 0 and not has_definite_code(text[: opening.start()]):
                yield inner[:cut], True
    if closing := _CLOSING_LINE.search(stripped):
        yield stripped[: closing.start()], True


def _code_tag(text: str) -> re.Match[str] | None:
    for match in _CODE_TAG.finditer(text):
        if not match["name"].endswith(("parameter", "param", "argument", "arg")):
            return match
        if any(field in match["rest"] for field in ("code", "source", "script")):
            return match
    return None


def _strip_tags(text: str) -> tuple[str, bool]:
    start, end, is_closed = 0, len(text.rstrip()), False
    while match := _TAG.match(text, _skip_space(text, start)):
        start = match.end()
    while (at := _last_opening(text, start, end)) >= 0 and (
        _TAG.fullmatch(text, at, end) or _HALF_TAG.fullmatch(text, at, end)
    ):
        end, is_closed = _skip_space_back(text, at), True
    if not start and not is_closed:
        return text, False
    return (text[start:end].lstrip("\n") + "\n", True) if is_closed else (text[start:].lstrip("\n"), False)


def _last_opening(text: str, start: int, end: int) -> int:
    """Where the last tag may begin; tags are short, so only the last stretch is looked at."""
    near = max(start, end - 300)
    return max(text.rfind("<", near, end), text.rfind("&lt;", near, end))


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _skip_space_back(text: str, at: int) -> int:
    while at and text[at - 1].isspace():
        at -= 1
    return at


def without_tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Template tokens in front, and all from the first one behind the code."""
    start = 0
    while match := _TOKEN.match(text, _skip_space(text, start)):
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


def without_json(text: str) -> Iterator[tuple[str, bool]]:
    """The string itself, the code field of an object or tool call, or a Python string literal."""
    stripped = text.strip().rstrip(",;").rstrip()
    if stripped[:1] not in ('"', "'", "{", "[") and stripped[:2] not in ('r"', "r'"):
        return
    for spelled in (stripped, f"{{{stripped}}}"):
        try:
            value = json.loads(spelled, strict=False)
        except (ValueError, RecursionError):
            continue
        found = _code_in(value)
        if found is not None:
            yield found, True
        return
    module = parse(stripped)
    if module and len(module.body) == 1 and isinstance(module.body[0], ast.Expr):
        found = _code_in(_literal(module.body[0].value))
        if found is not None:
            yield found, True


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _code_in(value: Any, depth: int = 0) -> str | None:
    match value:
        case str() if depth and value.lstrip().startswith("{"):
            try:
                return _code_in(json.loads(value, strict=False), depth + 1) or value
            except (ValueError, RecursionError):
                return value
        case str():
            return value
        case list() if depth and value and all(isinstance(line, str) for line in value):
            return "".join(line if line.endswith("\n") else f"{line}\n" for line in value)
        case dict() if depth < 5:
            known = (value[field] for field in (*_FIELDS, "function") if field in value)
            return next((code for inner in known if (code := _code_in(inner, depth + 1)) is not None), None)
    return None


def without_chat(text: str) -> Iterator[tuple[str, bool]]:
    """Sentences before the first and after the last line of code, where no fence separates them."""
    lines = text.split("\n")
    before = sum(1 for _ in takewhile(_is_chat, lines))
    after = sum(1 for _ in takewhile(_is_chat, reversed(lines[before:])))
    kept = lines[before : len(lines) - after]
    said_before = any(line.strip() for line in lines[:before])
    said_after = any(line.strip() for line in lines[len(lines) - after :])
    if kept and (said_before or said_after):
        yield "\n".join(kept) + "\n" * said_after, said_after


def _is_chat(line: str) -> bool:
    """Blank, or a sentence at the margin; an indented line belongs to the code unless it is a list item."""
    if not line.strip():
        return True
    return is_prose(line) and (not line[0].isspace() or line.lstrip()[0] in "-*•")
