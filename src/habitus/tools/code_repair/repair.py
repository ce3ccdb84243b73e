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
    CodeDefectKind,
    CodeRefused,
    has_definite_code,
    has_more_than_names_and_constants,
    is_lone_literal,
    is_prose_line,
    parse_module,
    parse_module_or_error,
)

MAX_ATTEMPTS = 40


"""Bounds the number of times the text is parsed, so that the work grows with its length only."""


MAX_REPEATS = 3


"""How often one defect may be found in another of its kind, as in entities that were escaped twice."""


RepairRule = Callable[[str], Iterator[tuple[str, bool]]]
# The order matters: a wrapper must be removed before the text inside it can be repaired.
RULES: tuple[tuple[CodeDefectKind, RepairRule], ...] = (
    (CodeDefectKind.CONTROL_CHARACTERS, characters.strip_control_characters),
    (CodeDefectKind.CDATA, wrappers.unwrap_cdata),
    (CodeDefectKind.XML_TAGS, wrappers.unwrap_tags),
    (CodeDefectKind.END_TOKENS, wrappers.strip_template_tokens),
    (CodeDefectKind.JSON, wrappers.unwrap_json),
    (CodeDefectKind.FENCE, wrappers.unwrap_fences),
    (CodeDefectKind.DIFF, characters.extract_new_file_from_diff),
    (CodeDefectKind.PROMPTS, characters.extract_input_of_interactive_session),
    (CodeDefectKind.LINE_PREFIXES, characters.strip_line_prefixes),
    (CodeDefectKind.ESCAPES, characters.decode_escaped_line_breaks),
    (CodeDefectKind.ENTITIES, characters.propose_html_entity_decodings),
    (CodeDefectKind.MARKDOWN, characters.strip_markdown_escapes),
    (CodeDefectKind.TYPOGRAPHY, characters.replace_typography),
    (CodeDefectKind.INDENTATION, characters.strip_common_indentation),
    (CodeDefectKind.MIXED_TABS, characters.expand_mixed_tabs),
    (CodeDefectKind.CHAT, wrappers.strip_chat),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairedCode:
    """The code with the defects that were repaired."""

    code: str
    defects: tuple[CodeDefectKind, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _RepairAttempt:
    """A candidate text with the repairs that led to it; `is_closed` if the end of a wrapper was seen."""

    text: str
    defects: tuple[CodeDefectKind, ...] = ()
    is_closed: bool = False


class _NextSearchAction(Enum):
    """What to do with an attempt."""

    ACCEPT = auto()
    GO_ON = auto()
    CUT = auto()


def repair_code(text: str) -> RepairedCode:
    """Return the author's code and the repaired defects, or raise `CodeRefused`. Text that parses is returned as is."""
    module = parse_module(text)
    if module is None:
        return _search_repairs(_RepairAttempt(text=text))
    if is_lone_literal(module) and (inner := _repair_code_inside_literal(text)):
        return inner
    return RepairedCode(code=text)


def _repair_code_inside_literal(text: str) -> RepairedCode | None:
    """Return the program inside a literal. A damaged one is repaired only in JSON, which no docstring is."""
    for value, _ in wrappers.unwrap_json(text):
        attempt = _RepairAttempt(text=value, defects=(CodeDefectKind.JSON,), is_closed=True)
        if _decide_next_action(attempt, parse_module_or_error(value)) is _NextSearchAction.ACCEPT:
            return RepairedCode(code=value, defects=attempt.defects)
        if _is_json(text):
            try:
                return _search_repairs(attempt)
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


def _search_repairs(first: _RepairAttempt) -> RepairedCode:
    """Search with the fewest repairs first, so the author's strings are decoded no further than needed."""
    queue = deque([first])
    seen = {first.text}
    furthest, is_cut = first, False
    while queue and len(seen) <= MAX_ATTEMPTS:
        for attempt in _apply_each_repair_rule_once(queue.popleft()):
            if attempt.text in seen:
                # Different repairs often lead to the same text.
                continue
            seen.add(attempt.text)
            outcome = parse_module_or_error(attempt.text)
            match _decide_next_action(attempt, outcome):
                case _NextSearchAction.ACCEPT:
                    return RepairedCode(code=attempt.text, defects=attempt.defects)
                case _NextSearchAction.CUT:
                    raise CodeRefused(CodeDefectKind.TRUNCATED)
                case _NextSearchAction.GO_ON:
                    queue.append(attempt)
            is_cut |= _is_truncated(attempt.text, outcome)
            if len(attempt.defects) > len(furthest.defects):
                furthest = attempt
    raise CodeRefused(CodeDefectKind.TRUNCATED) if is_cut else _build_code_refused_error(furthest)


def _apply_each_repair_rule_once(attempt: _RepairAttempt) -> Iterator[_RepairAttempt]:
    """Yield every text that one more repair produces; line endings and thoughts are unambiguous and come first."""
    if "\r" in attempt.text:
        yield replace(
            attempt,
            text=characters.normalize_line_endings(attempt.text),
            defects=(*attempt.defects, CodeDefectKind.LINE_ENDINGS),
        )
        return
    spoken = wrappers.strip_thinking(attempt.text)
    if spoken is not None:
        yield replace(attempt, text=spoken, defects=(*attempt.defects, CodeDefectKind.CHAT))
        return
    for defect, rule in RULES:
        if attempt.defects.count(defect) == MAX_REPEATS:
            continue
        for text, end_was_seen in rule(attempt.text):
            is_closed = attempt.is_closed or end_was_seen
            yield _RepairAttempt(text=text, defects=(*attempt.defects, defect), is_closed=is_closed)


def _decide_next_action(attempt: _RepairAttempt, outcome: ast.Module | SyntaxError) -> _NextSearchAction:
    if isinstance(outcome, SyntaxError) or not has_more_than_names_and_constants(outcome) or is_lone_literal(outcome):
        return _NextSearchAction.GO_ON
    # These parse by accident, so parsing is no proof.
    if characters.has_html_entities_in_code(attempt.text) or wrappers.has_tilde_in_code(attempt.text):
        return _NextSearchAction.GO_ON
    if not attempt.is_closed and is_end_of_parsed_code_missing(outcome, attempt.text):
        return _NextSearchAction.CUT
    return _NextSearchAction.ACCEPT


def _is_truncated(text: str, outcome: ast.Module | SyntaxError) -> bool:
    return (
        isinstance(outcome, SyntaxError) and is_syntax_error_from_missing_end(outcome, text) and has_definite_code(text)
    )


def _build_code_refused_error(attempt: _RepairAttempt) -> CodeRefused:
    """Return the error for the most repaired text: truncated, no code, or a remaining defect."""
    text, outcome = attempt.text, parse_module_or_error(attempt.text)
    if _is_truncated(text, outcome):
        return CodeRefused(CodeDefectKind.TRUNCATED)
    if not text.strip() or (not has_definite_code(text) and all(map(is_prose_line, text.strip().splitlines()))):
        return CodeRefused(CodeDefectKind.NO_CODE)
    detail = f"line {outcome.lineno}: {outcome.msg}" if isinstance(outcome, SyntaxError) and outcome.lineno else ""
    return CodeRefused(attempt.defects[0] if attempt.defects else _classify_defect(text, outcome), detail)


def _classify_defect(text: str, outcome: ast.Module | SyntaxError) -> CodeDefectKind:
    """Classify a text that no rule could change: the repair would be a guess, or the mistake is the author's."""
    if isinstance(outcome, TabError):
        return CodeDefectKind.MIXED_TABS
    if characters.has_diff_hunk(text):
        return CodeDefectKind.DIFF
    if isinstance(outcome, SyntaxError):
        for sign, defect in _PARSER_SIGNS:
            if outcome.msg.startswith(sign):
                return defect
    return CodeDefectKind.SYNTAX


_PARSER_SIGNS = (
    ("unexpected indent", CodeDefectKind.INDENTATION),
    ("unindent does not match", CodeDefectKind.INDENTATION),
    ("invalid character", CodeDefectKind.TYPOGRAPHY),
    ("invalid non-printable character", CodeDefectKind.CONTROL_CHARACTERS),
)
_OPEN_AT_END = ("was never closed", "unterminated triple-quoted", "unexpected EOF", "EOF in multi-line")
_UNFINISHED = ("unterminated string", "expected an indented block", "expected ")
_LAST_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*\Z")
_ALWAYS_KNOWN = frozenset((*dir(builtins), "lambda", "await", "yield", "not"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_syntax_error_from_missing_end(error: SyntaxError, text: str) -> bool:
    """Whether a text fails to parse because its end is missing."""
    if any(sign in error.msg for sign in _OPEN_AT_END):
        return True
    lines = text.rstrip().split("\n")
    if (error.lineno or 0) < len(lines):
        return False
    return error.msg.startswith(_UNFINISHED) or max(error.offset or 0, error.end_offset or 0) > len(lines[-1])


def is_end_of_parsed_code_missing(module: ast.Module, text: str) -> bool:
    """Whether code that parses, but whose wrapper was never closed, seems to be missing its end."""
    last = module.body[-1]
    if _is_last_name_cut_off(module, text):
        return True
    for statement in _walk_last_statements(last):
        if isinstance(statement, Function) and _has_neither_result_nor_effect(statement):
            return True
    return last is not (innermost := _find_innermost_last_statement(last)) and _is_unused_expression(innermost)


def _is_last_name_cut_off(module: ast.Module, text: str) -> bool:
    """Whether the last name is cut off, like `return cou` if only `count` exists."""
    found = _LAST_NAME.search(text[-200:])
    if found is None:
        return False
    name, known = found.group(), {*_list_bound_names(module), *_ALWAYS_KNOWN}
    is_read = any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(module))
    return is_read and name not in known and any(other.startswith(name) for other in known)


def _list_bound_names(module: ast.Module) -> Iterator[str]:
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


def _walk_last_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the last statement, the last one inside it, and so on."""
    current: ast.stmt | None = statement
    while current is not None:
        yield current
        current = _find_last_child(current)


def _find_innermost_last_statement(statement: ast.stmt) -> ast.stmt:
    *_, innermost = _walk_last_statements(statement)
    return innermost


def _find_last_child(statement: ast.stmt) -> ast.stmt | None:
    children = _list_child_statements(statement)
    return max(children, key=lambda child: (child.lineno, child.col_offset), default=None)


def _list_child_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from child.body


def _is_unused_expression(statement: ast.stmt) -> bool:
    """Whether an expression's value is unused: half of an assignment or of a call."""
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value
    if isinstance(value, ast.Constant):
        return value.value is not Ellipsis
    return not any(isinstance(node, ast.Call | ast.Await | ast.Yield | ast.YieldFrom) for node in ast.walk(value))


def _has_neither_result_nor_effect(function: Function) -> bool:
    """Whether a function has neither a result nor a visible effect, so that its end is missing."""
    fresh = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, _PLAIN_VALUES)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if _has_result_annotation(function) and not any(
        isinstance(node, (*_RESULTS, ast.Pass)) or _is_ellipsis(node) for node in ast.walk(function)
    ):
        return True
    return not any(_is_visible_effect(node, fresh) for statement in function.body for node in ast.walk(statement))


_PLAIN_VALUES = (ast.Constant, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.DictComp, ast.SetComp)
_RESULTS = (ast.Return, ast.Yield, ast.YieldFrom, ast.Raise)
_EFFECTS = (*_RESULTS, ast.Pass, ast.Assert, ast.Delete, ast.Global, ast.Nonlocal, ast.With, ast.AsyncWith, ast.Await)


def _has_result_annotation(function: Function) -> bool:
    returns = function.returns
    return returns is not None and not (isinstance(returns, ast.Constant) and returns.value is None)


def _is_visible_effect(node: ast.AST, fresh: set[str]) -> bool:
    """Whether a node is a result, a write or a bare call, except on a container created in the function."""
    if isinstance(node, _EFFECTS):
        return True
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _find_root_name(node) not in fresh
    if isinstance(node, ast.Expr):
        return _is_ellipsis(node) or (
            isinstance(node.value, ast.Call) and _find_root_name(node.value.func) not in fresh
        )
    return False


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is Ellipsis


def _find_root_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
