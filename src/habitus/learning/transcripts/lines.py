"""JSON from files of any size, compressed or not: line by line, or item by item from one long array."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import EIO
from io import TextIOWrapper
from pathlib import Path
from typing import IO, cast

LONGEST_LINE = 64 * 1024 * 1024
LARGEST_DOCUMENT = 128 * 1024 * 1024
_CHUNK = 1024 * 1024


def objects(path: Path, unread: Counter[str]) -> Iterator[dict[str, object]]:
    """Every JSON object of a JSONL file, of a JSON array, or the one object that the file is."""
    match _shape(path):
        case "array":
            yield from _array_items(path, unread)
        case "document":
            yield from _document(path, unread)
        case _:
            yield from _lines(path, unread)


@contextmanager
def _open_lines(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix != ".zst":
        with path.open("rb") as file:
            yield file
        return
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    try:
        with zstd.open(path, "rb") as unpacked:
            yield cast("IO[bytes]", unpacked)
    except (zstd.ZstdError, EOFError) as error:
        raise OSError(EIO, f"not a whole .zst file ({error})") from error


def _shape(path: Path) -> str:
    with _open_lines(path) as file:
        head = file.read(_CHUNK).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"["):
        return "array"
    first_line = head.split(b"\n", 1)[0].strip()
    if not head.startswith(b"{") or first_line.endswith(b"}") or len(first_line) >= _CHUNK - 4:
        return "lines"
    return "document" if b"\n" in head else "lines"


def _lines(path: Path, unread: Counter[str]) -> Iterator[dict[str, object]]:
    with _open_lines(path) as file:
        while line := file.readline(LONGEST_LINE):
            is_whole = line.endswith(b"\n")
            if len(line) == LONGEST_LINE and not is_whole:
                unread["line too long"] += 1
                while (piece := file.readline(_CHUNK)) and not piece.endswith(b"\n"):
                    pass
                continue
            if not line.strip():
                continue
            try:
                value = json.loads(line.lstrip(b"\xef\xbb\xbf"))
            except (ValueError, RecursionError):
                unread["not JSON" if is_whole else "cut line"] += 1
                continue
            if isinstance(value, dict):
                yield value
            else:
                unread["not an object"] += 1


def _document(path: Path, unread: Counter[str]) -> Iterator[dict[str, object]]:
    """One object over many lines; a file that is not, or is too large for that, is read as lines after all."""
    try:
        with _open_lines(path) as file:
            text = file.read(LARGEST_DOCUMENT + 1)
        value = json.loads(text) if len(text) <= LARGEST_DOCUMENT else None
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        yield value
    else:
        yield from _lines(path, unread)


def _array_items(path: Path, unread: Counter[str]) -> Iterator[dict[str, object]]:
    decoder = json.JSONDecoder()
    buffer, position = "", 1
    with _open_lines(path) as packed, TextIOWrapper(packed, encoding="utf-8-sig", errors="replace") as file:
        buffer = file.read(_CHUNK).lstrip()
        while True:
            while position < len(buffer) and buffer[position] in " \t\r\n,":
                position += 1
            if buffer[position : position + 1] == "]":
                return
            try:
                value, position = decoder.raw_decode(buffer, position)
            except RecursionError:
                unread["nested too deep"] += 1
                return
            except ValueError:
                # Twice as much each time, so that a long item is not parsed over and over.
                more = file.read(max(_CHUNK, len(buffer) - position))
                if not more or len(buffer) - position > LONGEST_LINE:
                    if buffer[position:].strip():
                        unread["cut line"] += 1
                    return
                buffer, position = buffer[position:] + more, 0
                continue
            if isinstance(value, dict):
                yield value
            else:
                unread["not an object"] += 1


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def text_of(content: object) -> str:
    """A text, or the texts of the parts that a message is made of."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(string(part) or string(mapping(part).get("text")) for part in content)
    return ""
