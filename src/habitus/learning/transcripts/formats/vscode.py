"""VS Code's Copilot Chat: a document of requests, or the log of operations that builds one.

An operation sets (1), appends to (2) or deletes (3) the value at a path of keys; 0 is the initial state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from habitus.learning.transcripts.model import Transcript
from habitus.learning.transcripts.reading import (
    TranscriptBuilder,
    extract_message_text,
    format_unix_timestamp,
    list_or_empty,
    mapping_or_empty,
    parse_json_or_none,
    read_json_objects,
    string_or_empty,
)
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "vscode"
_SET, _ADD, _DELETE = 1, 2, 3


def recognizes_row(row: dict[str, object]) -> bool:
    if isinstance(row.get("requests"), list):
        return "sessionId" in row or "requesterUsername" in row
    return row.get("kind") in (0, _SET, _ADD, _DELETE) and ("v" in row or "k" in row)


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    unread: Counter[str] = Counter()
    state: Any = {}
    for row in read_json_objects(path, unread):
        if "kind" not in row:
            state = row
        elif row["kind"] == 0:
            state = row.get("v")
        elif not _apply_patch_to_session_state(state, row):
            unread["operation that does not fit"] += 1
    talk = TranscriptBuilder(path.stem, SOURCE, redactor)
    talk.set_project_if_unknown(_read_workspace_folder(path))
    for number, request in enumerate(map(mapping_or_empty, list_or_empty(mapping_or_empty(state).get("requests")))):
        _add_request(talk, request, str(number))
        yield from talk.yield_finished_turns_once_many()
    yield talk.finish(unread)


def _apply_patch_to_session_state(state: Any, row: Mapping[str, object]) -> bool:
    keys = list_or_empty(row.get("k"))
    try:
        for key in keys[:-1]:
            state = state[key]
        key = keys[-1]
        match row.get("kind"):
            case 1:
                state[key] = row.get("v")
            case 2:
                held = state.setdefault(key, []) if isinstance(state, dict) else state[key]
                at = row.get("i")
                held[at if isinstance(at, int) else len(held) :] = list_or_empty(row.get("v"))
            case 3:
                del state[key]
    except (KeyError, IndexError, TypeError, AttributeError):
        return False
    return True


def _read_workspace_folder(path: Path) -> str:
    beside = path.parent.parent / "workspace.json"
    return (
        unquote(string_or_empty(mapping_or_empty(parse_json_or_none(beside.read_bytes())).get("folder")))
        if beside.is_file()
        else ""
    )


def _add_request(talk: TranscriptBuilder, request: Mapping[str, object], number: str) -> None:
    at = format_unix_timestamp(request.get("timestamp"))
    if not request.get("isSystemInitiated"):
        talk.add_request(string_or_empty(mapping_or_empty(request.get("message")).get("text")), at=at)
    for place, part in enumerate(map(mapping_or_empty, list_or_empty(request.get("response")))):
        if part.get("kind") == "toolInvocationSerialized":
            _add_call_with_result(talk, part, string_or_empty(part.get("toolCallId")) or f"{number}.{place}", at)
    if request.get("isCanceled"):
        talk.mark_interrupted()


def _add_call_with_result(talk: TranscriptBuilder, part: Mapping[str, object], id: str, at: str) -> None:
    details, data = mapping_or_empty(part.get("resultDetails")), mapping_or_empty(part.get("toolSpecificData"))
    line = data.get("commandLine")
    command = (
        string_or_empty(mapping_or_empty(line).get("toolEdited"))
        or string_or_empty(mapping_or_empty(line).get("original"))
        or string_or_empty(line)
    )
    args = {"command": command} if command else parse_json_or_none(details.get("input")) or details.get("input")
    talk.add_call(id, string_or_empty(part.get("toolId")), args, at=at)
    code = mapping_or_empty(data.get("terminalCommandState")).get("exitCode")
    text = string_or_empty(mapping_or_empty(data.get("terminalCommandOutput")).get("text"))
    text = text or "\n".join(
        string_or_empty(mapping_or_empty(one).get("value")) for one in list_or_empty(details.get("output"))
    )
    fields: list[Mapping[str, object]] = [{"exit_code": code, "output": text}] if isinstance(code, int) else []
    # Versions write the user's refusal as a flag or as an object.
    if part.get("isConfirmed") is False or mapping_or_empty(part.get("isConfirmed")).get("type") == 0:
        fields.append({"status": "rejected"})
    has_failed = True if details.get("isError") is True else None
    talk.add_result(
        id, text or extract_message_text(part.get("pastTenseMessage")), has_failed=has_failed, fields=fields, at=at
    )
