"""The beginning of a file as text: which encoding it is in, and about how many lines there are in all."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import BinaryIO

HEAD = 64 * 1024  # bytes that are looked at
_COUNTED = 64 * 1024 * 1024  # bytes whose lines are counted; beyond, their number is estimated
_CHUNK = 1024 * 1024
# The longer mark first: that of UTF-32 begins like that of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WIDE = ("utf_16_le", "utf_16_be", "utf_32_le", "utf_32_be")
# What programs of today write; of a short text, a guess among all there ever were would be an odd one.
_COMMON = (
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874"),
    *("koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949"),
)
_WESTERN, _AS_GOOD = "cp1252", 0.05  # of about equally likely guesses the most common
_CONTROL = {*range(32)} - {*b"\t\n\r\f\x1b"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    count: int
    is_exact: bool

    def __str__(self) -> str:
        counted = f"{self.count:,} {'line' if self.count == 1 else 'lines'}"
        return counted if self.is_exact else f"about {counted}"


def guess_encoding(head: bytes, *, is_all: bool) -> str | None:
    """The name Python has for the encoding of a file that begins so; None for what is no text."""
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    if not _has_controls(head) and decode_head(head, "utf-8", is_all=is_all) is not None:
        return "utf-8"
    return _by_its_letters(head)


def _has_controls(head: bytes) -> bool:
    return 0 in head or sum(map(head.count, _CONTROL)) * 100 > len(head)


def _by_its_letters(head: bytes) -> str | None:
    from charset_normalizer import from_bytes  # only for what is not UTF-8

    has_controls = _has_controls(head)
    sample = head[: len(head) - len(head) % 4] if has_controls else head  # of wide ones, whole characters
    found = list(from_bytes(sample, cp_isolation=[*(_WIDE if has_controls else _COMMON)])) if sample else []
    if not found:
        return None
    best = found[0]
    is_western = any(
        _WESTERN in match.could_be_from_charset
        and match.chaos <= best.chaos + _AS_GOOD
        and match.coherence >= best.coherence - _AS_GOOD
        for match in found
    )
    return _WESTERN if is_western else best.encoding


def decode_head(head: bytes, encoding: str, *, is_all: bool) -> str | None:
    """The text; a character that is cut in two at the end of a part is left out."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head, final=is_all)
    except UnicodeDecodeError:
        return None


def count_lines(file: BinaryIO, encoding: str, size: int) -> Lines:
    """Read on from the start, up to a bound."""
    file.seek(0)
    count, read, last = 0, 0, b""
    while read < _COUNTED and (chunk := file.read(_CHUNK)):
        count += chunk.count(b"\n")
        read += len(chunk)
        last = chunk
    if read < size:
        return Lines(count=count * size // read, is_exact=False)
    is_wide = encoding.startswith(("utf-16", "utf-32", "utf_16", "utf_32"))  # where other characters have such a byte
    last = last.rstrip(b"\0")
    return Lines(count=count + (bool(last) and not last.endswith(b"\n")), is_exact=not is_wide)
