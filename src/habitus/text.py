"""Foreign text made to fit a place: text that can be kept and sent, one line, a block that can't speak for us, or
what is safe for a terminal.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any

BLOCK = "habitus-context"
# The headings of our prompts, and how our lines in brackets begin; colons count, other signs and cases don't.
HEADINGS = (
    *("How you work", "What you keep", "What comes beside a request", "What is known about the user", "Rules"),
    *("Available skills", "Skills for this request", "Skill:", "Lessons from earlier work", "Skills that may fit"),
    *("What's new", "What earlier cells taught", "Turned down"),
)
BRACKETS = ("The user calls", "End of", "Attached")
_HALVES = re.compile("[\ud800-\udfff]")
_REPLACED = "\N{REPLACEMENT CHARACTER}"


@cache
def prompt_text(package: str, name: str) -> str:
    """A prompt that lies as Markdown in the folder `prompts` of one of our packages."""
    from importlib.resources import files  # most commands have no prompt to read

    return files(f"habitus.{package}").joinpath("prompts", f"{name}.md").read_text("utf-8").strip()


def encodable(text: str) -> str:
    """The same text, unless something in it can't be written as UTF-8: halves of characters are replaced."""
    return text if text.isascii() else _HALVES.sub(_REPLACED, text)


def encodable_value(value: Any) -> Any:
    """A JSON value with every text in it encodable; the escapes of JSON can spell what UTF-8 can't."""
    match value:
        case str():
            return encodable(value)
        case dict():
            return {encodable_value(key): encodable_value(item) for key, item in value.items()}
        case list():
            return [encodable_value(item) for item in value]
        case _:
            return value


def byte_length(text: str) -> int:
    """How long a text is as UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def tokens(text: str) -> int:
    """How much of a model's context a text takes: four bytes a token, an estimate that needs no model."""
    return (byte_length(text) + 3) // 4


def one_line(text: str) -> str:
    """The text on one line, without control characters and without our marks; the same for the same words."""
    if not text.isprintable() or not unicodedata.is_normalized("NFC", text):  # else a hundred times faster
        valid = text.encode("utf-8", "replace").decode()
        kept = (" " if char.isspace() or _breaks(char) else char for char in valid)
        text = unicodedata.normalize("NFC", "".join(char for char in kept if char == " " or _is_visible(char)))
    return escape_marks(" ".join(text.split()))


def _breaks(char: str) -> bool:
    return unicodedata.category(char) in ("Zl", "Zp", "Zs")


def _is_visible(char: str) -> bool:
    """Joiners hold emoji and some scripts together; all else that is unseen could hide something."""
    return char in "\u200c\u200d" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")


def block(text: str) -> str:
    """A text of many lines, none of which begins like one of ours; a backslash keeps apart those that did."""
    text = escape_marks(encodable(text))
    if text.isascii() and not _MAY_BEGIN.search(text):
        return text
    return "".join(_apart(line) for line in text.splitlines(keepends=True))


_MAY_BEGIN = re.compile(r"(?:^|[\r\n\v\f\x1c-\x1e])[ \t]*[#\[]")


def _apart(line: str) -> str:
    at = next((index for index, char in enumerate(line) if not char.isspace() and _fold(char)), len(line))
    first = _fold(line[at : at + 1])[:1]
    if first not in ("#", "["):
        return line
    words = re.sub("[^a-z:]", "", _fold(line[at : at + 200]))
    begins = _FOLDED_HEADINGS if first == "#" else _FOLDED_BRACKETS
    return f"{line[:at]}\\{line[at:]}" if words.startswith(begins) else line


def escape_marks(text: str) -> str:
    """No text can end the block we mark, begin one of its own, or say that the person calls a skill."""
    letters = re.sub("[^a-z]", "", _fold(text))
    if not any(mark in letters for mark in _MARKS):
        return text
    pieces, done = [], 0
    for at in sorted(set(_openings(text))):
        pieces += [text[done:at], "(" if _fold(text[at]) == "[" else "&lt;"]
        done = at + 1
    return "".join([*pieces, text[done:]])


_MARKS = (BLOCK.replace("-", ""), "theusercallstheskill", "endoftheskill")


def _openings(text: str) -> Iterator[int]:
    """Where the brackets stand that make a mark of the words after them, all of them before the same words."""
    spelled = [(letter, at) for at, char in enumerate(text) for letter in _fold(char) if "a" <= letter <= "z"]
    letters = "".join(letter for letter, _ in spelled)
    for mark in _MARKS:
        found = letters.find(mark)
        while found >= 0:
            at = spelled[found][1] - 1
            while at >= 0 and not _fold(text[at]).isalnum():
                if _is_bracket(text[at]):
                    yield at
                at -= 1
            found = letters.find(mark, found + len(mark))


def _is_bracket(char: str) -> bool:
    """Whether it opens something, or might be taken for a sign that does."""
    folded = _fold(char)
    if char.isascii() or ">" in folded:
        return folded in ("<", "[")
    return folded in ("<", "[") or unicodedata.category(char) in ("Ps", "Pi", "Sm")


def _fold(text: str) -> str:
    """The text as a reader would take it: wide, styled and borrowed letters are the plain ones, unseen ones nothing."""
    if text.isascii():
        return text.lower()
    from anyascii import anyascii  # only where a text leaves ASCII

    seen = (char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) not in ("Cf", "Mn"))
    return anyascii("".join(seen)).lower()


_FOLDED_HEADINGS = tuple(re.sub("[^a-z:]", "", heading.lower()) for heading in HEADINGS)
_FOLDED_BRACKETS = tuple(re.sub("[^a-z:]", "", words.lower()) for words in BRACKETS)
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def clean(text: str) -> str:
    """Text without the control characters that could drive a terminal."""
    if text.isprintable():
        return text
    return "".join(char for char in text if char in "\n\t" or char.isprintable() or char == "\u200d")


def short_line(text: str, most: int = 200) -> str:
    """The beginning of a text as one line; what a program wrote to colour it is gone."""
    line = " ".join(clean(_SEQUENCE.sub("", text[: most * 8])).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def shown_seconds(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 05 s`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def count_of(number: int, thing: str) -> str:
    """`1 skill`, `2 skills`."""
    return f"{number:,} {thing if number == 1 else thing + 's'}"
