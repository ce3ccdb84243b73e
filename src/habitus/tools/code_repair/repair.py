"""`repair`: the smallest set of mends, outermost first, after which the text is the author's program."""

from __future__ import annotations

import ast
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

from habitus.tools.code_repair import characters, envelopes, fences
from habitus.tools.code_repair.source import (
    CodeRefused,
    Defect,
    does_something,
    has_definite_code,
    is_lone_literal,
    is_prose,
    parse,
    read,
)
from habitus.tools.code_repair.truncation import looks_cut, stops_early

MAX_ATTEMPTS = 40
"""Bounds the number of times the text is parsed, so that the work grows with its length only."""

MAX_REPEATS = 3
"""How often one defect may be found in another of its kind, as in entities that were escaped twice."""

Rule = Callable[[str], Iterator[tuple[str, bool]]]
RULES: tuple[tuple[Defect, Rule], ...] = (
    (Defect.CONTROL_CHARACTERS, characters.without_control_characters),
    (Defect.CDATA, envelopes.without_cdata),
    (Defect.XML_TAGS, envelopes.without_tags),
    (Defect.END_TOKENS, envelopes.without_tokens),
    (Defect.JSON, envelopes.without_json),
    (Defect.FENCE, fences.without_fences),
    (Defect.DIFF, characters.without_diff),
    (Defect.PROMPTS, characters.without_prompts),
    (Defect.LINE_PREFIXES, characters.without_line_prefixes),
    (Defect.ESCAPES, characters.without_escapes),
    (Defect.ENTITIES, characters.without_entities),
    (Defect.MARKDOWN, characters.without_markdown_escapes),
    (Defect.TYPOGRAPHY, characters.without_typography),
    (Defect.INDENTATION, characters.without_margin),
    (Defect.MIXED_TABS, characters.without_mixed_tabs),
    (Defect.CHAT, envelopes.without_chat),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Repaired:
    code: str
    defects: tuple[Defect, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Attempt:
    text: str
    defects: tuple[Defect, ...] = ()
    is_closed: bool = False


class _Verdict(Enum):
    ACCEPT = auto()
    GO_ON = auto()
    CUT = auto()


def repair(text: str) -> Repaired:
    """The author's code and what was mended, or `CodeRefused`; text that parses is returned as it is."""
    module = parse(text)
    if module is None:
        return _search(_Attempt(text=text))
    if is_lone_literal(module) and (inner := _inner_code(text)):
        return inner
    return Repaired(code=text)


def _inner_code(text: str) -> Repaired | None:
    """The program inside a literal; a damaged one is sought only if the literal is JSON, as no docstring is."""
    for value, _ in envelopes.without_json(text):
        attempt = _Attempt(text=value, defects=(Defect.JSON,), is_closed=True)
        if _judge(attempt, read(value)) is _Verdict.ACCEPT:
            return Repaired(code=value, defects=attempt.defects)
        if _is_json(text):
            try:
                return _search(attempt)
            except CodeRefused:
                if "\n" in value and has_definite_code(value):
                    raise
    return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _search(first: _Attempt) -> Repaired:
    """Fewest mends first: what the author wrote in strings is then decoded no further than it must be."""
    queue = deque([first])
    seen = {first.text}
    furthest, is_cut = first, False
    while queue and len(seen) <= MAX_ATTEMPTS:
        for attempt in _mend(queue.popleft()):
            if attempt.text in seen:
                continue
            seen.add(attempt.text)
            outcome = read(attempt.text)
            match _judge(attempt, outcome):
                case _Verdict.ACCEPT:
                    return Repaired(code=attempt.text, defects=attempt.defects)
                case _Verdict.CUT:
                    raise CodeRefused(Defect.TRUNCATED)
                case _Verdict.GO_ON:
                    queue.append(attempt)
            is_cut |= _is_cut(attempt.text, outcome)
            if len(attempt.defects) > len(furthest.defects):
                furthest = attempt
    raise CodeRefused(Defect.TRUNCATED) if is_cut else _refusal(furthest)


def _mend(attempt: _Attempt) -> Iterator[_Attempt]:
    """Every text that one more mend makes of it; line endings and thoughts leave no choice and come first."""
    if "\r" in attempt.text:
        yield replace(
            attempt, text=characters.with_line_feeds(attempt.text), defects=(*attempt.defects, Defect.LINE_ENDINGS)
        )
        return
    spoken = envelopes.without_thinking(attempt.text)
    if spoken is not None:
        yield replace(attempt, text=spoken, defects=(*attempt.defects, Defect.CHAT))
        return
    for defect, rule in RULES:
        if attempt.defects.count(defect) == MAX_REPEATS:
            continue
        for text, end_was_seen in rule(attempt.text):
            is_closed = attempt.is_closed or end_was_seen
            yield _Attempt(text=text, defects=(*attempt.defects, defect), is_closed=is_closed)


def _judge(attempt: _Attempt, outcome: ast.Module | SyntaxError) -> _Verdict:
    if isinstance(outcome, SyntaxError) or not does_something(outcome) or is_lone_literal(outcome):
        return _Verdict.GO_ON
    if characters.has_entities_in_code(attempt.text) or fences.has_tilde_in_code(attempt.text):
        return _Verdict.GO_ON
    if not attempt.is_closed and looks_cut(outcome, attempt.text):
        return _Verdict.CUT
    return _Verdict.ACCEPT


def _is_cut(text: str, outcome: ast.Module | SyntaxError) -> bool:
    return isinstance(outcome, SyntaxError) and stops_early(outcome, text) and has_definite_code(text)


def _refusal(attempt: _Attempt) -> CodeRefused:
    """The error for the text that is left after all mending: cut off, no code at all, or a defect that stayed."""
    text, outcome = attempt.text, read(attempt.text)
    if _is_cut(text, outcome):
        return CodeRefused(Defect.TRUNCATED)
    if not text.strip() or (not has_definite_code(text) and all(map(is_prose, text.strip().splitlines()))):
        return CodeRefused(Defect.NO_CODE)
    detail = f"line {outcome.lineno}: {outcome.msg}" if isinstance(outcome, SyntaxError) and outcome.lineno else ""
    return CodeRefused(attempt.defects[0] if attempt.defects else _describe_defect(text, outcome), detail)


def _describe_defect(text: str, outcome: ast.Module | SyntaxError) -> Defect:
    """What is wrong with a text that no rule could change: the mend was a guess, or the mistake is the author's."""
    if isinstance(outcome, TabError):
        return Defect.MIXED_TABS
    if characters.is_part_of_diff(text):
        return Defect.DIFF
    if isinstance(outcome, SyntaxError):
        for sign, defect in _PARSER_SIGNS:
            if outcome.msg.startswith(sign):
                return defect
    return Defect.SYNTAX


_PARSER_SIGNS = (
    ("unexpected indent", Defect.INDENTATION),
    ("unindent does not match", Defect.INDENTATION),
    ("invalid character", Defect.TYPOGRAPHY),
    ("invalid non-printable character", Defect.CONTROL_CHARACTERS),
)
