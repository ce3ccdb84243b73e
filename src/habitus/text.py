"""Makes foreign text safe to store, to show on one line, to embed in a prompt, or to print on a terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any

CONTEXT_BLOCK = "habitus-context"
# The headings of our prompts, and the beginnings of our bracketed lines; only letters and colons are compared.
HEADINGS = (
    *("How you work", "What you keep", "What comes beside a request", "What is known about the user", "Rules"),
    *("Available skills", "Skills for this request", "Skill:", "Lessons from earlier work", "Skills that may fit"),
    *("What's new", "What earlier cells taught", "Turned down"),
)
BRACKETS = ("The user calls", "End of", "Attached")
_HALVES = re.compile("[\ud800-\udfff]")
_REPLACED = "\N{REPLACEMENT CHARACTER}"


@cache
def load_prompt(package: str, name: str) -> str:
    """Return a prompt from the `prompts` folder of one of our packages."""
    # Imported here, because most commands read no prompt.
    from importlib.resources import files

    return files(f"habitus.{package}").joinpath("prompts", f"{name}.md").read_text("utf-8").strip()


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 can't encode."""
    return text if text.isascii() else _HALVES.sub(_REPLACED, text)


def replace_surrogates_in_value(value: Any) -> Any:
    """Replace lone surrogates in every text of a JSON value; JSON escapes can produce them."""
    match value:
        case str():
            return replace_surrogates(value)
        case dict():
            return {replace_surrogates_in_value(key): replace_surrogates_in_value(item) for key, item in value.items()}
        case list():
            return [replace_surrogates_in_value(item) for item in value]
        case _:
            return value


def count_bytes(text: str) -> int:
    """Return the length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text without a model, at four bytes per token."""
    return (count_bytes(text) + 3) // 4


def clean_to_one_line(text: str) -> str:
    """Return the text on one line, without control characters and without our marks."""
    # Skipping clean text is a hundred times faster.
    if not text.isprintable() or not unicodedata.is_normalized("NFC", text):
        valid = text.encode("utf-8", "replace").decode()
        kept = (" " if char.isspace() or _is_separator(char) else char for char in valid)
        text = unicodedata.normalize("NFC", "".join(char for char in kept if char == " " or _is_visible(char)))
    return escape_prompt_marks(" ".join(text.split()))


def _is_separator(char: str) -> bool:
    return unicodedata.category(char) in ("Zl", "Zp", "Zs")


def _is_visible(char: str) -> bool:
    """Return whether a character is visible, or a joiner, which emoji and some scripts need."""
    return char in "\u200c\u200d" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")


def escape_lines_resembling_prompt_marks(text: str) -> str:
    """Return a text in which no line begins like one of our own; a backslash precedes those that did."""
    text = escape_prompt_marks(replace_surrogates(text))
    if text.isascii() and not _MAY_BEGIN.search(text):
        return text
    return "".join(_escape_line_resembling_prompt_mark(line) for line in text.splitlines(keepends=True))


_MAY_BEGIN = re.compile(r"(?:^|[\r\n\v\f\x1c-\x1e])[ \t]*[#\[]")


def _escape_line_resembling_prompt_mark(line: str) -> str:
    at = next((index for index, char in enumerate(line) if not char.isspace() and _fold_lookalikes(char)), len(line))
    first = _fold_lookalikes(line[at : at + 1])[:1]
    if first not in ("#", "["):
        return line
    words = re.sub("[^a-z:]", "", _fold_lookalikes(line[at : at + 200]))
    begins = _FOLDED_HEADINGS if first == "#" else _FOLDED_BRACKETS
    return f"{line[:at]}\\{line[at:]}" if words.startswith(begins) else line


def escape_prompt_marks(text: str) -> str:
    """Escape brackets so no text can end our marked block, begin one, or claim that the user calls a skill."""
    letters = re.sub("[^a-z]", "", _fold_lookalikes(text))
    if not any(mark in letters for mark in _MARKS):
        return text
    pieces, done = [], 0
    for at in sorted(set(_find_mark_openings(text))):
        pieces += [text[done:at], "(" if _fold_lookalikes(text[at]) == "[" else "&lt;"]
        done = at + 1
    return "".join([*pieces, text[done:]])


_MARKS = (CONTEXT_BLOCK.replace("-", ""), "theusercallstheskill", "endoftheskill")


def _find_mark_openings(text: str) -> Iterator[int]:
    """Yield the positions of brackets that turn the words after them into a mark."""
    spelled = [
        (letter, at) for at, char in enumerate(text) for letter in _fold_lookalikes(char) if "a" <= letter <= "z"
    ]
    letters = "".join(letter for letter, _ in spelled)
    for mark in _MARKS:
        found = letters.find(mark)
        while found >= 0:
            at = spelled[found][1] - 1
            while at >= 0 and not _fold_lookalikes(text[at]).isalnum():
                if _resembles_opening_bracket(text[at]):
                    yield at
                at -= 1
            found = letters.find(mark, found + len(mark))


def _resembles_opening_bracket(char: str) -> bool:
    """Return whether a character opens something, or resembles one that does."""
    folded = _fold_lookalikes(char)
    if char.isascii() or ">" in folded:
        return folded in ("<", "[")
    return folded in ("<", "[") or unicodedata.category(char) in ("Ps", "Pi", "Sm")


def _fold_lookalikes(text: str) -> str:
    """Return the text as a reader perceives it: lookalike letters become plain ones, invisible ones vanish."""
    if text.isascii():
        return text.lower()
    # Imported only for non-ASCII text.
    from anyascii import anyascii

    seen = (char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) not in ("Cf", "Mn"))
    return anyascii("".join(seen)).lower()


_FOLDED_HEADINGS = tuple(re.sub("[^a-z:]", "", heading.lower()) for heading in HEADINGS)
_FOLDED_BRACKETS = tuple(re.sub("[^a-z:]", "", words.lower()) for words in BRACKETS)
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def strip_control_characters(text: str) -> str:
    """Remove control characters that could drive a terminal."""
    if text.isprintable():
        return text
    return "".join(char for char in text if char in "\n\t" or char.isprintable() or char == "\u200d")


def shorten_to_line(text: str, max_characters: int = 200) -> str:
    """Return the beginning of a text as one line, without terminal escape sequences."""
    line = " ".join(strip_control_characters(_SEQUENCE.sub("", text[: max_characters * 8])).split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"


def format_seconds(seconds: float) -> str:
    """Format a duration: `40 ms`, `0.4 s`, `12 s`, `3 min 05 s`."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def format_dollars(dollars: float) -> str:
    """Format an amount: `$12.40`, and four decimals below ten cents."""
    return f"${dollars:.4f}" if dollars < 0.1 else f"${dollars:,.2f}"


def format_quantity(number: int, thing: str) -> str:
    """Format a count: `1 skill`, `2 skills`."""
    return f"{number:,} {thing if number == 1 else thing + 's'}"
