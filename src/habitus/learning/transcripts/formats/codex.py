"""Codex: rollout files of `{timestamp, type, payload}` lines with Responses API items, events and session data.

Results have no flag for failure; their first lines state the exit code. A command that goes on after its call is
waited for with further calls, the last of which stands for it. Files from before September 2025 lack the
envelope and are read as OpenAI items.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from habitus.learning.transcripts.model import Transcript
from habitus.learning.transcripts.reading import (
    TranscriptBuilder,
    extract_message_text,
    mapping_or_empty,
    parse_json_or_none,
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


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    talk = TranscriptBuilder(path.stem, SOURCE, redactor)
    return read_transcript_by_rows(path, talk, partial(_add_row, talk, _BackgroundCommands()))


@dataclass(frozen=True, kw_only=True, slots=True)
class _CodexCallWithoutResult:
    name: str
    args: object
    at: str


@dataclass(slots=True)
class _BackgroundCommands:
    """Commands that went on after their call, and the calls that wait for them."""

    calls: dict[str, _CodexCallWithoutResult] = field(default_factory=dict)  # without a result, by id
    started: dict[str, _CodexCallWithoutResult] = field(default_factory=dict)  # by the id of the process
    outputs: dict[str, str] = field(default_factory=dict)  # what was printed so far, by the id of the process
    waits: dict[str, tuple[str, str]] = field(default_factory=dict)  # id of the process and time, by id of the call

    def find_awaited_process_id(self, name: str, args: object) -> str:
        """Return the id of the process that a call only waits for; empty if it does something."""
        given = mapping_or_empty(parse_json_or_none(args))
        process = str(given.get("session_id"))
        is_wait = name == "write_stdin" and process in self.started and not given.get("chars")
        return process if is_wait else ""


_RUNNING = re.compile(r"(?m)^Process running with session ID (\d+)$")


def _add_row(talk: TranscriptBuilder, background: _BackgroundCommands, row: Mapping[str, object]) -> None:
    payload, at = mapping_or_empty(row.get("payload")), string_or_empty(row.get("timestamp"))[:40]
    match row.get("type"):
        case "session_meta" | "turn_context":
            spawned = mapping_or_empty(payload.get("source")).get("subagent")
            parent = string_or_empty(payload.get("parent_thread_id")) or string_or_empty(
                mapping_or_empty(mapping_or_empty(spawned).get("thread_spawn")).get("parent_thread_id")
            )
            # A script writes the prompts of `codex exec`.
            if parent or spawned or payload.get("originator") == "codex_exec":
                talk.is_side = True
            # A file is named otherwise than its session.
            own = parent or string_or_empty(payload.get("id"))
            talk.draft.conversation = talk.draft.conversation or own
            if cwd := string_or_empty(payload.get("cwd")):
                talk.set_project_if_unknown(cwd)
                talk.cwd = talk.redact_directory(cwd)
        case "response_item":
            _add_call_or_result(talk, background, payload, at)
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


def _add_call_or_result(
    talk: TranscriptBuilder, background: _BackgroundCommands, item: Mapping[str, object], at: str
) -> None:
    id = string_or_empty(item.get("call_id"))
    if item.get("type") in _CALLS:
        args = item.get("arguments") or item.get("input") or item.get("action")
        call = _CodexCallWithoutResult(name=string_or_empty(item.get("name")) or "shell", args=args, at=at)
        if process := background.find_awaited_process_id(call.name, args):
            background.waits[id] = process, at
            return
        background.calls[id] = call
        talk.add_call(id, call.name, args, at=at)
    elif item.get("type") in _RESULTS:
        output = item.get("output")
        text = (
            extract_message_text(mapping_or_empty(output).get("content"))
            if isinstance(output, dict)
            else extract_message_text(output)
        )
        _add_result(talk, background, id, text, (item, output), at)


def _add_result(
    talk: TranscriptBuilder, background: _BackgroundCommands, id: str, text: str, fields: tuple[object, ...], at: str
) -> None:
    running = _RUNNING.search(text.partition("\nOutput:")[0])
    head, mark, printed = text.partition("\nOutput:\n")
    call = background.calls.pop(id, None)
    if id not in background.waits:
        if running and call:
            background.started[running[1]], background.outputs[running[1]] = call, printed
        talk.add_result(id, text, fields=fields, at=at)
        return
    process, asked_at = background.waits.pop(id)
    if running or process not in background.started:
        background.outputs[process] = background.outputs.get(process, "") + printed
        return
    started = background.started.pop(process)
    talk.add_call(id, started.name, started.args, at=asked_at)
    talk.add_result(id, f"{head}{mark}{background.outputs.pop(process, '')}{printed}", fields=fields, at=at)
