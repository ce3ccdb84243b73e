"""The guard: a lesson that only restates its exercise teaches nothing, and is turned away."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from habitus.learning.dream.exercises import DOMAINS
from habitus.memory.model import LessonBody
from habitus.tasks.model import Task

MOST_SHARED = 6  # so many words in a row that the exercise has, too, are a copy
_WORD = re.compile(r"[^\W_]+")
_PIECE = re.compile(r"[^\s,;:|'\"()\[\]{}<>=]+")


def objection(lesson: LessonBody, challenge: Task) -> str:
    """Why a lesson is not to be believed; nothing where there is no reason."""
    if not lesson.trigger.strip():
        return "it does not say when it holds"
    if not lesson.correct_pattern.strip():
        return "it does not say what to do"
    if not lesson.domains:
        return "it names no domain"
    for domain in lesson.domains:
        if domain not in DOMAINS:
            return f"'{domain}' is no domain"
    exercise = "\n".join((challenge.request, challenge.setup, challenge.validator))
    for said in (lesson.trigger, lesson.correct_pattern, lesson.anti_pattern):
        if copied := next(_shared(said, exercise), ""):
            return f"it repeats the exercise: '{copied}'"
    if literal := _copied_literal(lesson, challenge):
        return f"it copies '{literal}' from the exercise"
    return ""


def _shared(said: str, exercise: str) -> Iterator[str]:
    given = set(_runs(exercise))
    return (" ".join(run) for run in _runs(said) if run in given)


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = [word.casefold() for word in _WORD.findall(text)]
    return zip(*(words[start:] for start in range(MOST_SHARED)), strict=False)


def _copied_literal(lesson: LessonBody, challenge: Task) -> str:
    said = set(_PIECE.findall(" ".join((lesson.trigger, lesson.correct_pattern, lesson.anti_pattern))))
    said |= {piece.strip(".!?") for piece in said}
    return next((literal for literal in _literals(challenge) if literal in said), "")


def _literals(challenge: Task) -> Iterator[str]:
    """What can only come from this exercise: longer numbers, and texts that are no plain words."""
    for code in (challenge.setup, challenge.validator):
        for node in ast.walk(_tree(code)):
            if not isinstance(node, ast.Constant):
                continue
            if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
                if len(str(abs(node.value)).replace(".", "")) >= 3:
                    yield str(node.value)
            elif isinstance(node.value, str):
                yield from (piece for piece in _PIECE.findall(node.value) if _is_odd(piece))


def _is_odd(piece: str) -> bool:
    return bool(re.search(r"\d{3}", piece)) or (len(piece) >= 6 and not re.fullmatch(r"[^\W\d_]+[.!?]?", piece))


def _tree(code: str) -> ast.AST:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])
