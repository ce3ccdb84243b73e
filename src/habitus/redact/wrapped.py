"""Secrets inside another writing: what a URL spells in percents, and what base64 carries."""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

from habitus.redact.shapes import MARKER, is_sample, marker

Redact = Callable[[str], tuple[str, Counter[str]]]  # the text without secrets, and what was taken out

_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_NOT_IN_URLS = re.compile(r"[\s\"'<>\\`]")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}+(?:(?:\r?\n|\\{1,7}n)[A-Za-z0-9+/_-]{16,}+)*+={0,2}")
_BREAKS = re.compile(r"(\r?\n|\\{1,7}n)")
_LOGIN = re.compile(r"[A-Za-z0-9._@+-]{0,64}:(?!/)(?=[!-~]*[0-9])(?=[!-~]*[A-Za-z])[!-~]{6,256}\s?")


def without_percents(text: str, counts: Counter[str], redact: Redact) -> str:
    if "%" not in text:
        return text
    pieces: list[str] = []
    done = 0
    for start, end in _spelled(text):
        clean, found = redact(unquote(text[start:end], errors="surrogateescape"))
        if found:
            counts.update(found)
            kept = quote(clean, safe="[]:/?&=@+,;!$*()~#|{}^", errors="surrogateescape")
            pieces += [text[done:start], kept]
            done = end
    return "".join([*pieces, text[done:]]) if pieces else text


def _spelled(text: str) -> Iterator[tuple[int, int]]:
    """The words with a percent escape in them."""
    done = 0
    for escape in _PERCENT.finditer(text):
        if escape.start() < done:
            continue
        start = escape.start()
        while start > done and not _NOT_IN_URLS.match(text, start - 1):
            start -= 1
        after = _NOT_IN_URLS.search(text, escape.end())
        done = after.start() if after else len(text)
        yield start, done


def without_base64(text: str, counts: Counter[str], redact: Redact) -> str:
    def replacement(found: re.Match[str]) -> str:
        whole = found[0]
        if kind := _carried(_BREAKS.sub("", whole), redact):
            counts[kind] += 1
            return marker(kind)
        if whole.isalnum():
            return whole
        return "".join(line(part) for part in _BREAKS.split(whole))

    def line(part: str) -> str:
        kind = _carried(part, redact) if len(part) >= 16 else ""
        counts[kind] += bool(kind)
        return marker(kind) if kind else part

    return _BASE64.sub(replacement, text)


def _carried(encoded: str, redact: Redact) -> str:
    """The kind of secret that is in there; nothing for a picture, a hash, or a word that only looks so."""
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
    is_login = _LOGIN.fullmatch(text) and not is_sample(text) and not MARKER.search(text)
    return "basic" if is_login else ""
