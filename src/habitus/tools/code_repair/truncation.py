"""Telling code that was cut off from code that is merely wrong, and from code that is whole."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

_OPEN_AT_END = ("was never closed", "unterminated triple-quoted", "unexpected EOF", "EOF in multi-line")
_UNFINISHED = ("unterminated string", "expected an indented block", "expected ")
_LAST_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*\Z")
_ALWAYS_KNOWN = frozenset((*dir(builtins), "lambda", "await", "yield", "not"))

Function = ast.FunctionDef | ast.AsyncFunctionDef


def stops_early(error: SyntaxError, text: str) -> bool:
    """Text that does not parse because its end is missing: something is open, or the last line is unfinished."""
    if any(sign in error.msg for sign in _OPEN_AT_END):
        return True
    lines = text.rstrip().split("\n")
    if (error.lineno or 0) < len(lines):
        return False
    return error.msg.startswith(_UNFINISHED) or max(error.offset or 0, error.end_offset or 0) > len(lines[-1])


def looks_cut(module: ast.Module, text: str) -> bool:
    """Code that parses although its envelope was never closed: does the end look like the author's end?"""
    last = module.body[-1]
    if _last_name_is_half(module, text):
        return True
    for statement in _last_statements(last):
        if isinstance(statement, Function) and _does_nothing(statement):
            return True
    return last is not (innermost := _innermost(last)) and _is_idle(innermost)


def _last_name_is_half(module: ast.Module, text: str) -> bool:
    """`return cou` where only `count` exists."""
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
    """The last statement, the last one inside it, and so on."""
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
    """An expression whose value nobody takes: half of an assignment or of a call."""
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value
    if isinstance(value, ast.Constant):
        return value.value is not Ellipsis
    return not any(isinstance(node, ast.Call | ast.Await | ast.Yield | ast.YieldFrom) for node in ast.walk(value))


def _does_nothing(function: Function) -> bool:
    """No result and no effect that anybody outside could see: its end, the result, is missing."""
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
    """A result, a write or a bare call, unless it only fills a list or the like that was born in the function."""
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
