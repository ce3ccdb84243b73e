"""Brings to light what a person does not see: look-alike letters, invisible characters, encoded text."""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from habitus.skills.scan.findings import Risk

# The letters of other scripts that no eye tells from ASCII; typographic quotes are the same mark to a pattern.
_LIKE = {
    "a": "а", "e": "е", "o": "оοօ", "p": "р", "c": "с", "y": "у", "x": "х", "i": "і", "j": "ј", "s": "ѕ", "d": "ԁ", "h": "һ", "q": "ԛ",
    "w": "ԝ", "l": "ӏ", "v": "ν", "u": "ս", "n": "ո", "A": "АΑ", "B": "ВΒ", "E": "ЕΕ", "K": "КΚ", "M": "МΜ", "H": "НΗ", "O": "ОΟ",
    "P": "РΡ", "C": "С", "T": "ТΤ", "Y": "УΥ", "X": "ХΧ", "I": "ІΙ", "J": "Ј", "S": "Ѕ", "Z": "Ζ", "N": "Ν",
}  # fmt: skip
_LOOK_ALIKES = str.maketrans({other: latin for latin, others in _LIKE.items() for other in others})
_SAME = (("\u2018", "'"), ("\u2019", "'"), ("\u201c", '"'), ("\u201d", '"'), ("\u00a0", " "), ("\ufe0f", ""))
# Anything but the letters, marks and pictures that ordinary texts are made of.
_STRANGE = re.compile(
    "[^\x00-\x7f\u00a0-\u00a9\u00ab-\u00ac\u00ae-\u00b9\u00bb-\u017f\u2010-\u2027\u2030-\u203a\u2190-\u23ff\u2500-\u27bf\ufe0f\U0001f300-\U0001faff]"
)
_OTHER_LETTERS = re.compile("[ѐ-ԯͰ-Ͽ԰-֏]")
_WORD_WITH_OTHERS = re.compile("[A-Za-z]*[ѐ-ԯͰ-Ͽ԰-֏][A-Za-zѐ-ԯͰ-Ͽ԰-֏]*")

_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]")
_TAGS = re.compile("[\U000e0020-\U000e007e]+\U000e007f?")
_FLAG = re.compile("\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]{2,7}\U000e007f")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_ZERO_WIDTH = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u180e]{3,}")
_INSIDE_WORD = re.compile("[A-Za-z][\u00ad\u200b-\u200d\u2060-\u2064\ufeff]+[A-Za-z]")
_OVERRIDE = re.compile("[\u202d\u202e]")
_DIRECTION = re.compile("[\u202a\u202b\u2066-\u2068]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff]")

_RUNS = bytes(97 if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "+/") else 32 for code in range(256))
_LONG_RUN = 24 * b"a"
_ESCAPES = re.compile(r"\\{1,2}(?:x[0-9a-fA-F]{2}\\{1,2}){5,}x[0-9a-fA-F]{2}|\\{1,2}(?:u00[0-9a-fA-F]{2}\\{1,2}){5,}u00[0-9a-fA-F]{2}|%(?:[0-9a-fA-F]{2}%){5,}[0-9a-fA-F]{2}|&#(?:x?[0-9a-fA-F]{2,4};&#){4,}x?[0-9a-fA-F]{2,4};")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_ESCAPED = re.compile(r"\\+x|\\+u00|%")
_NUMBERS = re.compile(r"(?:\d{2,3}\s*,\s*){11,}\d{2,3}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Hidden:
    """Something a reader does not see, where it is, and what it says when it can be read."""

    rule: str
    severity: Risk
    why: str
    line: int
    says: str


def is_strange(text: str) -> bool:
    """Has it characters that need a closer look?"""
    return not text.isascii() and _STRANGE.search(text) is not None


def plain(text: str, *, strange: bool = True) -> str:
    """The text as it looks: one form per character, ASCII for its look-alikes, nothing invisible. Keeps line numbers."""
    if text.isascii():
        return text
    for mark, same in _SAME:
        text = text.replace(mark, same)
    if not strange:
        return text
    seen = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    return _WORD_WITH_OTHERS.sub(_fold, seen) if _OTHER_LETTERS.search(seen) else seen


def invisible(text: str) -> Iterator[Hidden]:
    """Characters that carry text past a reader's eyes."""
    rest = _FLAG.sub("", text)
    if match := _TAGS.search(rest):
        says = "".join(chr(ord(char) - 0xE0000) for run in _TAGS.findall(rest) for char in run if char != "\U000e007f")
        yield _hidden("tag_characters", Risk.HIGH, "Invisible tag characters spell a text that only the model reads.", rest, match.start(), says)
    if match := _SELECTORS.search(rest):
        says = "".join(map(_selected, "".join(_SELECTORS.findall(rest))))
        yield _hidden("variation_selectors", Risk.HIGH, "A run of variation selectors carries hidden bytes.", rest, match.start(), says)
    if match := _ZERO_WIDTH.search(rest):
        yield _hidden("zero_width_run", Risk.HIGH, "A run of zero-width characters can carry a hidden text.", rest, match.start(), match.group())
    if match := _INSIDE_WORD.search(rest):
        yield _hidden("split_word", Risk.MEDIUM, "A word is split by invisible characters, as if to slip past a filter.", rest, match.start(), match.group())
    if match := _OVERRIDE.search(rest):
        yield _hidden("bidi_override", Risk.HIGH, "The text is shown in another order than it is read.", rest, match.start(), match.group())
    elif (match := _DIRECTION.search(rest)) and not _RIGHT_TO_LEFT.search(rest):
        yield _hidden("bidi_control", Risk.MEDIUM, "Direction marks without right-to-left text can reorder what is shown.", rest, match.start(), match.group())


def look_alikes(text: str) -> Iterator[Hidden]:
    """Words that mix in letters of another script which look like ASCII."""
    for match in _WORD_WITH_OTHERS.finditer(text):
        folded = _fold(match)
        if folded != match.group() and len(folded) > 3:
            why = f"A word that looks like '{folded[:40]}' is written with letters of another script."
            yield _hidden("look_alike_letters", Risk.MEDIUM, why, text, match.start(), match.group())
            return


def encoded(text: str) -> Iterator[Hidden]:
    """Readable text inside base64, hex, escapes, entities or lists of character codes; decoded once."""
    for start, end in _long_runs(text):
        yield from _said(text, start, _decoded(text[start:end]))
    if "\\x" in text or "\\u00" in text or "&#" in text or "%" in text:
        for match in _ESCAPES.finditer(text):
            yield from _said(text, match.start(), _decoded(match.group()))
    if ", 1" in text or ",1" in text:
        for match in _NUMBERS.finditer(text):
            codes = [int(code) for code in re.findall(r"\d+", match.group())]
            yield from _said(text, match.start(), _readable(bytes(code for code in codes if code < 256)))


def _long_runs(text: str) -> Iterator[tuple[int, int]]:
    """Where the characters of base64 stand without a break."""
    runs = text.encode("ascii", "replace").translate(_RUNS)
    start = runs.find(_LONG_RUN)
    while start >= 0:
        end = runs.find(b" ", start)
        end = end if end >= 0 else len(runs)
        yield start, end
        start = runs.find(_LONG_RUN, end)


def _said(text: str, start: int, says: str) -> Iterator[Hidden]:
    if says:
        yield _hidden("encoded_text", Risk.LOW, "An encoded block holds readable text.", text, start, says)


def _hidden(rule: str, severity: Risk, why: str, text: str, start: int, says: str) -> Hidden:
    return Hidden(rule=rule, severity=severity, why=why, line=text.count("\n", 0, start) + 1, says=says)


def _fold(match: re.Match[str]) -> str:
    """The ASCII word it looks like, if all of it does and some of it is ASCII already."""
    word = match.group()
    if not any(char.isascii() for char in word):
        return word
    folded = word.translate(_LOOK_ALIKES)
    return folded if folded.isascii() else word


def _selected(char: str) -> str:
    code = ord(char)
    byte = code - 0xFE00 if code < 0xE0100 else code - 0xE0100 + 16
    return chr(byte) if 32 <= byte < 127 else " "


def _decoded(blob: str) -> str:
    if blob.startswith("&#"):
        return _readable(html.unescape(blob).encode("utf-8", "replace"))
    if blob[0] in "\\%":
        return _readable(bytes.fromhex(_ESCAPED.sub("", blob)))
    if len(blob) % 2 == 0 and _HEX.fullmatch(blob):
        return _readable(bytes.fromhex(blob))
    if blob.isalpha() and (blob.islower() or blob.isupper()):
        return ""  # a long word or a line of letters
    try:
        whole = blob.rstrip("=").replace("-", "+").replace("_", "/")
        return _readable(base64.b64decode(whole + "=" * (-len(whole) % 4)))
    except (ValueError, binascii.Error):
        return ""


def _readable(data: bytes) -> str:
    """The text, if nearly all of it is printable; chance does not make eighteen printable bytes."""
    if len(data) < 5:
        return ""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    strange = sum(not (char.isprintable() or char in "\n\r\t") for char in text)
    return text if strange == 0 else ""
