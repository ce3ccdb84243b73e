"""A text that comes in pieces, redacted as it goes on: what may be the beginning of a secret waits for the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from habitus.redact.named import spans

_LEADS = re.compile(
    r"(?:[Bb]earer|BEARER|curl [^\n]{0,300}"
    r"|(?:[Aa]uthorization|AUTHORIZATION)(?:[^A-Za-z0-9\n]{1,12}(?:[Bb]a?s?i?c?|BA?S?I?C?)?)?)\s{0,4}"
)
_PEM = re.compile(r"-----BEGIN(?:[A-Z0-9 ]{0,64}-{0,4}\Z|[A-Z0-9 ]{0,64}PRIVATE KEY)")
_PEM_END = re.compile(r"-----END[A-Z0-9 ]{0,64}-----")


class Stream:
    """`feed` gives what is safe to show of the text so far, `end` the rest; together they are the redacted text."""

    def __init__(self, redact: Callable[[str], str], with_spaces: Sequence[str] = ()) -> None:
        """`with_spaces` are known values that are more than one word."""
        self._redact = redact
        self._with_spaces = with_spaces
        self._held = ""
        self._look_at = 0  # how long it has to be to be worth another look, so that the work grows with the text

    def feed(self, piece: str) -> str:
        self._held += piece
        if len(self._held) < self._look_at:
            return ""
        cut = self._safe()
        shown, self._held = self._held[:cut], self._held[cut:]
        self._look_at = len(self._held) + len(self._held) // 8
        return self._redact(shown) if shown else ""

    def end(self) -> str:
        rest, self._held, self._look_at = self._held, "", 0
        return self._redact(rest) if rest else ""

    def _safe(self) -> int:
        """Up to where nothing that may follow can make a secret of what is there."""
        text = self._held
        cut = min(_last_word(text), self._begun_known())
        together = (*spans(text), *_leads(text), *_pems(text), *self._spans_of_known())
        for start, end in sorted(together, reverse=True):
            if start < cut < end:
                cut = _word_start(text, start)  # a known value may begin before it, in the same word
        return cut

    def _spans_of_known(self) -> Iterator[tuple[int, int]]:
        """Known values of several words, whole."""
        for value in self._with_spaces:
            yield from ((found.start(), found.end()) for found in re.finditer(re.escape(value), self._held))

    def _begun_known(self) -> int:
        text = self._held
        begun = [
            len(text) - length
            for value in self._with_spaces
            for length in range(1, min(len(value), len(text) + 1))
            if text.endswith(value[:length])
        ]
        return min(begun, default=len(text))


def _last_word(text: str) -> int:
    """Where the last word begins; lines of base64 before it are one word with it."""
    at = _word_start(text, len(text))
    while at > 0 and text[at - 1] == "\n":
        line = at - (2 if text[at - 2 : at] == "\r\n" else 1)
        start = _word_start(text, line)
        if line - start < 16:
            break
        at = start
    return at


def _word_start(text: str, end: int) -> int:
    while end > 0 and "!" <= text[end - 1] <= "~":
        end -= 1
    return end


def _leads(text: str) -> Iterator[tuple[int, int]]:
    """Words that say that a secret comes next, with the place where it would begin."""
    return ((lead.start(), lead.end() + 1) for lead in _LEADS.finditer(text))


def _pems(text: str) -> Iterator[tuple[int, int]]:
    done = 0
    for begun in _PEM.finditer(text):
        if begun.start() >= done:
            ended = _PEM_END.search(text, begun.end())
            done = ended.end() if ended else len(text) + 1
            yield begun.start(), done
