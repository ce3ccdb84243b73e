"""Pi: one entry per line, each with its parent; only the branch that ends in the last entry counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

from habitus.learning.transcripts.model import Transcript
from habitus.learning.transcripts.reading import (
    TranscriptBuilder,
    extract_message_text,
    list_or_empty,
    mapping_or_empty,
    read_json_objects,
    read_transcript_by_rows,
    string_or_empty,
)
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "pi"


def recognizes_row(row: dict[str, object]) -> bool:
    if row.get("type") == "session":
        return "cwd" in row and "id" in row
    return "parentId" in row and isinstance(row.get("message"), dict) and "sessionId" not in row


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    talk = TranscriptBuilder(path.stem, SOURCE, redactor)
    return read_transcript_by_rows(path, talk, partial(_add_entry, talk, _list_entry_ids_of_live_branch(path)))


def _add_entry(talk: TranscriptBuilder, live: Collection[str], row: Mapping[str, object]) -> None:
    if row.get("type") == "session":
        talk.set_project_if_unknown(string_or_empty(row.get("cwd")))
    elif row.get("type") == "message" and (not live or string_or_empty(row.get("id")) in live):
        _add_message(talk, mapping_or_empty(row.get("message")), string_or_empty(row.get("timestamp"))[:40])


def _list_entry_ids_of_live_branch(path: Path) -> set[str]:
    """Return the ids of the last entry and its ancestors.

    Empty if the entries have no parents, as in older versions.
    """
    parents: dict[str, str] = {}
    for row in read_json_objects(path, Counter()):
        if id := string_or_empty(row.get("id")):
            parents[id] = string_or_empty(row.get("parentId"))
    found: set[str] = set()
    at = next(reversed(parents), "")
    while at and at not in found:
        found.add(at)
        at = parents.get(at, "")
    return found if any(parents.values()) else set()


def _add_message(talk: TranscriptBuilder, message: Mapping[str, object], at: str) -> None:
    content = message.get("content")
    match message.get("role"):
        case "user":
            talk.add_request(extract_message_text(content), at=at)
        case "assistant":
            for part in map(mapping_or_empty, list_or_empty(content)):
                if part.get("type") == "toolCall":
                    talk.add_call(
                        string_or_empty(part.get("id")), string_or_empty(part.get("name")), part.get("arguments"), at=at
                    )
            if message.get("stopReason") == "aborted":
                talk.mark_interrupted()
        case "toolResult":
            failed = message.get("isError")
            id = string_or_empty(message.get("toolCallId"))
            talk.add_result(
                id, extract_message_text(content), has_failed=failed if isinstance(failed, bool) else None, at=at
            )
