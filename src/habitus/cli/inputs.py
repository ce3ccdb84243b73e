"""Reads a command's input: text and JSON from a file, standard input or the argument itself; formats timestamps."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

from habitus.errors import Invalid, StorageFailed
from habitus.files import parse_user_path


def read_bytes_of_file_or_stdin(file: str) -> bytes:
    """Return the content of a file, or of standard input for `-`."""
    try:
        return sys.stdin.buffer.read() if file == "-" else parse_user_path(file).read_bytes()
    except OSError as error:
        raise StorageFailed(f"Can't read {file}: {error.strerror}.", hint="Check the path.") from None


def read_text_of_file_or_stdin(file: str) -> str:
    """Return the text of a file, or of standard input for `-`; raise `Invalid` if it is not UTF-8."""
    try:
        # Editors on Windows put a byte order mark in front, which would become part of the text.
        return read_bytes_of_file_or_stdin(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        name = "standard input" if file == "-" else file
        raise Invalid(f"{name} is not UTF-8 at byte {error.start}.", hint="Save it as UTF-8.") from None


def read_json_argument_file_or_stdin(given: str, what: str) -> Any:
    """Return JSON given as the argument itself, as a file, or as `-` for standard input."""
    # JSON objects, arrays and strings can't be mistaken for a file name.
    text = given if given.lstrip()[:1] in ("{", "[", '"') else read_text_of_file_or_stdin(given)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"The {what} is not valid JSON: {error}.", hint="Check the quotes, or pass a file.") from None


def format_timestamp(timestamp: datetime | None) -> str:
    """Return a time as local date and time, or nothing for None."""
    return "" if timestamp is None else f"{timestamp.astimezone():%Y-%m-%d %H:%M:%S}"
