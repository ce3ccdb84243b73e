"""Redacts secrets in other encodings: percent-encoded URLs, escapes of programs and pages, hexadecimal digits,
base64.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

from habitus.redact.key_shapes import MARKER, build_redaction_marker, is_sample_value

# Returns the redacted text and the counts of secrets.
RedactFunction = Callable[[str], tuple[str, Counter[str]]]

_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_NOT_IN_URLS = re.compile(r"[\s\"'<>\\`]")
_ESCAPE = re.compile(r"\\{1,7}(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})|&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[a-z]{2,8});")
# Characters that take no room on the screen: `sk-` with one of them inside still looks like `sk-`.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e0fff]+"
)
_FIRST_ESCAPES = {"\\": re.compile(r"\\[ux][0-9A-Fa-f]{2}"), "&": re.compile(r"&(?:#[0-9xX]|[a-z]{2,8};)")}
_NOT_IN_WORDS = re.compile(r"[\s\"'<>`]")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{2}){16,}+(?![0-9A-Za-z])")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}+(?:(?:\r?\n|\\{1,7}n)[A-Za-z0-9+/_-]{16,}+)*+={0,2}")
# The possible first letters of a base64 group whose first byte is ASCII.
_ASCII_FIRST = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef")
_SIXTEEN = b"x" * 16
_BREAKS = re.compile(r"(\r?\n|\\{1,7}n)")
_LOGIN = re.compile(r"[A-Za-z0-9._@+-]{0,64}:(?!/)(?=[!-~]*[0-9])(?=[!-~]*[A-Za-z])[!-~]{6,256}\s?")


def _build_letter_to_x_table(letters: str) -> bytes:
    return bytes(120 if chr(byte) in letters else 32 for byte in range(256))


_IN_HEX = _build_letter_to_x_table("0123456789abcdefABCDEF")
_IN_BASE64 = _build_letter_to_x_table("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-")


def redact_percent_encoded_secrets(text: str, counts: Counter[str], redact: RedactFunction) -> str:
    """Redact secrets in percent-encoded words."""
    if "%" not in text:
        return text
    pieces: list[str] = []
    done = 0
    for start, end in _find_escaped_words(text, _PERCENT, _NOT_IN_URLS):
        clean, found = redact(unquote(text[start:end], errors="surrogateescape"))
        if found:
            counts.update(found)
            kept = quote(clean, safe="[]:/?&=@+,;!$*()~#|{}^", errors="surrogateescape")
            pieces += [text[done:start], kept]
            done = end
    return "".join([*pieces, text[done:]]) if pieces else text


def redact_escaped_secrets(text: str, counts: Counter[str], redact: RedactFunction) -> str:
    """Redact secrets in words with escapes, replacing only the secret part, which keeps JSON valid."""
    if not any(first in text and escape.search(text) for first, escape in _FIRST_ESCAPES.items()):
        return text
    return _redact_words_spelled_with_escapes(text, counts, redact, _ESCAPE)


def redact_secrets_with_invisible_characters(text: str, counts: Counter[str], redact: RedactFunction) -> str:
    """Redact secrets in words with characters inside that nobody sees."""
    return text if text.isascii() else _redact_words_spelled_with_escapes(text, counts, redact, INVISIBLE)


def _redact_words_spelled_with_escapes(
    text: str, counts: Counter[str], redact: RedactFunction, escapes: re.Pattern[str]
) -> str:
    pieces: list[str] = []
    done = 0
    for start, end in _find_escaped_words(text, escapes, _NOT_IN_WORDS):
        letters = list(_decode_letters_with_positions(text, start, end, escapes))
        said = "".join(letter for letter, _, _ in letters)
        clean, found = redact(said)
        if not found:
            continue
        counts.update(found)
        head = _measure_common_prefix(said, clean)
        tail = _measure_common_prefix(said[head:][::-1], clean[head:][::-1])
        first, last = letters[head], letters[len(said) - tail - 1]
        pieces += [text[done : first[1]], json.dumps(clean[head : len(clean) - tail])[1:-1]]
        done = last[2]
    return "".join([*pieces, text[done:]]) if pieces else text


def _decode_letters_with_positions(
    text: str, start: int, end: int, escapes: re.Pattern[str]
) -> Iterator[tuple[str, int, int]]:
    """Yield the letters that a word spells, each with its position in the text."""
    at = start
    while at < end:
        escape = escapes.match(text, at, end)
        written = escape[0] if escape else text[at]
        if escapes is _ESCAPE or not escape:
            letter = (
                html.unescape(written)
                if escape and written[0] == "&"
                else _decode_escape(written)
                if escape
                else written
            )
            yield (letter if len(letter) == 1 else "\ufffd"), at, at + len(written)
        at += len(written)


def _decode_escape(written: str) -> str:
    return chr(int(written.lstrip("\\")[1:], 16))


def _measure_common_prefix(one: str, other: str) -> int:
    """Return how many leading letters two texts share."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def redact_hex_encoded_secrets(text: str, counts: Counter[str], redact: RedactFunction) -> str:
    """Redact secrets in long runs of hexadecimal digits."""

    def replacement(found: re.Match[str]) -> str:
        raw = bytes.fromhex(found[0])
        _, inner = redact(raw.decode("ascii")) if raw.isascii() else ("", None)
        if not inner:
            return found[0]
        counts.update(inner)
        return build_redaction_marker(inner.most_common(1)[0][0])

    return _HEX.sub(replacement, text) if b"x" * 32 in _map_letters_to_x(text, _IN_HEX) else text


def _map_letters_to_x(text: str, letters: bytes) -> bytes:
    """Replace these letters with `x`: long runs are then found many times faster than by a pattern."""
    return text.encode("ascii", "replace").translate(letters)


def _find_escaped_words(text: str, escapes: re.Pattern[str], outside: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans of words that contain an escape."""
    done = 0
    for escape in escapes.finditer(text):
        if escape.start() < done:
            continue
        start = escape.start()
        while start > done and not outside.match(text, start - 1):
            start -= 1
        after = outside.search(text, escape.end())
        done = after.start() if after else len(text)
        yield start, done


def redact_base64_encoded_secrets(text: str, counts: Counter[str], redact: RedactFunction) -> str:
    """Redact secrets in base64, also across line breaks."""

    def replacement(whole: str) -> str:
        parts = _BREAKS.split(whole)
        if kind := _find_kind_of_base64_secret("".join(parts[::2]), redact):
            counts[kind] += 1
            return build_redaction_marker(kind)
        if len(parts) == 1 or whole.isalnum():
            return whole
        return "".join(line(part) for part in parts)

    def line(part: str) -> str:
        kind = _find_kind_of_base64_secret(part, redact) if len(part) >= 16 else ""
        counts[kind] += bool(kind)
        return build_redaction_marker(kind) if kind else part

    marked, pieces, done = _map_letters_to_x(text, _IN_BASE64), list[str](), 0
    start = marked.find(_SIXTEEN)
    while start >= 0:
        found = _BASE64.match(text, start)
        # The run was found by its letters, so the pattern matches.
        assert found is not None
        clean = replacement(found[0]) if _may_base64_encode_text(found[0]) else found[0]
        if clean != found[0]:
            pieces += [text[done:start], clean]
            done = found.end()
        start = marked.find(_SIXTEEN, found.end())
    return "".join([*pieces, text[done:]]) if pieces else text


def _may_base64_encode_text(encoded: str) -> bool:
    """Return whether base64 may encode text, by its first letters, or consists of lines that may."""
    return _ASCII_FIRST.issuperset(encoded[:16:4]) or "\n" in encoded or "\\" in encoded


def _find_kind_of_base64_secret(encoded: str, redact: RedactFunction) -> str:
    """Return the kind of secret that base64 encodes; empty for an image, a hash, or a word that only looks like it."""
    if not _ASCII_FIRST.issuperset(encoded[:16:4]):
        return ""
    bare = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        raw = base64.b64decode(bare + "=" * (-len(bare) % 4))
    except (binascii.Error, ValueError):
        return ""
    if not raw.isascii():
        return ""
    text = raw.decode("ascii")
    _, found = redact(text)
    if found:
        return found.most_common(1)[0][0]
    is_login = _LOGIN.fullmatch(text) and not is_sample_value(text) and not MARKER.search(text)
    return "basic" if is_login else ""
