"""The redactor: removes secrets from a text before it is stored, indexed, shown, sent or learned from.

A secret is a value that we were given (`Redactor(secrets=…)`), or one with a typical shape (`key_shapes`) or name
(`named_secrets`), also inside a URL, base64, hexadecimal digits or escapes (`encoded`), or split (`split_keys`). The
work is linear in the text.
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

from habitus.redact import named_secrets
from habitus.redact.encoded import (
    redact_base64_encoded_secrets,
    redact_escaped_secrets,
    redact_hex_encoded_secrets,
    redact_percent_encoded_secrets,
    redact_secrets_with_invisible_characters,
)
from habitus.redact.key_shapes import MARKER, build_redaction_marker, redact_keys_by_shape
from habitus.redact.split_keys import redact_split_keys
from habitus.redact.streaming import RedactingStream

__all__ = [
    "MARKER",
    "MIN_SECRET_CHARACTERS",
    "PATTERNS_ONLY",
    "CountingRedactor",
    "RedactingStream",
    "RedactionResult",
    "Redactor",
    "build_redaction_marker",
    "count_redactions",
    "list_values_of_secret_variables",
]

# A shorter value would blank out ordinary words.
MIN_SECRET_CHARACTERS = 5
# Encodings inside each other, such as base64 in a URL.
_MAX_DEPTH = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class RedactionResult:
    """A redacted text, with the number of secrets by kind."""

    text: str
    counts: Mapping[str, int] = field(default_factory=dict)


_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASSWD", "_CREDENTIALS")


def list_values_of_secret_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the values of variables whose names say that they are secret; short ones would redact ordinary words."""
    return [value for name, value in environ.items() if name.upper().endswith(_SECRET_NAMES) and len(value) >= 8]


class Redactor:
    """Removes the given secret values, and everything that matches the patterns."""

    def __init__(self, secrets: Iterable[str] = (), *, kept: Callable[[], frozenset[str]] = frozenset) -> None:
        """Take fixed secrets, and `kept` for those that may grow; it must return the same object while they are
        unchanged.
        """
        self._secrets, self._kept = frozenset(secrets), kept
        self._spelled: tuple[frozenset[str] | None, tuple[str, ...]] = (None, ())

    @property
    def _encoded_secret_values(self) -> tuple[str, ...]:
        """The values in all their encodings, longest first."""
        kept = self._kept()
        # Compared by identity, because this runs before every text.
        if kept is not self._spelled[0]:
            spellings = {spelling for secret in self._secrets | kept for spelling in _list_encodings(secret)}
            self._spelled = (kept, tuple(sorted(spellings, key=lambda spelling: (-len(spelling), spelling))))
        return self._spelled[1]

    def redact(self, text: str) -> RedactionResult:
        """Redact a text and count the secrets."""
        if not text:
            return RedactionResult(text=text)
        clean, counts = self._redact_text(text, 0)
        return RedactionResult(text=clean, counts=dict(counts))

    def _redact_text(self, text: str, depth: int) -> tuple[str, Counter[str]]:
        counts: Counter[str] = Counter()
        for secret in self._encoded_secret_values:
            if secret in text:
                counts["known"] += text.count(secret)
                text = text.replace(secret, build_redaction_marker("known"))
        inside = functools.partial(self._redact_text, depth=depth + 1)
        # First, because the rest of a split key is not recognised once its beginning is gone.
        text = redact_split_keys(redact_secrets_with_invisible_characters(text, counts, inside), counts)
        text = bare = redact_keys_by_shape(text, counts)
        if depth < _MAX_DEPTH:
            for unwrapped in (
                redact_percent_encoded_secrets,
                redact_escaped_secrets,
                redact_hex_encoded_secrets,
                redact_base64_encoded_secrets,
            ):
                text = unwrapped(text, counts, inside)
        if text is not bare:
            # A key that was glued to another one shows its end only now.
            text = redact_keys_by_shape(text, counts)
        text = named_secrets.redact_values_of_secret_names(text, counts)
        return text, +counts if counts else counts

    def redact_value(self, value: object) -> object:
        """Return the value with every text inside it redacted; values under secret names are replaced whole."""
        match value:
            case str():
                return self.redact(value).text
            case Mapping():
                title = value.get("name") if isinstance(value.get("value"), str) else None
                return {
                    self.redact(str(key)).text: self._redact_named_item(
                        str(title if title and key == "value" else key), item
                    )
                    for key, item in value.items()
                }
            case list() | tuple():
                return [self.redact_value(item) for item in value]
            case _:
                return value

    def _redact_named_item(self, name: str, item: object) -> object:
        if (
            isinstance(item, str)
            and not MARKER.search(item)
            and named_secrets.is_secret_value_under_name(name, item, quoted=True)
        ):
            return build_redaction_marker("known" if "known" in self.redact(item).counts else "named")
        return self.redact_value(item)

    def redact_json(self, text: str) -> str:
        """Redact the values inside a JSON text, which stays valid; other text is redacted as it is."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.redact(text).text
        clean = self.redact_value(value)
        return text if clean == value else json.dumps(clean, ensure_ascii=False)

    def open_redacting_stream(self) -> RedactingStream:
        """Return a redactor for a text that arrives in pieces."""
        # Values of several words can't be found by holding back the last word.
        spaced = [
            value
            for value in self._encoded_secret_values
            if not (value.isascii() and value.isprintable() and " " not in value)
        ]
        return RedactingStream(lambda text: self.redact(text).text, spaced)


class CountingRedactor(Redactor):
    """A redactor that counts the secrets it has removed."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(redactor._secrets, kept=redactor._kept)
        self.counts: Counter[str] = Counter()

    def redact(self, text: str) -> RedactionResult:
        redacted = super().redact(text)
        self.counts.update(redacted.counts)
        return redacted


def count_redactions(text: str) -> dict[str, int]:
    """Count the secrets that were removed from a text, by kind, from its markers."""
    return dict(sorted(Counter(found[10:-1] for found in MARKER.findall(text)).items()))


def _list_encodings(secret: str) -> set[str]:
    """Return a value as it is, and as JSON, URLs, base64 and hexadecimal digits encode it."""
    secret = secret.strip()
    if len(secret) < MIN_SECRET_CHARACTERS:
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
        # Where more text follows, the last letters differ.
        encoded[: len(raw) // 3 * 4],
        raw.hex(),
    }
    return {
        spelling
        for spelling in spellings
        if len(spelling) >= MIN_SECRET_CHARACTERS and not re.fullmatch(r"\[?redacted:?[a-z_]*\]?", spelling)
    }


PATTERNS_ONLY = Redactor()
