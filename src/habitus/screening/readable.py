"""Brings to light what a person does not see: look-alike letters, invisible characters, encoded text."""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from habitus.screening.findings import RiskLevel

# The letters of other scripts that no eye tells from ASCII.
_LATIN = "a e o o o p c y x i j s d h q w l v u n A A B B E E K K M M H H O O P P C T T Y Y X X I I J S Z N"
_OTHER = "а е о ο օ р с у х і ј ѕ ԁ һ ԛ ԝ ӏ ν ս ո А Α В Β Е Ε К Κ М Μ Н Η О Ο Р Ρ С Т Τ У Υ Х Χ І Ι Ј Ѕ Ζ Ν"
_LOOK_ALIKES = str.maketrans(dict(zip(_OTHER.split(), _LATIN.split(), strict=True)))
_OTHER_LETTERS = re.compile("[\u0370-\u03ff\u0400-\u052f\u0530-\u058f]")
_WORD_WITH_OTHERS = re.compile("[A-Za-z]*[\u0370-\u058f][A-Za-z\u0370-\u058f]*")

# Different marks that are the same to a pattern.
_SAME = (("\u2018", "'"), ("\u2019", "'"), ("\u201c", '"'), ("\u201d", '"'), ("\u00a0", " "), ("\ufe0f", ""))

# Anything but the letters, marks and pictures that ordinary western texts are made of.
_STRANGE = re.compile(
    "[^\x00-\x7f\u00a0-\u00a9\u00ab-\u00ac\u00ae-\u00b9\u00bb-\u017f"
    "\u2010-\u2027\u2030-\u203a\u2190-\u23ff\u2500-\u27bf\ufe0f\U0001f300-\U0001faff]"
)
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_TAGS = re.compile("[\U000e0020-\U000e007e]+\U000e007f?")
_FLAG = re.compile("\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]{2,7}\U000e007f")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_ZERO_WIDTH = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u180e]{3,}")
_OVERRIDE = re.compile("[\u202d\u202e]")

_RUNS = bytes(97 if code < 128 and (chr(code).isalnum() or chr(code) in "+/") else 32 for code in range(256))
_LONG_RUN = 24 * b"a"
_LISTS = bytes(97 if chr(code) in "0123456789, " else 32 for code in range(256))
_LONG_LIST = 36 * b"a"
_BYTE = "[0-9a-fA-F]{2}"
_ESCAPES = re.compile(
    rf"\\{{1,2}}(?:x{_BYTE}\\{{1,2}}){{5,}}x{_BYTE}|\\{{1,2}}(?:u00{_BYTE}\\{{1,2}}){{5,}}u00{_BYTE}|%(?:{_BYTE}%){{5,}}{_BYTE}"
    r"|&#(?:x?[0-9a-fA-F]{2,4};&#){4,}x?[0-9a-fA-F]{2,4};"
)
_ESCAPE_MARKS = (b"\\x", b"\\u00", b"&#", b"%")
_FEWEST_ESCAPES = 5
_ESCAPE_MARK = re.compile(r"\\+x|\\+u00|%")
_HEX = re.compile(rf"(?:{_BYTE})+")
_NUMBERS = re.compile(r"\d{2,3}(?: ?, ?\d{2,3}){11,}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HiddenText:
    """Something a reader does not see, where it is, and what it says when it can be read."""

    rule: str
    severity: RiskLevel
    why: str
    line: int
    says: str = ""


def has_unusual_characters(text: str) -> bool:
    """Has it characters that need a closer look?"""
    return not text.isascii() and _STRANGE.search(text) is not None


def normalize_lookalikes(text: str, *, strange: bool = True) -> str:
    """The text as it looks: one form per character, ASCII for look-alikes, nothing invisible. Keeps line numbers."""
    if text.isascii():
        return text
    for mark, same in _SAME:
        text = text.replace(mark, same)
    if not strange:
        return text
    seen = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    return _WORD_WITH_OTHERS.sub(_fold_lookalikes, seen) if _OTHER_LETTERS.search(seen) else seen


def find_invisible_text(text: str) -> Iterator[HiddenText]:
    """Characters that carry text past a reader's eyes."""
    if not _INVISIBLE.search(text):
        return
    rest = _FLAG.sub("", text)
    if place := _TAGS.search(rest):
        codes = (ord(char) - 0xE0000 for run in _TAGS.findall(rest) for char in run)
        says = "".join(chr(code) for code in codes if code < 127)
        yield _make_hidden_text(
            "tag_characters", "Invisible characters spell a text that only the model reads.", rest, place, says
        )
    if place := _SELECTORS.search(rest):
        says = "".join(map(_decode_variation_selector, "".join(_SELECTORS.findall(rest))))
        yield _make_hidden_text(
            "variation_selectors", "A run of variation selectors carries hidden bytes.", rest, place, says
        )
    if place := _ZERO_WIDTH.search(rest):
        yield _make_hidden_text(
            "zero_width_run", "A run of zero-width characters can carry a hidden text.", rest, place
        )
    if place := _OVERRIDE.search(rest):
        yield _make_hidden_text("bidi_override", "The text is shown in another order than it is read.", rest, place)


def find_encoded_text(text: str) -> Iterator[HiddenText]:
    """Readable text inside base64, hex, escapes, entities or lists of character codes; decoded once."""
    line, counted = 1, 0
    for start, says in _decode_encoded_parts(text):
        line += text.count("\n", counted, start) if start >= counted else -text.count("\n", start, counted)
        counted = start
        why = "An encoded block holds readable text."
        yield HiddenText(rule="encoded_text", severity=RiskLevel.NOTE, why=why, line=line, says=says)


def _decode_encoded_parts(text: str) -> Iterator[tuple[int, str]]:
    letters = text.encode("ascii", "replace")
    for start, end in _find_base64_runs(letters):
        if says := _decode_encoded_blob(text[start:end]):
            yield start, says
    if any(letters.count(mark) >= _FEWEST_ESCAPES for mark in _ESCAPE_MARKS):
        for place in _ESCAPES.finditer(text):
            if says := _decode_encoded_blob(place.group()):
                yield place.start(), says
    if _LONG_LIST in letters.translate(_LISTS):
        for place in _NUMBERS.finditer(text):
            codes = (int(code) for code in place.group().split(","))
            if says := _decode_if_printable(bytes(code for code in codes if code < 256)):
                yield place.start(), says


def _find_base64_runs(letters: bytes) -> Iterator[tuple[int, int]]:
    """Where the characters of base64 stand without a break."""
    runs = letters.translate(_RUNS)
    start = runs.find(_LONG_RUN)
    while start >= 0:
        end = runs.find(b" ", start)
        end = end if end >= 0 else len(runs)
        yield start, end
        start = runs.find(_LONG_RUN, end)


def _make_hidden_text(
    rule: str, why: str, text: str, place: re.Match[str], says: str = "", *, risk: RiskLevel = RiskLevel.HIGH
) -> HiddenText:
    line = text.count("\n", 0, place.start()) + 1
    return HiddenText(rule=rule, severity=risk, why=why, line=line, says=says)


def _fold_lookalikes(word: re.Match[str]) -> str:
    """The ASCII word it looks like, if all of it does and some of it is ASCII already."""
    text = word.group()
    if not any(char.isascii() for char in text):
        return text
    folded = text.translate(_LOOK_ALIKES)
    return folded if folded.isascii() else text


def _decode_variation_selector(char: str) -> str:
    code = ord(char)
    byte = code - 0xFE00 if code < 0xE0100 else code - 0xE0100 + 16
    return chr(byte) if 32 <= byte < 127 else " "


def _decode_encoded_blob(blob: str) -> str:
    if blob.startswith("&#"):
        return _decode_if_printable(html.unescape(blob).encode("utf-8", "replace"))
    if blob[0] in "\\%":
        return _decode_if_printable(bytes.fromhex(_ESCAPE_MARK.sub("", blob)))
    if len(blob) % 2 == 0 and _HEX.fullmatch(blob):
        return _decode_if_printable(bytes.fromhex(blob))
    if blob.isalpha() and (blob.islower() or blob.isupper()):
        return ""  # a long word or a line of letters
    try:
        return _decode_if_printable(base64.b64decode(blob[: len(blob) - (len(blob) % 4 == 1)] + "=" * (-len(blob) % 4)))
    except (ValueError, binascii.Error):
        return ""


def _decode_if_printable(data: bytes) -> str:
    """The text, if all of it is printable; chance does not make that many printable bytes."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return text if len(text) > 4 and all(char.isprintable() or char in "\n\r\t" for char in text) else ""
