"""Cursor: one message per line, without timestamps or tool results; only requests and corrections can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from habitus.learning.transcripts.model import Transcript
from habitus.learning.transcripts.reading import (
    TranscriptBuilder,
    extract_message_text,
    mapping_or_empty,
    read_transcript_by_rows,
    string_or_empty,
)
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "cursor"
_QUERY = re.compile(r"<user_query>(.*?)</user_query>", re.DOTALL)


def recognizes_row(row: dict[str, object]) -> bool:
    if row.get("type") == "turn_ended":
        return True
    return isinstance(row.get("role"), str) and "content" in mapping_or_empty(row.get("message")) and "type" not in row


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file."""
    talk = TranscriptBuilder(path.stem, SOURCE, redactor)
    return read_transcript_by_rows(path, talk, partial(_add_row, talk))


def _add_row(talk: TranscriptBuilder, row: Mapping[str, object]) -> None:
    if row.get("role") == "user":
        text = extract_message_text(mapping_or_empty(row.get("message")).get("content"))
        asked = _QUERY.findall(text)
        talk.add_request("\n".join(asked) if asked else text)
    elif row.get("type") == "turn_ended" and string_or_empty(row.get("status")) in ("aborted", "cancelled"):
        talk.mark_interrupted()
