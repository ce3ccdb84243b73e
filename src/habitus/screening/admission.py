"""Which texts may enter memory by themselves: descriptions may, orders that would turn the agent may not.

Pure. A lesson is read by a model later, so a text that somebody planted in a web page must not become a standing order
on the way. What is held back is not lost: it waits for a person. Ordinary advice ("Send the key in the Authorization
header") has to get through, so each rule wants an order, its object, and often its addressee, in one sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from anyascii import anyascii

from habitus.screening.orders import ORDERS, Concern


@dataclass(frozen=True, kw_only=True, slots=True)
class Objection:
    """Why a text waits for a person."""

    concern: Concern
    found: str

    @property
    def reason(self) -> str:
        return f"{self.concern.value}: “{self.found}”"


def objection(text: str) -> Objection | None:
    """What speaks against keeping this text unasked; None for an ordinary one."""
    for reading in _readings(text):
        for concern, pattern in ORDERS:
            for found in pattern.finditer(reading):
                if not _is_warned_against(reading, found, concern):
                    return Objection(concern=concern, found=_shown(found.group()))
    return None


def _shown(found: str) -> str:
    found = " ".join(found.split())
    return found if len(found) <= 60 else f"{found[:59]}…"


_WARNS = re.compile(
    r"(?:\b(?:never|don't|do not|must not|should not|shouldn't|avoid|not|without|refuse to|nie|niemals|nicht|jamais|"
    r"nunca|никогда)\s+(?:\w+\s+){0,2}|不要|切勿|禁止)$"
)
_REVERSED = re.compile(r"\b(?:forget|fail|hesitate|omit|neglect|refuse|be afraid|stop|versäum\w*|oublie\w*|olvid\w*)\b")


def _is_warned_against(reading: str, found: re.Match[str], concern: Concern) -> bool:
    """`Never print the API key` protects what the rule protects; `never forget to print it` does not."""
    if concern not in (Concern.CREDENTIALS, Concern.TOOL_OUTPUT, Concern.OVERRIDE):
        return False
    before = reading[max(0, found.start() - 40) : found.start()]
    warned = _WARNS.search(before)
    return warned is not None and not _REVERSED.search(before[warned.start() :])


def _readings(text: str) -> Iterator[str]:
    """The text as a model would read it: without hiding places, each of them tried."""
    plain = _folded(text)
    yield plain
    if re.search(r"(?:\b\w[ .·_-]){4,}\w\b", plain):
        yield re.sub(r"(?<=\b\w)[ .·_-](?=\w\b)", "", plain)
    if re.search(r"[a-z][013457@$][a-z]|\b[013457@$][a-z]{3}", plain):
        yield plain.translate(_LEET)


_LEET = str.maketrans("013457@$", "oieastas")
_MIXED = re.compile(r"\b(?=\w*[a-z])(?=\w*[\u0370-\u04ff])\w+\b")


def _folded(text: str) -> str:
    """Lower case, without unseen characters; words of two alphabets in the one they imitate."""
    whole = unicodedata.normalize("NFKC", text)
    seen = (char for char in whole if unicodedata.category(char) != "Cf" and not "\u0300" <= char <= "\u036f")
    plain = "".join(seen).casefold().replace("’", "'").replace("ё", "е")
    return _MIXED.sub(lambda word: anyascii(word.group()).casefold(), plain)
