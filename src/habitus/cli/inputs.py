"""Input of a command: text and JSON from a file, standard input or the line; and timestamps as they are shown."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

from habitus.errors import Invalid, StorageFailed
from habitus.files import given_path


def read_bytes(file: str) -> bytes:
    """The content of a file; `-` is standard input."""
    try:
        return sys.stdin.buffer.read() if file == "-" else given_path(file).read_bytes()
    except OSError as error:
        raise StorageFailed(f"Can't read {file}: {error.strerror}.", mend="Check the path.") from None


def read_text(file: str) -> str:
    """The text of a file; `-` is standard input."""
    try:
        return read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        name = "standard input" if file == "-" else file
        raise Invalid(f"{name} is not UTF-8 at byte {error.start}.", mend="Save it as UTF-8.") from None


def read_json(given: str, what: str) -> Any:
    """JSON as it is written, or in a file; `-` is standard input."""
    text = given if given.lstrip()[:1] in ("{", "[", '"') else read_text(given)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"The {what} is not JSON: {error}.", mend="Check the quotes, or give a file.") from None


def show_moment(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
