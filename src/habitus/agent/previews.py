"""Short previews of files: their kind, structure and beginning, without reading large files whole.

Tables are shown by their columns and first rows. PDF files and spreadsheets are read in a limited process, so a
malicious file can only hang or crash that.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from habitus import operating_system
from habitus.optional_packages import build_missing_error, is_installed
from habitus.text import clean_to_one_line, count_bytes

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
class FilePreview:
    """A preview of a file: `kind` fits on one line, `lines` follow it; `is_whole` if nothing was left out."""

    kind: str
    lines: tuple[str, ...] = ()
    is_whole: bool = False


def preview_file(path: Path, *, ending: str, room: int) -> FilePreview:
    """Preview a file. `ending` is its suffix, like `.csv`; a text of up to `room` bytes is shown whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(max(HEAD, room))
        if head.startswith(b"%PDF-"):
            return FilePreview(kind="PDF", lines=tuple(preview_document_in_subprocess(path, "pdf")))
        if ending in SHEETS and head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
            return FilePreview(kind="spreadsheet", lines=tuple(preview_document_in_subprocess(path, "sheets")))
        is_all = len(head) >= size
        name = guess_encoding(head[:HEAD], is_all=is_all and size <= HEAD)
        text = decode_beginning_of_file(head, name, is_all=is_all) if name else None
        if name is None or text is None:
            return FilePreview(kind=_detect_binary_file_format(head))
        lines = count_or_estimate_lines(file, name, size)
    if size == 0:
        return FilePreview(kind="empty file", is_whole=True)
    whole = text if is_all and count_bytes(text) <= room else None
    return _preview_text_file(
        path, text if is_all else text.rpartition("\n")[0], f"{name}, {lines}", ending, size, whole
    )


def _detect_binary_file_format(head: bytes) -> str:
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "binary file")


def _preview_text_file(path: Path, text: str, facts: str, ending: str, size: int, whole: str | None) -> FilePreview:
    match ending:
        case ".csv" | ".tsv" | ".tab":
            kind, described, shown = _preview_csv(text, is_tabbed=ending != ".csv")
        case ".jsonl" | ".ndjson":
            kind, described, shown = _preview_json_lines(text)
        case ".json" if size <= _WHOLE_JSON:
            kind, described, shown = _preview_json(path, facts.partition(",")[0])
        case _:
            kind, described, shown = "text", [], []
    if whole is not None:
        described, shown = [*described, "All of it:"], [whole]
    return FilePreview(
        kind=f"{kind}, {facts}", lines=(*described, *(shown or _preview_first_lines(text))), is_whole=whole is not None
    )


def _preview_first_lines(text: str) -> list[str]:
    lines = text[:_HEAD_CHARS].splitlines()[:_HEAD_LINES]
    return ["It begins:", *lines, "…"]


def _preview_csv(text: str, *, is_tabbed: bool) -> tuple[str, list[str], list[str]]:
    delimiter = guess_delimiter(text, is_tabbed=is_tabbed)
    found = build_csv_table_preview(text, delimiter=delimiter)
    said = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}[delimiter]
    if found is None:
        return "text that is not a table", [], []
    return f"table with {said}", found.describe_columns(), found.render_first_rows()


def _preview_json_lines(text: str) -> tuple[str, list[str], list[str]]:
    values = []
    for line in text.splitlines()[:200]:
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    found = build_json_table_preview(values)
    return ("JSON lines", found.describe_columns(), found.render_first_rows(3)) if found else ("JSON lines", [], [])


def _preview_json(path: Path, name: str) -> tuple[str, list[str], list[str]]:
    try:
        value = json.loads(path.read_bytes().decode(name))
    except (ValueError, RecursionError):
        return "JSON that does not parse", [], []
    if isinstance(value, list):
        found = build_json_table_preview(value)
        return f"JSON, a {describe_json_type_and_size(value)}", *(
            (found.describe_columns(), found.render_first_rows(3)) if found else ([], [])
        )
    if isinstance(value, dict):
        keys = [
            f"{clean_to_one_line(str(key)[:60])} ({describe_json_type_and_size(item)})" for key, item in value.items()
        ]
        return f"JSON, an {describe_json_type_and_size(value)}", [f"Keys: {join_names_to_limit(keys)}"], []
    return f"JSON, {describe_json_type_and_size(value)}", [], []


# Bytes of a file that are inspected.
HEAD = 64 * 1024
# Beyond this many bytes the number of lines is estimated.
_COUNTED = 64 * 1024 * 1024
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
# Encodings that current programs write: for a short text, a guess among all encodings would often be odd.
_COMMON = (
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874"),
    *("koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949"),
)
# Of guesses about equally likely, the most common encoding wins.
_WESTERN, _AS_GOOD = "cp1252", 0.05
_CONTROL = {*range(32)} - {*b"\t\n\r\f\x1b"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LineCount:
    """A number of lines, possibly estimated."""

    count: int
    is_exact: bool

    def __str__(self) -> str:
        counted = f"{self.count:,} {'line' if self.count == 1 else 'lines'}"
        return counted if self.is_exact else f"about {counted}"


def guess_encoding(head: bytes, *, is_all: bool) -> str | None:
    """Return Python's name for the encoding of this beginning of a file, or None if it is not text."""
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    if not _has_control_characters(head) and decode_beginning_of_file(head, "utf-8", is_all=is_all) is not None:
        return "utf-8"
    return _guess_legacy_encoding(head)


def _has_control_characters(head: bytes) -> bool:
    return 0 in head or sum(map(head.count, _CONTROL)) * 100 > len(head)


def _guess_legacy_encoding(head: bytes) -> str | None:
    # A slow import that only files outside UTF-8 need.
    from charset_normalizer import from_bytes

    has_controls = _has_control_characters(head)
    # Wide encodings need whole characters.
    sample = head[: len(head) - len(head) % 4] if has_controls else head
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


def decode_beginning_of_file(head: bytes, encoding: str, *, is_all: bool) -> str | None:
    """Decode the beginning of a file, or return None. A character cut in two at the end is left out."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head, final=is_all)
    except UnicodeDecodeError:
        return None


def count_or_estimate_lines(file: BinaryIO, encoding: str, size: int) -> LineCount:
    """Count the lines of a file, estimating beyond a limit."""
    file.seek(0)
    count, read, last = 0, 0, b""
    while read < _COUNTED and (chunk := file.read(_CHUNK)):
        count += chunk.count(b"\n")
        read += len(chunk)
        last = chunk
    # A file cut short since its size was taken is counted whole.
    if chunk and read < size:
        return LineCount(count=count * size // read, is_exact=False)
    # In wide encodings other characters contain the same byte, so the count is only an estimate.
    is_wide = encoding.startswith(("utf-16", "utf-32", "utf_16", "utf_32"))
    last = last.rstrip(b"\0")
    return LineCount(count=count + (bool(last) and not last.endswith(b"\n")), is_exact=not is_wide)


_SECONDS, _MEMORY = 5, 2 * 1024**3
_MOST_SHEETS, _MOST_PAGES, _PDF_TEXT = 8, 5, 1_500
SHEETS = frozenset({".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"})
_PROGRAM = "import sys; from habitus.agent.previews import main; main(*sys.argv[1:])"


def preview_document_in_subprocess(path: Path, kind: str) -> list[str]:
    """Preview a document in a separate process; one line says why if that fails."""
    if not is_installed(module := "pypdf" if kind == "pdf" else "python_calamine"):
        missing = build_missing_error("A preview of it", module)
        return [f"{missing.message} {missing.hint}"]
    command = [sys.executable, "-I", "-c", _PROGRAM, kind, str(path)]
    try:
        done = subprocess.run(command, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS + 5)
        lines = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return [f"It takes more than {_SECONDS} s or {_MEMORY >> 30} GB to look into it, so there is no preview."]
    return [str(line) for line in lines]


def main(kind: str, path: str) -> None:
    """Print the preview as JSON; runs in the limited process."""
    operating_system.limit_resources_of_this_process(cpu_s=_SECONDS, memory=_MEMORY)
    warnings.simplefilter("ignore")
    logging.disable()
    try:
        lines = _preview_pdf(path) if kind == "pdf" else _preview_spreadsheet(path)
    # Libraries raise anything on a broken file.
    except Exception as error:
        lines = [f"It could not be read: {' '.join(str(error).split())[:200] or type(error).__name__}"]
    sys.stdout.write(json.dumps(lines))


def _preview_pdf(path: str) -> list[str]:
    # Takes half a second to import, which only a PDF should cost.
    from pypdf import PdfReader

    reader = PdfReader(path)
    if reader.is_encrypted and not reader.decrypt(""):
        return ["It is encrypted: a password is needed to read it."]
    pages = len(reader.pages)
    said = [f"{pages:,} {'page' if pages == 1 else 'pages'}"]
    left = _PDF_TEXT
    for number in range(min(pages, _MOST_PAGES)):
        text = "\n".join(line for line in (reader.pages[number].extract_text() or "").splitlines() if line.strip())
        if text:
            said += [f"Page {number + 1}{' begins' if len(text) > left else ''}:", text[:left]]
            left -= len(text)
        if left <= 0:
            break
    return said if len(said) > 1 else [*said, f"No text on the first {_MOST_PAGES} pages; it may be scanned."]


def _preview_spreadsheet(path: str) -> list[str]:
    from python_calamine import CalamineWorkbook

    workbook = CalamineWorkbook.from_path(path)
    names = workbook.sheet_names
    said = [f"{len(names)} {'sheet' if len(names) == 1 else 'sheets'}"]
    for name in names[:_MOST_SHEETS]:
        sheet = workbook.get_sheet_by_name(name)
        said.append(f"Sheet '{name}': {sheet.height:,} rows × {sheet.width:,} columns")
        rows = sheet.to_python(nrows=LOOKED_AT + 1)
        if rows:
            found = build_table_preview(rows[0], rows[1:])
            said += [*found.describe_columns(), *found.render_first_rows(3)]
    return [*said, f"… {len(names) - _MOST_SHEETS} more sheets"] if len(names) > _MOST_SHEETS else said


_MOST_COLUMNS, _LONGEST_CELL, _LONGEST_ROW, _SHOWN_ROWS = 40, 60, 300, 5
# Rows inspected to guess the type of a column.
LOOKED_AT = 200
_TYPES = {
    "integer": re.compile(r"[+-]?\d{1,18}"),
    "number": re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"),
    "number with a decimal comma": re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+"),
    "date": re.compile(r"\d{4}-\d\d-\d\d|\d{4}/\d\d/\d\d|\d\d?[./]\d\d?[./]\d{4}"),
    "time": re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*|\d\d?:\d\d(:\d\d)?"),
    "boolean": re.compile(r"true|false|yes|no", re.IGNORECASE),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TablePreview:
    """The first rows of a table as text, with its column names and guessed types."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def describe_columns(self) -> list[str]:
        """List the columns with their types."""
        listed = [f"{name} ({kind})" for name, kind in zip(self.columns, self.types, strict=True)]
        return [f"{len(listed):,} columns: {join_names_to_limit(listed)}"]

    def render_first_rows(self, rows: int = _SHOWN_ROWS) -> list[str]:
        """Render the first rows, one line each."""
        shown = [_truncate_text(" | ".join(row), _LONGEST_ROW) for row in self.rows[:rows]]
        return ["First rows:", *shown] if shown else []


def build_table_preview(header: Iterable[object], rows: Iterable[Sequence[object]]) -> TablePreview:
    """Build a table preview; short rows are padded, cells beyond the header dropped."""
    columns = tuple(_format_cell(name) or f"column {number}" for number, name in enumerate(header, 1))
    kept = [[_format_cell(value) for value in row[: len(columns)]] for row in islice(rows, LOOKED_AT)]
    full = [(*row, *[""] * (len(columns) - len(row))) for row in kept]
    types = tuple(_guess_column_type([row[index] for row in full]) for index in range(len(columns)))
    return TablePreview(columns=columns, types=types, rows=tuple(full))


def build_csv_table_preview(text: str, *, delimiter: str) -> TablePreview | None:
    """Parse the table at the beginning of a file, without a cut-off last line; None if it is not CSV."""
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        rows = [row for row in islice(reader, LOOKED_AT + 1) if row]
    except csv.Error:
        return None
    return build_table_preview(rows[0], rows[1:]) if rows else None


def guess_delimiter(text: str, *, is_tabbed: bool) -> str:
    """Guess the delimiter: the most frequent candidate in the first line that is not blank."""
    if is_tabbed:
        return "\t"
    first = next((line for line in text.splitlines() if line.strip()), "")
    return max(",;\t|", key=first.count)


def build_json_table_preview(values: Sequence[object]) -> TablePreview | None:
    """Build a table from JSON objects, with a column for each key in order of appearance; None without objects."""
    objects = [value for value in islice(values, LOOKED_AT) if isinstance(value, dict)]
    if not objects:
        return None
    columns = list(dict.fromkeys(str(key) for value in objects for key in value))
    found = build_table_preview(
        columns, [[_convert_json_value_to_cell_text(value.get(key)) for key in columns] for value in objects]
    )
    types = tuple(_describe_json_column_types([value.get(key) for value in objects]) for key in columns)
    return TablePreview(columns=found.columns, types=types, rows=found.rows)


def describe_json_type_and_size(value: object) -> str:
    """Name the type of a JSON value, with the size of a container."""
    match value:
        case dict():
            return f"object of {len(value):,}"
        case list():
            return f"list of {len(value):,}"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case None:
            return "null"
        case _:
            return "text"


def _describe_json_column_types(values: Iterable[object]) -> str:
    found = {describe_json_type_and_size(value).partition(" ")[0] for value in values if value is not None}
    return " or ".join(sorted(found)) or "empty"


def _convert_json_value_to_cell_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _guess_column_type(values: Iterable[str]) -> str:
    given = [value for value in values if value]
    if not given:
        return "empty"
    return next((name for name, shape in _TYPES.items() if all(map(shape.fullmatch, given))), "text")


def _format_cell(value: object) -> str:
    return _truncate_text(clean_to_one_line("" if value is None else str(value)[: _LONGEST_CELL * 4]), _LONGEST_CELL)


def _truncate_text(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def join_names_to_limit(items: Sequence[str]) -> str:
    """Join column names up to a limit."""
    more = [f"… {len(items) - _MOST_COLUMNS:,} more"] if len(items) > _MOST_COLUMNS else []
    return ", ".join([*items[:_MOST_COLUMNS], *more])
