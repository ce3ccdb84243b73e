"""Leak guard: whether a text quotes a task, so that it would give away the answer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from habitus.tasks.checks import ContainsCheck, EqualsCheck, FileEqualsCheck, TableEqualsCheck
from habitus.tasks.model import Task

MOST_SHARED = 6  # this many words in a row are a copy
_WORD = re.compile(r"[^\W_]+")
_PIECE = re.compile(r"[^\s,;:|'\"()\[\]{}<>=]+")


def find_copied_words(said: str, task: Task, known: str = "") -> str:
    """Return words copied from a task, several in a row or one literal; empty if there are none beyond `known`."""
    exercise = "\n".join((task.request, task.setup, task.validator, *task.files.values(), *_answers(task)))
    given = set(_runs(exercise)) - set(_runs(known))
    if run := next((run for line in said.splitlines() for run in _runs(line) if run in given), None):
        return " ".join(run)
    pieces = set(_PIECE.findall(said))
    pieces |= {piece.strip(".!?") for piece in pieces}
    return next((literal for literal in _literals(task) if literal in pieces and literal not in known), "")


def _answers(task: Task) -> Iterator[str]:
    for check in task.checks:
        match check:
            case ContainsCheck(text=text) | FileEqualsCheck(content=text) | TableEqualsCheck(table=text):
                yield text
            case EqualsCheck(value=str(text)):
                yield text


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = [word.casefold() for word in _WORD.findall(text)]
    return zip(*(words[start:] for start in range(MOST_SHARED)), strict=False)


def _literals(challenge: Task) -> Iterator[str]:
    """Yield texts that can only come from this task: longer numbers, and tokens that are not plain words."""
    for code in (challenge.setup, challenge.validator):
        for node in ast.walk(_tree(code)):
            if not isinstance(node, ast.Constant):
                continue
            if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
                if len(str(abs(node.value)).replace(".", "")) >= 3:
                    yield str(node.value)
            elif isinstance(node.value, str):
                yield from _odd_pieces(node.value)
    for text in (*challenge.files.values(), *_answers(challenge)):
        yield from _odd_pieces(text)


def _odd_pieces(text: str) -> Iterator[str]:
    return (piece for piece in _PIECE.findall(text) if _is_odd(piece))


def _is_odd(piece: str) -> bool:
    return bool(re.search(r"\d{3}", piece)) or (len(piece) >= 6 and not re.fullmatch(r"[^\W\d_]+[.!?]?", piece))


def _tree(code: str) -> ast.AST:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])
