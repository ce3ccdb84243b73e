"""Leak guard: whether a text quotes a task or its answer, and whether a reply lists the answers of many tasks."""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, assert_never

from habitus.tasks.checks import (
    Check,
    CsvTableEqualsCheck,
    FileEqualsCheck,
    FileExistsCheck,
    PythonValidatorCheck,
    ReplyContainsCheck,
    ReplyEqualsCheck,
    ReplyMatchesPatternCheck,
    ReplyShapeCheck,
    RubricCheck,
    ToolCalledCheck,
    parse_csv_rows,
)
from habitus.tasks.model import Task
from habitus.tasks.patterns import has_pattern_match

MOST_SHARED = 6  # this many words in a row are a copy
MOST_NAMED = 3  # answers of other tasks in one reply: it was not thought of, but listed
_WORD = re.compile(r"[^\W_]+")
_PIECE = re.compile(r"[^\s,;:|'\"()\[\]{}<>=]+")
_NUMBER = re.compile(r"(?<![\w.,])(\d{1,3}(?:[.,]\d{3})+|\d+)(?:[.,](\d+))?(?!\w|[.,]\d)")
_QUOTED = re.compile(r"[\"'`“‘]([^\"'`”’\n]{1,80})[\"'`”’]")
# A word that somebody is told to answer: "Reply with no.", "Set done to true."
_DIRECTED = re.compile(
    r"\b(?:answer|say|reply|respond|return|output|print|write|give|begin|start|set \w+)(?: is| be| with| to)?:?\s+"
    r"([^\s\"'`.,;!]{1,20})(?=[.,;!\n]|$)",
    re.IGNORECASE,
)
# A sentence that states a value, rather than a condition on it.
_CLAUSE = re.compile(r"[.,;:!?](?=\s|$)|\n|\band\b")
_CONDITION = re.compile(r"\b(?:if|when|where|whether|unless|until|while|that|check|verify|not)\b", re.IGNORECASE)
_IS = r"(?: (?:is|are|be|must|should|has|to|equals|always|becomes|comes)){1,4} "
_INTO = r" (?:in|into|to|as|for|under)(?: (?:the|field|key|column|file))* "
_OUTCOME = r"(?:answer|reply|response|result|outcome|output|verdict|decision|label|value|total|sum|solution)"
_SEPARATOR = r"\s*[,;|]\s*"  # of cells
_ABOUT_KEYS = re.compile(r"\b(?:keys?|fields?|columns?|properties)\b", re.IGNORECASE)
_ABOUT_ROWS = re.compile(r"\b(?:rows?|lines?|records?|table)\b", re.IGNORECASE)
# What a rubric asks for by name: a quotation, a longer number, or a capitalised word within the sentence.
_NAMED_IN_RUBRIC = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{3,}\b|\b\d[\d.,]*\d\b")
_LISTING = frozenset(("or", "and", "either", "maybe", "perhaps", "both"))
_EVERYDAY = frozenset(("yes", "no", "true", "false", "none", "null", "not", "the", "all", "any", "one", "two"))


def find_words_copied_from_task(said: str, task: Task, known: str = "") -> str:
    """Return words copied from a task, several in a row, a literal or an answer; empty if none are beyond `known`."""
    exercise = "\n".join((task.request, task.setup, task.validator, *task.files.values(), *_list_texts_of_checks(task)))
    given = set(_list_word_runs(exercise)) - set(_list_word_runs(known))
    if run := next((run for line in said.splitlines() for run in _list_word_runs(line) if run in given), None):
        return " ".join(run)
    pieces = set(_PIECE.findall(said))
    pieces |= {piece.strip(".!?") for piece in pieces}
    if literal := next((one for one in _list_distinctive_texts(task) if one in pieces and one not in known), ""):
        return literal
    # Words of the request are no answer: whoever is asked can read them there.
    public = f"{known}\n{task.request}"
    if named := next(
        (
            one
            for one in list_passing_answers(task)
            if _is_answer_given_away(one, said) and not _contains_normalized_answer(one, public)
        ),
        "",
    ):
        return named
    for check in task.checks:
        parts = next(
            (
                each
                for each in _list_answers_split_in_parts(check)
                if _has_line_all_answer_parts(each, said) and not _has_line_all_answer_parts(each, public)
            ),
            (),
        )
        if parts:
            return ", ".join(parts)
        values = next(
            (
                each
                for each in _list_answer_values_with_names(check)
                if _are_named_values_stated(each, said) and not _are_named_values_stated(each, public)
            ),
            (),
        )
        if values:
            return ", ".join(f"{name} is {value}" for name, value in values)
        if (
            isinstance(check, ReplyMatchesPatternCheck)
            and _is_pattern_match_given_away(check.pattern, said)
            and not _is_pattern_match_given_away(check.pattern, public)
        ):
            return check.pattern
    return ""


def list_passing_answers(task: Task) -> Iterator[str]:
    """Yield what would pass the checks of a task, if somebody said it."""
    for check in task.checks:
        yield from _list_answers_passing_check(check)


def list_answers_of_other_tasks_in_reply(reply: str, task: Task, others: Iterable[Task]) -> list[str]:
    """Return the answers of other tasks if a reply lists answers instead of giving one; empty if it does not.

    It lists them if it names several, or one besides its own and says nothing else, as in "yes or no".
    """
    if not any(isinstance(check, ReplyContainsCheck) for check in task.checks):
        return []
    own = {_normalize_text(text) for text in list_passing_answers(task)}
    texts = {
        _normalize_text(one.text) for other in others for one in other.checks if isinstance(one, ReplyContainsCheck)
    }
    beside = _remove_words(own, _normalize_text(reply))
    there = [
        text
        for text in texts - own
        if _contains_normalized_answer(text, beside) and not _contains_normalized_answer(text, task.request)
    ]
    named = [text for text in there if _is_answer_given_away(text, reply)]
    if len(named) >= MOST_NAMED:
        return named
    return there if set(_remove_words(there, beside).split()) <= _LISTING else []


def _remove_words(texts: Collection[str], text: str) -> str:
    longest_first = sorted(texts, key=len, reverse=True)
    return re.sub("|".join(rf"\b{re.escape(one)}\b" for one in longest_first), " ", text)


def _list_answers_passing_check(check: Check) -> Iterator[str]:
    match check:
        case ReplyContainsCheck(text=text):
            yield text
        case ReplyMatchesPatternCheck(pattern=pattern):
            yield from _list_fixed_texts_of_pattern(pattern)
        case ReplyEqualsCheck(value=value, path=path):
            yield from _iterate_leaf_texts(value)
            if path:
                yield f"{path.split('.')[-1]} {json.dumps(value, ensure_ascii=False)}"
        case ReplyShapeCheck(schema=schema):
            yield from _iterate_schema_answers(schema)
        case FileExistsCheck(path=path):
            yield from (path, posixpath.basename(path))
        case FileEqualsCheck(content=content):
            yield from content.splitlines()
        case ToolCalledCheck(tool=tool, command=command):
            yield tool or command
        case PythonValidatorCheck(code=code):
            yield from _iterate_constants_compared_by_validator(code)
        case RubricCheck(text=text):
            yield from (text for words in [_WORD.findall(text)] if len(words) > 2)
            yield from (*_QUOTED.findall(text), *_NAMED_IN_RUBRIC.findall(text))
        case CsvTableEqualsCheck():
            return  # its parts, literals and runs of words are found as such
        case never:
            assert_never(never)


def _list_answers_split_in_parts(check: Check) -> Iterator[tuple[str, ...]]:
    """Yield texts that give an answer away if one line has them all: a table's row, the keys of a shape."""
    match check:
        case CsvTableEqualsCheck(table=table):
            yield from (tuple(filter(None, row.values())) for row in parse_csv_rows(table)[1:])
        case ReplyShapeCheck(schema=schema):
            yield tuple(map(str, schema.get("required") or schema.get("properties") or ()))


def _has_line_all_answer_parts(parts: tuple[str, ...], text: str) -> bool:
    is_telling = any(len(part) > 2 and part.casefold() not in _EVERYDAY for part in parts) and len("".join(parts)) > 3
    joined = re.compile(rf"(?<![\w.,]){_SEPARATOR.join(map(re.escape, parts))}(?!\w)")
    return len(parts) > 0 and any(
        (all(_contains_normalized_answer(part, line) for part in parts) and (is_telling or _ABOUT_KEYS.search(line)))
        or (len(parts) > 1 and joined.search(line) and _ABOUT_ROWS.search(line))
        for line in text.splitlines()
    )


def _list_answer_values_with_names(check: Check) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield what gives an answer away if it is said together: a value and the name of its field, column or file."""
    match check:
        case ReplyEqualsCheck(value=value, path=path):
            named = value if isinstance(value, dict) else {path.split(".")[-1]: value} if path else {}
            yield from (((name, text),) for name, below in named.items() for text in _iterate_leaf_texts(below))
        case FileEqualsCheck(path=path, content=content) if len(content.split()) == 1:
            yield from (((name, content),) for name in {path, posixpath.basename(path)})
        case CsvTableEqualsCheck(table=table):
            yield from (tuple((name, cell) for name, cell in row.items() if cell) for row in parse_csv_rows(table)[1:])
        case PythonValidatorCheck(code=code):
            constants = (node.value for node in ast.walk(_parse_code(code)) if isinstance(node, ast.Constant))
            files = {one for one in constants if isinstance(one, str) and len(one.split()) == 1}
            yield from (
                ((name, text),) for text in _iterate_constants_compared_by_validator(code) for name in files - {text}
            )


def _are_named_values_stated(values: tuple[tuple[str, str], ...], text: str) -> bool:
    return bool(values) and all(
        _is_named_value_stated(re.escape(_normalize_text(name)), _normalize_text(value), text) for name, value in values
    )


def _is_named_value_stated(name: str, value: str, text: str) -> bool:
    """Return whether a clause says that something is this value: "n is 7", "put 7 into n"."""
    if not name or not value:
        return False
    states = re.compile(rf"(?:^|.* ){name}{_IS}{re.escape(value)}|(?:^|.* ){re.escape(value)}{_INTO}{name}")
    clauses = (one for one in _CLAUSE.split(text) if not _CONDITION.search(one))
    return any(states.fullmatch(_normalize_text(one)) for one in clauses)


def _is_pattern_match_given_away(pattern: str, text: str) -> bool:
    """Return whether a text has what a pattern asks for; one with few fixed characters fits most texts."""
    fixed = sum(letter.isalnum() for run in _split_pattern_at_special_characters(pattern) for letter in run)
    parts = _find_words_told_to_answer(text) if fixed else []
    if fixed >= MOST_NAMED:
        # An anchored pattern asks for a whole answer, which a text names within a sentence.
        parts += [text, *(piece.strip(".!?") for piece in _PIECE.findall(text))]
    return any(has_pattern_match(pattern, part) for part in parts)


def _list_fixed_texts_of_pattern(pattern: str) -> Iterator[str]:
    """Yield the pattern itself, and the runs of characters that every match of it has; a short one if it is all."""
    if (whole := re.sub(r"^\^|\\b|\$$", "", pattern)).isdigit():
        yield whole
    if len(pattern) > MOST_NAMED:
        yield pattern
    yield from (run for run in _split_pattern_at_special_characters(pattern) if len(run.strip()) >= MOST_NAMED)


def _split_pattern_at_special_characters(pattern: str) -> list[str]:
    return re.sub(r"\\.|\[[^\]]*\]|\{[^}]*\}|\(\?[^)]*\)|[.^$*+?(){}|]", "\0", pattern).split("\0")


def _iterate_schema_answers(schema: Any) -> Iterator[str]:
    match schema:
        case dict():
            yield from _iterate_leaf_texts([schema[key] for key in ("const", "enum") if key in schema])
            if isinstance(pattern := schema.get("pattern"), str):
                yield from _list_fixed_texts_of_pattern(pattern)
            if "minimum" in schema and schema["minimum"] == schema.get("maximum"):
                yield json.dumps(schema["minimum"])
            for below in schema.values():
                yield from _iterate_schema_answers(below)
        case list():
            for below in schema:
                yield from _iterate_schema_answers(below)


def _iterate_constants_compared_by_validator(code: str) -> Iterator[str]:
    """Yield the constants that a validator compares with."""
    for node in ast.walk(_parse_code(code)):
        sides = (node.left, *node.comparators) if isinstance(node, ast.Compare) else ()
        yield from _iterate_leaf_texts([side.value for side in sides if isinstance(side, ast.Constant)])


def _iterate_leaf_texts(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for below in value.values():
                yield from _iterate_leaf_texts(below)
        case list() | tuple():
            for below in value:
                yield from _iterate_leaf_texts(below)
            if len(value) > 1 and not any(isinstance(below, (dict, list, tuple)) for below in value):
                yield " ".join(map(str, value))
        case str():
            yield value
        case None | bool() | int() | float():
            yield json.dumps(value)


def _is_answer_given_away(answer: str, text: str) -> bool:
    """Return whether a text gives an answer away; a short or everyday word does so in quotes or as an instruction."""
    if not _contains_normalized_answer(answer, text):
        return False
    words = _normalize_text(answer)
    is_telling = " " in words or (len(words) > 1 if words.isdigit() else len(words) > 2 and words not in _EVERYDAY)
    is_said = words in map(_normalize_text, (*_QUOTED.findall(text), *_find_words_told_to_answer(text)))
    return is_telling or is_said or _is_named_value_stated(_OUTCOME, words, text)


def _find_words_told_to_answer(text: str) -> list[str]:
    """Return the words that somebody is told to answer, unconditionally."""
    found = ((_CLAUSE.split(text[: match.start()])[-1], match[1]) for match in _DIRECTED.finditer(text))
    return [word for before, word in found if not _CONDITION.search(before)]


def _contains_normalized_answer(answer: str, text: str) -> bool:
    words = _normalize_text(answer)
    return bool(words) and f" {words} " in f" {_normalize_text(text)} "


def _normalize_text(text: str) -> str:
    words = _WORD.findall(_NUMBER.sub(_normalize_number, text.casefold()))
    return " ".join(word for word in words if word != "and")


def _normalize_number(found: re.Match[str]) -> str:
    """Return a number as one word, however its thousands and decimals are separated."""
    decimals = (found[2] or "").rstrip("0")
    return re.sub(r"[.,]", "", found[1]) + (f"dot{decimals}" if decimals else "")


def _list_texts_of_checks(task: Task) -> Iterator[str]:
    for check in task.checks:
        match check:
            case ReplyContainsCheck(text=text) | FileEqualsCheck(content=text) | CsvTableEqualsCheck(table=text):
                yield text
            case RubricCheck(text=text):
                yield text
            case ReplyEqualsCheck(value=value):
                yield value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _list_word_runs(text: str) -> Iterator[tuple[str, ...]]:
    words = [word.casefold() for word in _WORD.findall(text)]
    return zip(*(words[start:] for start in range(MOST_SHARED)), strict=False)


def _list_distinctive_texts(task: Task) -> Iterator[str]:
    """Yield texts that can only come from this task: longer numbers, and tokens that are not plain words."""
    for code in (task.setup, task.validator):
        for node in ast.walk(_parse_code(code)):
            if not isinstance(node, ast.Constant):
                continue
            if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
                if len(str(abs(node.value)).replace(".", "")) >= 3:
                    yield str(node.value)
            elif isinstance(node.value, str):
                yield from _find_distinctive_tokens(node.value)
    for text in (*task.files.values(), *_list_texts_of_checks(task)):
        yield from _find_distinctive_tokens(text)


def _find_distinctive_tokens(text: str) -> Iterator[str]:
    return (piece for piece in _PIECE.findall(text) if _is_distinctive_token(piece))


def _is_distinctive_token(piece: str) -> bool:
    return bool(re.search(r"\d{3}", piece)) or (len(piece) >= 6 and not re.fullmatch(r"[^\W\d_]+[.!?]?", piece))


def _parse_code(code: str) -> ast.AST:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])
