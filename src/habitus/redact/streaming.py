"""Redacts a text that arrives in pieces: whatever may be the beginning of a secret is held back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from habitus.redact.encoded import INVISIBLE
from habitus.redact.named_secrets import find_uncuttable_named_value_spans
from habitus.redact.split_keys import find_unfinished_key_start

_LEADS = re.compile(
    r"(?:[Bb]earer|BEARER|curl [^\n]{0,300}"
    r"|(?:[Aa]uthorization|AUTHORIZATION)(?:[^A-Za-z0-9\n]{1,12}(?:[Bb]a?s?i?c?|BA?S?I?C?)?)?)\s{0,4}"
)
_PEM = re.compile(r"-----BEGIN(?:[A-Z0-9 ]{0,64}-{0,4}\Z|[A-Z0-9 ]{0,64}PRIVATE KEY)")
_PEM_END = re.compile(r"-----END[A-Z0-9 ]{0,64}-----")


class RedactingStream:
    """Redacts a stream: `feed` returns the text that is safe to show, `end` the rest; together they are the redacted
    text.
    """

    def __init__(self, redact: Callable[[str], str], with_spaces: Sequence[str] = ()) -> None:
        """Take the redacting function, and the known secrets that consist of several words."""
        self._redact = redact
        self._with_spaces = with_spaces
        self._held = ""
        # The length from which another look is worthwhile, which keeps the work linear.
        self._look_at = 0

    def feed(self, piece: str) -> str:
        """Add a piece; return the redacted text that can be shown now."""
        self._held += piece
        if len(self._held) < self._look_at:
            return ""
        cut = self._find_safe_end()
        shown, self._held = self._held[:cut], self._held[cut:]
        self._look_at = len(self._held) + len(self._held) // 8
        return self._redact(shown) if shown else ""

    def end(self) -> str:
        """Return the rest of the redacted text."""
        rest, self._held, self._look_at = self._held, "", 0
        return self._redact(rest) if rest else ""

    def _find_safe_end(self) -> int:
        """Return the position up to which no later text can turn the held text into a secret."""
        text = self._held
        cut = min(_find_last_word_start(text), self._find_start_of_partial_known_value())
        together = (
            *find_uncuttable_named_value_spans(text),
            *_find_words_announcing_secret(text),
            *_find_pem_blocks(text),
            *self._find_known_value_spans(),
        )
        for start, end in sorted(together, reverse=True):
            if start < cut < end:
                # A known value may begin earlier in the same word.
                cut = _find_word_start(text, start)
        return cut

    def _find_known_value_spans(self) -> Iterator[tuple[int, int]]:
        """Yield the complete occurrences of known values of several words."""
        for value in self._with_spaces:
            yield from ((found.start(), found.end()) for found in re.finditer(re.escape(value), self._held))

    def _find_start_of_partial_known_value(self) -> int:
        text = self._held
        begun = [
            len(text) - length
            for value in self._with_spaces
            for length in range(1, min(len(value), len(text) + 1))
            if text.endswith(value[:length])
        ]
        return min(begun, default=len(text))


def _find_last_word_start(text: str) -> int:
    """Return where the last word begins; preceding lines of base64 and parts of a split key belong to it."""
    at = _find_word_start(text, len(text))
    while at > 0 and text[at - 1] == "\n":
        line = at - (2 if text[at - 2 : at] == "\r\n" else 1)
        start = _find_word_start(text, line)
        if line - start < 16:
            break
        at = start
    # Never between a backslash and its letter: what is redacted depends on both.
    return _find_word_start(text, find_unfinished_key_start(text, at))


def _find_word_start(text: str, end: int) -> int:
    while end > 0 and ("!" <= text[end - 1] <= "~" or (text[end - 1] > "~" and INVISIBLE.match(text[end - 1]))):
        end -= 1
    return end


def _find_words_announcing_secret(text: str) -> Iterator[tuple[int, int]]:
    """Yield words that announce a secret, up to where it would begin."""
    return ((lead.start(), lead.end() + 1) for lead in _LEADS.finditer(text))


def _find_pem_blocks(text: str) -> Iterator[tuple[int, int]]:
    done = 0
    for begun in _PEM.finditer(text):
        if begun.start() >= done:
            ended = _PEM_END.search(text, begun.end())
            done = ended.end() if ended else len(text) + 1
            yield begun.start(), done
