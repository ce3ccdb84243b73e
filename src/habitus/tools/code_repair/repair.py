"""`repair_code`: finds the smallest set of repairs, outermost first, that restores the author's program.

It distinguishes truncated code from code that is wrong, and from code that is complete.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

from habitus.tools.code_repair import characters, wrappers
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

MAX_ATTEMPTS = 40


"""Bounds the number of times the text is parsed, so that the work grows with its length only."""


MAX_REPEATS = 3


"""How often one defect may be found in another of its kind, as in entities that were escaped twice."""


Rule = Callable[[str], Iterator[tuple[str, bool]]]
# The order matters: a wrapper must be removed before the text inside it can be repaired.
RULES: tuple[tuple[Defect, Rule], ...] = (
    (Defect.CONTROL_CHARACTERS, characters.without_control_characters),
    (Defect.CDATA, wrappers.without_cdata),
    (Defect.XML_TAGS, wrappers.without_tags),
    (Defect.END_TOKENS, wrappers.without_tokens),
    (Defect.JSON, wrappers.without_json),
    (Defect.FENCE, wrappers.without_fences),
    (Defect.DIFF, characters.without_diff),
    (Defect.PROMPTS, characters.without_prompts),
    (Defect.LINE_PREFIXES, characters.without_line_prefixes),
    (Defect.ESCAPES, characters.without_escapes),
    (Defect.ENTITIES, characters.without_entities),
    (Defect.MARKDOWN, characters.without_markdown_escapes),
    (Defect.TYPOGRAPHY, characters.without_typography),
    (Defect.INDENTATION, characters.without_margin),
    (Defect.MIXED_TABS, characters.without_mixed_tabs),
    (Defect.CHAT, wrappers.without_chat),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Repaired:
    """The code with the defects that were repaired."""

    code: str
    defects: tuple[Defect, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Attempt:
    """A candidate text with the repairs that led to it; `is_closed` if the end of a wrapper was seen."""

    text: str
    defects: tuple[Defect, ...] = ()
    is_closed: bool = False


class _Verdict(Enum):
    """What to do with an attempt."""

    ACCEPT = auto()
    GO_ON = auto()
    CUT = auto()


def repair(text: str) -> Repaired:
    """Return the author's code and the repaired defects, or raise `CodeRefused`. Text that parses is returned as is."""
    module = parse(text)
    if module is None:
        return _search(_Attempt(text=text))
    if is_lone_literal(module) and (inner := _inner_code(text)):
        return inner
    return Repaired(code=text)


def _inner_code(text: str) -> Repaired | None:
    """Return the program inside a literal. A damaged one is repaired only in JSON, which no docstring is."""
    for value, _ in wrappers.without_json(text):
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
    """Search with the fewest repairs first, so the author's strings are decoded no further than needed."""
    queue = deque([first])
    seen = {first.text}
    furthest, is_cut = first, False
    while queue and len(seen) <= MAX_ATTEMPTS:
        for attempt in _hint(queue.popleft()):
            if attempt.text in seen:
                # Different repairs often lead to the same text.
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


def _hint(attempt: _Attempt) -> Iterator[_Attempt]:
    """Yield every text that one more repair produces; line endings and thoughts are unambiguous and come first."""
    if "\r" in attempt.text:
        yield replace(
            attempt, text=characters.with_line_feeds(attempt.text), defects=(*attempt.defects, Defect.LINE_ENDINGS)
        )
        return
    spoken = wrappers.without_thinking(attempt.text)
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
    # These parse by accident, so parsing is no proof.
    if characters.has_entities_in_code(attempt.text) or wrappers.has_tilde_in_code(attempt.text):
        return _Verdict.GO_ON
    if not attempt.is_closed and looks_cut(outcome, attempt.text):
        return _Verdict.CUT
    return _Verdict.ACCEPT


def _is_cut(text: str, outcome: ast.Module | SyntaxError) -> bool:
    return isinstance(outcome, SyntaxError) and stops_early(outcome, text) and has_definite_code(text)


def _refusal(attempt: _Attempt) -> CodeRefused:
    """Return the error for the most repaired text: truncated, no code, or a remaining defect."""
    text, outcome = attempt.text, read(attempt.text)
    if _is_cut(text, outcome):
        return CodeRefused(Defect.TRUNCATED)
    if not text.strip() or (not has_definite_code(text) and all(map(is_prose, text.strip().splitlines()))):
        return CodeRefused(Defect.NO_CODE)
    detail = f"line {outcome.lineno}: {outcome.msg}" if isinstance(outcome, SyntaxError) and outcome.lineno else ""
    return CodeRefused(attempt.defects[0] if attempt.defects else _describe_defect(text, outcome), detail)


def _describe_defect(text: str, outcome: ast.Module | SyntaxError) -> Defect:
    """Classify a text that no rule could change: the repair would be a guess, or the mistake is the author's."""
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
_OPEN_AT_END = ("was never closed", "unterminated triple-quoted", "unexpected EOF", "EOF in multi-line")
_UNFINISHED = ("unterminated string", "expected an indented block", "expected ")
_LAST_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*\Z")
_ALWAYS_KNOWN = frozenset((*dir(builtins), "lambda", "await", "yield", "not"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def stops_early(error: SyntaxError, text: str) -> bool:
    """Whether a text fails to parse because its end is missing."""
    if any(sign in error.msg for sign in _OPEN_AT_END):
        return True
    lines = text.rstrip().split("\n")
    if (error.lineno or 0) < len(lines):
        return False
    return error.msg.startswith(_UNFINISHED) or max(error.offset or 0, error.end_offset or 0) > len(lines[-1])


def looks_cut(module: ast.Module, text: str) -> bool:
    """Whether code that parses, but whose wrapper was never closed, seems to be missing its end."""
    last = module.body[-1]
    if _last_name_is_half(module, text):
        return True
    for statement in _last_statements(last):
        if isinstance(statement, Function) and _does_nothing(statement):
            return True
    return last is not (innermost := _innermost(last)) and _is_idle(innermost)


def _last_name_is_half(module: ast.Module, text: str) -> bool:
    """Whether the last name is cut off, like `return cou` if only `count` exists."""
    found = _LAST_NAME.search(text[-200:])
    if found is None:
        return False
    name, known = found.group(), {*_bound_names(module), *_ALWAYS_KNOWN}
    is_read = any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(module))
    return is_read and name not in known and any(other.startswith(name) for other in known)


def _bound_names(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.split(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names


def _last_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the last statement, the last one inside it, and so on."""
    current: ast.stmt | None = statement
    while current is not None:
        yield current
        current = _last_child(current)


def _innermost(statement: ast.stmt) -> ast.stmt:
    *_, innermost = _last_statements(statement)
    return innermost


def _last_child(statement: ast.stmt) -> ast.stmt | None:
    children = _child_statements(statement)
    return max(children, key=lambda child: (child.lineno, child.col_offset), default=None)


def _child_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from child.body


def _is_idle(statement: ast.stmt) -> bool:
    """Whether an expression's value is unused: half of an assignment or of a call."""
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value
    if isinstance(value, ast.Constant):
        return value.value is not Ellipsis
    return not any(isinstance(node, ast.Call | ast.Await | ast.Yield | ast.YieldFrom) for node in ast.walk(value))


def _does_nothing(function: Function) -> bool:
    """Whether a function has neither a result nor a visible effect, so that its end is missing."""
    fresh = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, _PLAIN_VALUES)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if _promises_result(function) and not any(
        isinstance(node, (*_RESULTS, ast.Pass)) or _is_dots(node) for node in ast.walk(function)
    ):
        return True
    return not any(_is_visible(node, fresh) for statement in function.body for node in ast.walk(statement))


_PLAIN_VALUES = (ast.Constant, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.DictComp, ast.SetComp)
_RESULTS = (ast.Return, ast.Yield, ast.YieldFrom, ast.Raise)
_EFFECTS = (*_RESULTS, ast.Pass, ast.Assert, ast.Delete, ast.Global, ast.Nonlocal, ast.With, ast.AsyncWith, ast.Await)


def _promises_result(function: Function) -> bool:
    returns = function.returns
    return returns is not None and not (isinstance(returns, ast.Constant) and returns.value is None)


def _is_visible(node: ast.AST, fresh: set[str]) -> bool:
    """Whether a node is a result, a write or a bare call, except on a container created in the function."""
    if isinstance(node, _EFFECTS):
        return True
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _root(node) not in fresh
    if isinstance(node, ast.Expr):
        return _is_dots(node) or (isinstance(node.value, ast.Call) and _root(node.value.func) not in fresh)
    return False


def _is_dots(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is Ellipsis


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
