"""Patterns of checks, run on a linear-time engine: a task file may come from a stranger, and a pattern such as `(a+)+$`
keeps a backtracking engine busy for years.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from habitus.errors import Invalid

CompiledPattern = Any  # the engine has no types

LONGEST_PATTERN = 1_000  # characters
_HINT = "Look-around and back-references are not supported: write it without, or as two checks."
# Python's classes include all of Unicode, RE2's only ASCII. `\b` can't be translated and stays ASCII.
_CLASSES = {"w": r"\pL\pN_", "d": r"\p{Nd}", "s": r"\s\v\x{85}\pZ"}
_NEGATED_CLASSES = {"W": "w", "S": "s"}
_UNICODE_ESCAPES = {"u": 4, "U": 8}


def compile_pattern(pattern: str) -> CompiledPattern:
    """Compile a pattern in Python's syntax; raise `Invalid` if the engine can't express it."""
    if len(pattern) > LONGEST_PATTERN:
        raise Invalid(f"The pattern has {len(pattern):,} characters.", hint=f"Keep it below {LONGEST_PATTERN:,}.")
    return _compile(pattern)


def find_match(pattern: str, text: str) -> bool:
    """Return whether the pattern matches anywhere in the text."""
    return compile_pattern(pattern).search(_replace_surrogates(text)) is not None


@lru_cache(maxsize=8)  # each may take its memory
def _compile(pattern: str) -> CompiledPattern:
    import re2  # native code, for those who check tasks

    options = re2.Options()
    # The engine would print each refused pattern to the terminal.
    options.log_errors = False
    # With less memory the engine falls back to a slower search: seconds instead of a fraction of one.
    options.max_mem = 64 << 20
    try:
        return re2.compile(_translate_pattern(_replace_surrogates(pattern)), options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        problem = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise Invalid(f"'{pattern[:80]}' is not a pattern: {problem}.", hint=_HINT) from None


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
