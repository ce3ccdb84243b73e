"""Cursor: one message per line, without timestamps or tool results; only requests and corrections can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from habitus.learning.transcripts.lines import TranscriptBuilder, as_mapping, as_string, join_text, read_rows
from habitus.learning.transcripts.model import Transcript
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "cursor"
_QUERY = re.compile(r"<user_query>(.*?)</user_query>", re.DOTALL)


def looks_like(row: dict[str, object]) -> bool:
    if row.get("type") == "turn_ended":
        return True
    return isinstance(row.get("role"), str) and "content" in as_mapping(row.get("message")) and "type" not in row


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file."""
    talk = TranscriptBuilder(path.stem, SOURCE, redactor)
    return read_rows(path, talk, partial(_add_row, talk))


def _add_row(talk: TranscriptBuilder, row: Mapping[str, object]) -> None:
    if row.get("role") == "user":
        text = join_text(as_mapping(row.get("message")).get("content"))
        asked = _QUERY.findall(text)
        talk.add_request("\n".join(asked) if asked else text)
    elif row.get("type") == "turn_ended" and as_string(row.get("status")) in ("aborted", "cancelled"):
        talk.mark_interrupted()
