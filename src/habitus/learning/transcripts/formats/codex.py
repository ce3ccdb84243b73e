"""Codex: rollout files of `{timestamp, type, payload}` lines with Responses API items, events and session data.

Results have no flag for failure; their first lines state the exit code. Files from before September 2025 lack the
envelope and are read as OpenAI items.
"""

from __future__ import annotations

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

SOURCE = "codex"
_KINDS = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})


def recognizes_row(row: dict[str, object]) -> bool:
    return string_or_empty(row.get("type")) in _KINDS and isinstance(row.get("payload"), dict)


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    talk = TranscriptBuilder(path.stem, SOURCE, redactor)
    return read_transcript_by_rows(path, talk, partial(_add_row, talk))


def _add_row(talk: TranscriptBuilder, row: Mapping[str, object]) -> None:
    payload, at = mapping_or_empty(row.get("payload")), string_or_empty(row.get("timestamp"))[:40]
    match row.get("type"):
        case "session_meta" | "turn_context":
            # A script writes the prompts of `codex exec`.
            if payload.get("parent_thread_id") or payload.get("originator") == "codex_exec":
                talk.is_side = True
            if cwd := string_or_empty(payload.get("cwd")):
                talk.set_project_if_unknown(cwd)
                talk.cwd = talk.redact_directory(cwd)
        case "response_item":
            _add_call_or_result(talk, payload, at)
        case "event_msg":
            _add_event(talk, payload, at)
        case "compacted" | "world_state" | "token_usage_record":
            pass
        case _:
            talk.draft.unread["unknown line"] += 1


def _add_event(talk: TranscriptBuilder, payload: Mapping[str, object], at: str) -> None:
    match payload.get("type"):
        case "user_message":
            talk.add_request(string_or_empty(payload.get("message")), at=at)
        case "item_completed" if mapping_or_empty(payload.get("item")).get("type") == "UserMessage":
            talk.add_request(extract_message_text(mapping_or_empty(payload.get("item")).get("content")), at=at)
        case "turn_aborted":
            talk.mark_interrupted()


def _add_call_or_result(talk: TranscriptBuilder, item: Mapping[str, object], at: str) -> None:
    id = string_or_empty(item.get("call_id"))
    if item.get("type") in _CALLS:
        args = item.get("arguments") or item.get("input") or item.get("action")
        talk.add_call(id, string_or_empty(item.get("name")) or "shell", args, at=at)
    elif item.get("type") in _RESULTS:
        output = item.get("output")
        text = (
            extract_message_text(mapping_or_empty(output).get("content"))
            if isinstance(output, dict)
            else extract_message_text(output)
        )
        talk.add_result(id, text, fields=(item, output), at=at)
