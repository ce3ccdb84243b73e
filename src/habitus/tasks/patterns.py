"""Patterns of checks, run on a linear-time engine: a task file may come from a stranger, and a pattern such as `(a+)+$`
keeps a backtracking engine busy for years.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from habitus.errors import Invalid

_CompiledPattern = Any  # the engine has no types

_LONGEST_PATTERN = 1_000  # characters
# Bytes of a pattern while it is only measured: more than this is refused before it takes a second to compile.
_MEASURED_MEMORY = 16 << 20
# With less memory the engine falls back to a slower search: seconds instead of a fraction of one.
_SEARCH_MEMORY = 64 << 20
_HINT = "Look-around and back-references are not supported: write it without, or as two checks."
# Python's classes include all of Unicode, RE2's only ASCII. `\b` can't be translated and stays ASCII.
_CLASSES = {"w": r"\pL\pN_", "d": r"\p{Nd}", "s": r"\s\v\x{85}\pZ"}
_NEGATED_CLASSES = {"W": "w", "S": "s"}
_UNICODE_ESCAPES = {"u": 4, "U": 8}


@lru_cache(maxsize=4_096)
def count_pattern_instructions(pattern: str) -> int:
    """Return the number of instructions that a pattern compiles to; raise `Invalid` if the engine can't express it."""
    if len(pattern) > _LONGEST_PATTERN:
        raise Invalid(f"The pattern has {len(pattern):,} characters.", hint=f"Keep it below {_LONGEST_PATTERN:,}.")
    return int(_compile_pattern(pattern, _MEASURED_MEMORY).programsize)


def has_pattern_match(pattern: str, text: str) -> bool:
    """Return whether the pattern, in Python's syntax, matches anywhere in the text."""
    count_pattern_instructions(pattern)
    return _compile_pattern(pattern, _SEARCH_MEMORY).search(_replace_surrogates(text)) is not None


@lru_cache(maxsize=8)  # each may take its memory
def _compile_pattern(pattern: str, memory: int) -> _CompiledPattern:
    import re2  # native code, for those who check tasks

    options = re2.Options()
    # The engine would print each refused pattern to the terminal.
    options.log_errors = False
    options.max_mem = memory
    try:
        return re2.compile(_translate_pattern(_replace_surrogates(pattern)), options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        problem = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        hint = "Use smaller repetitions." if "too large" in problem else _HINT
        raise Invalid(f"'{pattern[:80]}' is not a pattern: {problem}.", hint=hint) from None


def _replace_surrogates(text: str) -> str:
    """Return text that can be encoded; a model's reply may have lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def _translate_pattern(pattern: str) -> str:
    r"""Return the pattern in RE2's syntax: `\Z`, `$`, `\u` and the classes of Unicode mean what they mean in Python."""
    # In multi-line mode `$` means the same in both.
    dollar = "$" if _is_multiline(pattern) else r"(?:\n?\z)"
    made: list[str] = []
    at, is_in_set = 0, False
    while at < len(pattern):
        char = pattern[at]
        escaped = pattern[at + 1 : at + 2] if char == "\\" else ""
        if escaped:
            digits = pattern[at + 2 : at + 2 + _UNICODE_ESCAPES.get(escaped, 0)]
            made.append(_translate_escape(escaped, digits, is_in_set))
            at += 2 + (len(digits) if escaped in _UNICODE_ESCAPES else 0)
            continue
        made.append(dollar if char == "$" and not is_in_set else char)
        at += 1
        if char == "[" and not is_in_set:
            is_in_set = True
            # A bracket right after the opening is a member of the set.
            for first in ("^", "]"):
                if pattern[at : at + 1] == first:
                    made.append(first if first == "^" else r"\]")
                    at += 1
        elif char == "]":
            is_in_set = False
    return "".join(made)


def _translate_escape(escaped: str, digits: str, is_in_set: bool) -> str:
    if escaped in _CLASSES:
        return _CLASSES[escaped] if is_in_set else f"[{_CLASSES[escaped]}]"
    if escaped in _NEGATED_CLASSES and not is_in_set:
        return f"[^{_CLASSES[_NEGATED_CLASSES[escaped]]}]"
    if escaped in _UNICODE_ESCAPES and digits:
        return f"\\x{{{digits}}}"
    return {"D": r"\P{Nd}", "Z": r"\z"}.get(escaped, f"\\{escaped}")


def _is_multiline(pattern: str) -> bool:
    flags = pattern[2 : pattern.find(")")] if pattern.startswith("(?") and ")" in pattern else ""
    return flags.isalpha() and "m" in flags
