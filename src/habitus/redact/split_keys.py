"""Redacts keys that are split: over lines, by a backslash, or by `"…" + "…"`."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from habitus.redact.key_shapes import build_redaction_marker, find_key_spans_by_shape, list_key_prefixes

_SPLITS = re.compile(r"[\n\\+]+")
_QUOTE = r"(?:\\{0,7}[\"'`])?"
_SEPARATOR = re.compile(
    rf"{_QUOTE}(?:[ \t]{{0,8}}(?:\\{{1,7}}[nr]|\\{{1,7}}(?![\"'`\\])|\+|\r?\n)){{1,4}}[ \t]{{0,40}}{_QUOTE}"
)
_RUN = re.compile(r"[A-Za-z0-9_.=:/~%-]{1,4096}")
_RUN_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.=:/~%-")
_BLANKS = " \t\r\"'`"
_BLANKS_AND_SPLITS = f"{_BLANKS}\n\\+"
_LONGEST_SEPARATOR, _LONGEST_RUN = 64, 256
# A key wrapped at 76 characters rarely has more lines.
_MOST_FRAGMENTS = 24
_NAME_FOLLOWS = ("=", ":", "(", "/")


@dataclass(frozen=True, slots=True)
class _KeyFragment:
    """A part of a possibly split key, and whether a line break precedes it."""

    start: int
    text: str
    is_on_new_line: bool


@dataclass(frozen=True, slots=True)
class _SplitKeySpan:
    kind: str
    start: int
    end: int


def redact_split_keys(text: str, counts: Counter[str]) -> str:
    """Redact every key that is recognised only after its parts are joined."""
    pieces: list[str] = []
    done = 0
    for split in _SPLITS.finditer(text):
        if split.start() < done or (start := _find_start_of_word_before_split(text, split.start(), done)) is None:
            continue
        if (found := _find_split_key(text, start)) is not None and found.start >= done:
            pieces += [text[done : found.start], build_redaction_marker(found.kind)]
            counts[found.kind] += 1
            done = found.end
    return "".join([*pieces, text[done:]]) if pieces else text


def find_unfinished_key_start(text: str, end: int) -> int:
    """Return where a key begins that may go on behind `end` in text that arrives in pieces; `end` if there is none."""
    first = end
    # The last word may begin with a part of the separator, as in `+"rest`.
    while end < len(text) and text[end] in _BLANKS_AND_SPLITS:
        end += 1
    for _ in range(_MOST_FRAGMENTS):
        run_end = _find_separator_start(text, end)
        if run_end == end:
            return first
        start = _find_start_of_key_characters(text, run_end)
        if _may_contain_key_start(text[start:run_end]):
            first = min(first, start)
        elif not _is_random_looking(text[start:run_end]):
            return first
        end = start
    return first


def _find_start_of_word_before_split(text: str, split: int, done: int) -> int | None:
    """Return where the word before a split begins, if it may be the beginning of a key."""
    end = split
    while end > max(done, split - _LONGEST_SEPARATOR) and text[end - 1] in _BLANKS:
        end -= 1
    start = max(done, _find_start_of_key_characters(text, end))
    return start if _may_contain_key_start(text[start:end]) else None


def _find_start_of_key_characters(text: str, end: int) -> int:
    start, earliest = end, max(0, end - _LONGEST_RUN)
    while start > earliest and text[start - 1] in _RUN_CHARS:
        start -= 1
    return start


def _find_separator_start(text: str, end: int) -> int:
    """Return where the separator that ends at `end` begins; `end` if it splits nothing."""
    # At the end of the text the rest of the separator may follow.
    start, earliest, has_split = end, max(0, end - _LONGEST_SEPARATOR), end == len(text)
    while start > earliest:
        is_escape = text[start - 1] in "nr" and text[start - 2 : start - 1] == "\\"
        if not is_escape and text[start - 1] not in _BLANKS_AND_SPLITS:
            break
        has_split |= is_escape or text[start - 1] not in _BLANKS
        start -= 2 if is_escape else 1
    return start if has_split else end


@functools.cache
def _compile_key_start_pattern() -> re.Pattern[str]:
    """Return a pattern for a word that contains the prefix of a key, or ends in the first letters of one."""
    begun = {prefix[:length] for prefix in list_key_prefixes() for length in range(2, len(prefix))}
    alone = [prefix for prefix in list_key_prefixes() if len(prefix) <= 4 and prefix[0].isalnum()]
    anywhere = [prefix for prefix in list_key_prefixes() if prefix not in alone]
    return re.compile(
        rf"{_build_alternation(anywhere)}|(?<![A-Za-z0-9])(?:{_build_alternation(alone)}|(?:{_build_alternation(sorted(begun))})\Z)"
        r"|(?<![A-Za-z0-9])[0-9]{8,10}:A?\Z"
    )


def _build_alternation(words: Sequence[str]) -> str:
    return "|".join(map(re.escape, words))


def _may_contain_key_start(run: str) -> bool:
    return _compile_key_start_pattern().search(run) is not None


def _find_split_key(text: str, start: int) -> _SplitKeySpan | None:
    """Return the key whose first part begins at or after `start`, if it is in more than one part."""
    fragments = list(_iterate_key_fragments(text, start))
    while len(fragments) > 1:
        joined = "".join(fragment.text for fragment in fragments)
        first_end = len(fragments[0].text)
        spans = [span for span in find_key_spans_by_shape(joined) if span.start < first_end < span.end]
        if not spans:
            return None
        span = max(spans, key=lambda one: one.end)
        is_whole_before = any(one.start == span.start for one in find_key_spans_by_shape(fragments[0].text))
        at = 0
        for number, fragment in enumerate(fragments):
            part = joined[max(at, span.start) : min(at + len(fragment.text), span.end)]
            end = fragment.start + len(part)
            if (
                number
                and part
                and fragment.is_on_new_line
                and not _does_line_continue_key(text, part, end, is_whole_before)
            ):
                # The word on the next line is not part of it.
                fragments = fragments[:number]
                break
            at += len(fragment.text)
            if at >= span.end:
                return _SplitKeySpan(span.kind, fragments[0].start + span.start, end)
        else:
            return None
    return None


def _iterate_key_fragments(text: str, start: int) -> Iterator[_KeyFragment]:
    is_on_new_line = False
    for number in range(_MOST_FRAGMENTS):
        run = _RUN.match(text, start)
        # Another key begins there.
        if run is None or (
            number and any(run[0].startswith(prefix) for prefix in list_key_prefixes() if len(prefix) > 2)
        ):
            return
        yield _KeyFragment(start, run[0], is_on_new_line)
        separator = _SEPARATOR.match(text, run.end())
        if separator is None:
            return
        is_on_new_line = "+" not in separator[0] and ("\n" in separator[0] or "\\n" in separator[0])
        start = separator.end()


def _does_line_continue_key(text: str, part: str, end: int, is_whole_before: bool) -> bool:
    """Return whether the beginning of a line continues a key; the name of the next setting does not."""
    if "=" in part.rstrip("=") or (text[end : end + 1] in _NAME_FOLLOWS and not part.endswith((".", "="))):
        return False
    is_mixed = not part.isupper() and not part.islower()
    return _is_random_looking(part) and (not is_whole_before or len(part) >= (6 if is_mixed else 8))


def _is_random_looking(part: str) -> bool:
    """Return whether letters look random: words have no digits inside."""
    return len(part) >= 4 and any(map(str.isdigit, part)) and not part.isdigit()
