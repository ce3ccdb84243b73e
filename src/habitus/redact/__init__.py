"""The one redactor: secrets leave a text before it is stored, indexed, shown, sent or learned from.

A secret is a value that we were given (`Redactor(secrets=…)`), or one whose shape (`shapes`) or name (`named`) gives it
away, also inside a URL, base64, hexadecimal digits or escapes (`wrapped`). The work grows with the text and no faster.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from habitus.redact import named
from habitus.redact.encoded import without_base64, without_escapes, without_hex, without_percents
from habitus.redact.shapes import MARKER, marker, without_shapes
from habitus.redact.streaming import Stream

__all__ = [
    "MARKER",
    "PATTERNS_ONLY",
    "SHORTEST_KNOWN",
    "CountingRedactor",
    "Redacted",
    "Redactor",
    "Stream",
    "marker",
    "secret_values",
    "taken_out",
]

SHORTEST_KNOWN = 5  # a shorter value would blank out ordinary words
_DEEPEST = 2  # base64 in a URL in base64


@dataclass(frozen=True, kw_only=True, slots=True)
class Redacted:
    text: str
    counts: Mapping[str, int] = field(default_factory=dict)  # kind of secret → how many were taken out


_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASSWD", "_CREDENTIALS")


def secret_values(environ: Mapping[str, str]) -> list[str]:
    """Values of variables whose names say that they are secret; short ones would redact ordinary words."""
    return [value for name, value in environ.items() if name.upper().endswith(_SECRET_NAMES) and len(value) >= 8]


class Redactor:
    """Knows the secret values of this process; the patterns are always on."""

    def __init__(self, secrets: Iterable[str] = (), *, kept: Callable[[], frozenset[str]] = frozenset) -> None:
        """`kept` are values that may become more; it is asked before each text, and gives the same object as before
        while they are the same."""
        self._secrets, self._kept = frozenset(secrets), kept
        self._spelled: tuple[frozenset[str] | None, tuple[str, ...]] = (None, ())

    @property
    def _known_spellings(self) -> tuple[str, ...]:
        """The values in all their spellings, the longest first."""
        kept = self._kept()
        if kept is not self._spelled[0]:
            spellings = {spelling for secret in self._secrets | kept for spelling in _spellings(secret)}
            self._spelled = (kept, tuple(sorted(spellings, key=lambda spelling: (-len(spelling), spelling))))
        return self._spelled[1]

    def redact(self, text: str) -> Redacted:
        if not text:
            return Redacted(text=text)
        clean, counts = self._redact_text(text, 0)
        return Redacted(text=clean, counts=dict(counts))

    def _redact_text(self, text: str, depth: int) -> tuple[str, Counter[str]]:
        counts: Counter[str] = Counter()
        for secret in self._known_spellings:
            if secret in text:
                counts["known"] += text.count(secret)
                text = text.replace(secret, marker("known"))
        text = bare = without_shapes(text, counts)
        if depth < _DEEPEST:
            inside = functools.partial(self._redact_text, depth=depth + 1)
            for unwrapped in (without_percents, without_escapes, without_hex, without_base64):
                text = unwrapped(text, counts, inside)
        if text is not bare:
            text = without_shapes(text, counts)  # of a key that another was glued to, the end is seen now
        text = named.without_named(text, counts)
        return text, +counts if counts else counts

    def redact_value(self, value: object) -> object:
        """The same value with every text inside it redacted; values under key-like names go whole."""
        match value:
            case str():
                return self.redact(value).text
            case Mapping():
                title = value.get("name") if isinstance(value.get("value"), str) else None
                return {
                    self.redact(str(key)).text: self._item(str(title if title and key == "value" else key), item)
                    for key, item in value.items()
                }
            case list() | tuple():
                return [self.redact_value(item) for item in value]
            case _:
                return value

    def _item(self, name: str, item: object) -> object:
        if isinstance(item, str) and not MARKER.search(item) and named.is_secret(name, item, quoted=True):
            return marker("known" if "known" in self.redact(item).counts else "named")
        return self.redact_value(item)

    def redact_json(self, text: str) -> str:
        """A JSON text with its values redacted, so that it stays JSON; what is none is redacted as it is."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.redact(text).text
        clean = self.redact_value(value)
        return text if clean == value else json.dumps(clean, ensure_ascii=False)

    def stream(self) -> Stream:
        """For a text that comes in pieces."""
        spaced = [
            value
            for value in self._known_spellings
            if not (value.isascii() and value.isprintable() and " " not in value)
        ]
        return Stream(lambda text: self.redact(text).text, spaced)


class CountingRedactor(Redactor):
    """Another redactor, and a count of what it took out so far."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(redactor._secrets, kept=redactor._kept)
        self.counts: Counter[str] = Counter()

    def redact(self, text: str) -> Redacted:
        redacted = super().redact(text)
        self.counts.update(redacted.counts)
        return redacted


def taken_out(text: str) -> dict[str, int]:
    """How many secrets of which kind were taken out of a text, by the marks in it."""
    return dict(sorted(Counter(found[10:-1] for found in MARKER.findall(text)).items()))


def _spellings(secret: str) -> set[str]:
    """A value as it is, and as JSON, URLs, base64 and hexadecimal digits carry it."""
    secret = secret.strip()
    if len(secret) < SHORTEST_KNOWN:
        return set()
    raw = secret.encode("utf-8", "surrogateescape")
    encoded = base64.b64encode(raw).decode()
    spellings = {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe="", errors="surrogateescape"),
        encoded,
        encoded.rstrip("="),
        encoded[: len(raw) // 3 * 4],  # where more text follows, the last letters are others
        raw.hex(),
    }
    return {
        spelling
        for spelling in spellings
        if len(spelling) >= SHORTEST_KNOWN and not re.fullmatch(r"\[?redacted:?[a-z_]*\]?", spelling)
    }


PATTERNS_ONLY = Redactor()
