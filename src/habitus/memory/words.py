"""A text as memory keeps it: one line, nothing that could drive a terminal or forge the structure of a page."""

from __future__ import annotations

import unicodedata


def one_line(text: str) -> str:
    """The text on one line, without control characters; the same for the same words."""
    if text.isprintable() and unicodedata.is_normalized("NFC", text):
        return " ".join(text.split())  # the usual case, a hundred times faster
    valid = text.encode("utf-8", "replace").decode()
    kept = (" " if char.isspace() or _breaks(char) else char for char in unicodedata.normalize("NFC", valid))
    return " ".join("".join(char for char in kept if char == " " or _is_visible(char)).split())


def _breaks(char: str) -> bool:
    return unicodedata.category(char) in ("Zl", "Zp", "Zs")


def _is_visible(char: str) -> bool:
    """Joiners hold emoji and some scripts together; all else that is unseen could hide something."""
    return char in "\u200c\u200d" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")


def tokens(text: str) -> int:
    """An estimate that needs no model: four bytes a token, so that other scripts are not counted too cheaply."""
    return (len(text.encode()) + 3) // 4
