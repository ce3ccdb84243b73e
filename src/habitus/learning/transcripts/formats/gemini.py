"""Gemini CLI: messages with their tool calls and results, as one JSON document or one message per line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from habitus.learning.transcripts.model import Transcript
from habitus.learning.transcripts.reading import (
    TranscriptBuilder,
    extract_message_text,
    list_or_empty,
    mapping_or_empty,
    read_json_objects,
    string_or_empty,
)
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "gemini"
_FAILED_BY_STATUS = {"success": False, "error": True}
_PROJECT_FILE = ".project_root"
_HASH = re.compile(r"[0-9a-f]{64}")
# A shell command that ran is a success to the program, whatever the command's exit code; these lines end its text.
_SHELL_TOOL = "run_shell_command"
_SHELL_END = re.compile(
    r"(Exit Code|Signal|Background PIDs|Process Group PGID): (.*)|(?:Error|Stderr): \((?:none|empty)\)"
)


def recognizes_row(row: dict[str, object]) -> bool:
    if isinstance(row.get("messages"), list):
        return "sessionId" in row and "projectHash" in row
    return "projectHash" in row or isinstance(row.get("toolCalls"), list) or row.get("type") == "gemini"


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    unread: Counter[str] = Counter()
    talk = TranscriptBuilder(path.stem, SOURCE, redactor)
    for row in read_json_objects(path, unread):
        # Only some versions write the directory; the folder's name, set below, replaces it otherwise.
        talk.set_project_if_unknown(next(filter(None, map(string_or_empty, list_or_empty(row.get("directories")))), ""))
        talk.is_side |= row.get("kind") == "subagent"
        messages = row.get("messages")
        for message in messages if isinstance(messages, list) else (row,):
            _add_message(talk, mapping_or_empty(message))
            yield from talk.yield_finished_turns_once_many()
    talk.set_project_if_unknown(_find_project(path.parent.parent) if path.parent.name == "chats" else "")
    yield talk.finish(unread)


def _find_project(folder: Path) -> str:
    """Return the project that a folder of sessions is for; the folder's name, which may be a hash, if nothing tells."""
    if project := _read_project_file(folder):
        return project
    if not _HASH.fullmatch(folder.name):
        return folder.name
    # Older versions named the folder by the hash of the project, whose newer folder may lie beside it.
    beside = filter(None, map(_read_project_file, sorted(folder.parent.iterdir())))
    return next((each for each in beside if sha256(each.encode()).hexdigest() == folder.name), folder.name)


def _read_project_file(folder: Path) -> str:
    try:
        return (folder / _PROJECT_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _add_message(talk: TranscriptBuilder, message: Mapping[str, object]) -> None:
    at = string_or_empty(message.get("timestamp"))[:40]
    match message.get("type"):
        case "user":
            talk.add_request(extract_message_text(message.get("content")), at=at)
        case "gemini":
            for call in map(mapping_or_empty, list_or_empty(message.get("toolCalls"))):
                _add_call_with_result(talk, call, at)
        case None if "projectHash" in message:
            pass
        case "info" | "error" | "warning":
            pass
        case _:
            talk.draft.unread["unknown message"] += 1


def _add_call_with_result(talk: TranscriptBuilder, call: Mapping[str, object], at: str) -> None:
    ended_at = string_or_empty(call.get("timestamp"))[:40] or at
    id, status = string_or_empty(call.get("id")), string_or_empty(call.get("status")).lower()
    name, text = string_or_empty(call.get("name")), _get_result_text(call.get("result"))
    talk.add_call(id, name, call.get("args"), at=at)
    if name != _SHELL_TOOL:
        talk.add_result(id, text, fields=(call,), has_failed=_FAILED_BY_STATUS.get(status), at=ended_at)
        return
    output, code = _parse_shell_result(text)
    ended = {"exit_code": code, "output": output} if code else call
    talk.add_result(
        id, output, fields=(ended,), has_failed=None if code else _FAILED_BY_STATUS.get(status), at=ended_at
    )


def _parse_shell_result(text: str) -> tuple[str, int]:
    """Return the output of a shell command without the lines around it, and its exit code or signal."""
    lines, ended = text.splitlines(), dict[str, str]()
    while lines and (found := _SHELL_END.fullmatch(lines[-1])):
        ended[found[1] or ""] = found[2] or ""
        lines.pop()
    numbers = (int(value) for key in ("Exit Code", "Signal") if (value := ended.get(key, "")).isdigit())
    output = "\n".join(lines)
    said = output.partition("Output: ")[2] or output
    return "" if said == "(empty)" else said, max(numbers, default=0)


def _get_result_text(value: object) -> str:
    """Return a tool's result: a text, or the `output` or `error` of its function responses."""
    if isinstance(value, str):
        return value
    responses = [
        mapping_or_empty(mapping_or_empty(mapping_or_empty(part).get("functionResponse")).get("response"))
        for part in list_or_empty(value)
    ]
    said = [string_or_empty(response.get("output")) or string_or_empty(response.get("error")) for response in responses]
    return "\n".join(filter(None, said)) or extract_message_text(value)
