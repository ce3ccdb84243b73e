"""A marked block in a text that people write: put in, rewritten, taken out, and nothing outside it changes."""

from __future__ import annotations

from habitus.errors import Invalid

BEGIN, END = "<!-- habitus:begin -->", "<!-- habitus:end -->"


def data(text: str) -> str | None:
    """What stands between the marks; None where there are none."""
    place = _place(text)
    return None if place is None else text[place[0] + len(BEGIN) : place[1] - len(END)].strip()


def put(text: str, value: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    block = newline.join([BEGIN, *value.strip().splitlines(), END])
    place = _place(text)
    if place is not None:
        return text[: place[0]] + block + text[place[1] :]
    if not text:
        return block + newline
    gap = "" if text.endswith(newline * 2) else newline if text.endswith("\n") else newline * 2
    return f"{text}{gap}{block}{newline}"


def take(text: str) -> str:
    place = _place(text)
    if place is None:
        return text
    before, after = text[: place[0]], text[place[1] :].removeprefix("\r").removeprefix("\n")
    if not after:  # it was the end of the file: the empty line above it goes, too
        before = before[: -len(_line_end(before))] if before.endswith(("\n\n", "\r\n\r\n")) else before
    return before + after


def _line_end(text: str) -> str:
    return "\r\n" if text.endswith("\r\n") else "\n"


def _place(text: str) -> tuple[int, int] | None:
    begins, ends = text.count(BEGIN), text.count(END)
    if not begins and not ends:
        return None
    start, end = text.find(BEGIN), text.find(END)
    if begins != 1 or ends != 1 or end < start:
        raise Invalid(f"its marks '{BEGIN}' and '{END}' don't stand there once each, in this order")
    return start, end + len(END)
