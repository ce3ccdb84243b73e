"""Documents as previews, PDF and sheets, read in a bounded process: a file made to hang or to swell ends only that."""

from __future__ import annotations

import json
import logging
import resource
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from habitus.agent.previews.tables import LOOKED_AT, table

_SECONDS, _MEMORY = 5, 2 * 1024**3
_MOST_SHEETS, _MOST_PAGES, _PDF_TEXT = 8, 5, 1_500
SHEETS = frozenset({".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"})
_PROGRAM = "import sys; from habitus.agent.previews.documents import main; main(*sys.argv[1:])"


def look_into(path: Path, kind: str) -> list[str]:
    """The preview of a document, a line each; one line that says why there is none."""
    command = [sys.executable, "-I", "-c", _PROGRAM, kind, str(path)]
    try:
        done = subprocess.run(command, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS + 5)
        lines = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return [f"It takes more than {_SECONDS} s or {_MEMORY >> 30} GB to look into it, so there is no preview."]
    return [str(line) for line in lines]


def main(kind: str, path: str) -> None:
    """The process itself."""
    for what, most in ((resource.RLIMIT_CPU, _SECONDS), (resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_FSIZE, 0)):
        with suppress(ValueError, OSError):  # a system that has no such limit
            resource.setrlimit(what, (most, most))
    warnings.simplefilter("ignore")
    logging.disable()
    try:
        lines = _pdf(path) if kind == "pdf" else _sheets(path)
    except Exception as error:  # whatever a library makes of a broken file
        lines = [f"It could not be looked into: {' '.join(str(error).split())[:200] or type(error).__name__}"]
    sys.stdout.write(json.dumps(lines))


def _pdf(path: str) -> list[str]:
    from pypdf import PdfReader  # 0.5 s, which only who attaches a PDF waits for

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


def _sheets(path: str) -> list[str]:
    from python_calamine import CalamineWorkbook

    workbook = CalamineWorkbook.from_path(path)
    names = workbook.sheet_names
    said = [f"{len(names)} {'sheet' if len(names) == 1 else 'sheets'}"]
    for name in names[:_MOST_SHEETS]:
        sheet = workbook.get_sheet_by_name(name)
        said.append(f"Sheet '{name}': {sheet.height:,} rows × {sheet.width:,} columns")
        rows = sheet.to_python(nrows=LOOKED_AT + 1)
        if rows:
            found = table(rows[0], rows[1:])
            said += [*found.describe(), *found.first_rows(3)]
    return [*said, f"… {len(names) - _MOST_SHEETS} more sheets"] if len(names) > _MOST_SHEETS else said
