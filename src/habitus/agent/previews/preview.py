"""A file in few words: its kind, what it holds and how it begins, read from its head and never whole if it is large."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from habitus.agent.previews import documents, encoding
from habitus.agent.previews.tables import csv_table, delimiter_of, json_table, json_type, up_to
from habitus.text import byte_length, one_line

_HEAD_CHARS, _HEAD_LINES = 1_500, 30
_WHOLE_JSON = 8 * 1024 * 1024
_MAGIC = {
    b"\x89PNG\r\n": "PNG image",
    b"\xff\xd8\xff": "JPEG image",
    b"GIF8": "GIF image",
    b"PAR1": "Parquet table, which the package pyarrow reads",
    b"ARROW1": "Arrow table, which the package pyarrow reads",
    b"\x89HDF": "HDF5 file, which the package h5py reads",
    b"SQLite format 3\0": "SQLite database",
    b"PK\x03\x04": "ZIP archive",
    b"\x1f\x8b": "gzip archive",
    b"BZh": "bzip2 archive",
    b"\xfd7zXZ": "xz archive",
    b"7z\xbc\xaf": "7z archive",
    b"\x7fELF": "program",
    b"\xd0\xcf\x11\xe0": "Microsoft Office document of the old kind",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """`kind` fits into a line; `lines` follow it. A whole preview leaves nothing of the file out."""

    kind: str
    lines: tuple[str, ...] = ()
    is_whole: bool = False


def preview(path: Path, *, ending: str, room: int) -> Preview:
    """Look at a file. `ending` is that of its name, like `.csv`; a text of up to `room` bytes stands whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(max(encoding.HEAD, room))
        if head.startswith(b"%PDF-"):
            return Preview(kind="PDF", lines=tuple(documents.look_into(path, "pdf")))
        if ending in documents.SHEETS and head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
            return Preview(kind="spreadsheet", lines=tuple(documents.look_into(path, "sheets")))
        is_all = len(head) >= size
        name = encoding.guess_encoding(head[: encoding.HEAD], is_all=is_all and size <= encoding.HEAD)
        text = encoding.decode_head(head, name, is_all=is_all) if name else None
        if name is None or text is None:
            return Preview(kind=_binary(head))
        lines = encoding.count_lines(file, name, size)
    if size == 0:
        return Preview(kind="empty file", is_whole=True)
    whole = text if is_all and byte_length(text) <= room else None
    return _of_text(path, text if is_all else text.rpartition("\n")[0], f"{name}, {lines}", ending, size, whole)


def _binary(head: bytes) -> str:
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "binary file")


def _of_text(path: Path, text: str, facts: str, ending: str, size: int, whole: str | None) -> Preview:
    match ending:
        case ".csv" | ".tsv" | ".tab":
            kind, described, shown = _csv(text, is_tabbed=ending != ".csv")
        case ".jsonl" | ".ndjson":
            kind, described, shown = _json_lines(text)
        case ".json" if size <= _WHOLE_JSON:
            kind, described, shown = _json(path, facts.partition(",")[0])
        case _:
            kind, described, shown = "text", [], []
    if whole is not None:
        described, shown = [*described, "All of it:"], [whole]
    return Preview(
        kind=f"{kind}, {facts}", lines=(*described, *(shown or _beginning(text))), is_whole=whole is not None
    )


def _beginning(text: str) -> list[str]:
    lines = text[:_HEAD_CHARS].splitlines()[:_HEAD_LINES]
    return ["It begins:", *lines, "…"]


def _csv(text: str, *, is_tabbed: bool) -> tuple[str, list[str], list[str]]:
    delimiter = delimiter_of(text, is_tabbed=is_tabbed)
    found = csv_table(text, delimiter=delimiter)
    said = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}[delimiter]
    if found is None:
        return "text that is no table", [], []
    return f"table with {said}", found.describe(), found.first_rows()


def _json_lines(text: str) -> tuple[str, list[str], list[str]]:
    values = []
    for line in text.splitlines()[:200]:
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    found = json_table(values)
    return ("JSON lines", found.describe(), found.first_rows(3)) if found else ("JSON lines", [], [])


def _json(path: Path, name: str) -> tuple[str, list[str], list[str]]:
    try:
        value = json.loads(path.read_bytes().decode(name))
    except (ValueError, RecursionError):
        return "JSON that does not parse", [], []
    if isinstance(value, list):
        found = json_table(value)
        return f"JSON, a {json_type(value)}", *((found.describe(), found.first_rows(3)) if found else ([], []))
    if isinstance(value, dict):
        keys = [f"{one_line(str(key)[:60])} ({json_type(item)})" for key, item in value.items()]
        return f"JSON, an {json_type(value)}", [f"Keys: {up_to(keys)}"], []
    return f"JSON, {json_type(value)}", [], []
