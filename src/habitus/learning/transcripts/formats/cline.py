"""Cline and Roo: `api_conversation_history.json` of a task, with tool uses as blocks or, in older versions, as text.

<execute_command><command>pytest</command></execute_command>   →   [execute_command for 'pytest'] Result: …
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.model import Transcript
from habitus.learning.transcripts.reading import (
    TranscriptBuilder,
    extract_message_text,
    format_unix_timestamp,
    list_or_empty,
    mapping_or_empty,
    read_transcript_by_rows,
    string_or_empty,
)
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "cline"
_HISTORY_FILE = "api_conversation_history.json"
_TOOL_NAMES = (
    "execute_command|read_file|write_to_file|replace_in_file|apply_diff|insert_content|search_and_replace|search_files"
    "|list_files|list_code_definition_names|browser_action|use_mcp_tool|access_mcp_resource|web_fetch"
)
_TOOL_USE = re.compile(rf"<({_TOOL_NAMES})>(.*?)</\1>", re.DOTALL)
_PARAMETER = re.compile(r"<(\w{1,40})>(.*?)</\1>", re.DOTALL)
_TOOL_RESULT = re.compile(rf"\[({_TOOL_NAMES})(?: for [^\n]*)?\] Result:\s*")
_USER_TEXT = re.compile(
    r"<(?:task|feedback|user_message|answer)>(.*?)</(?:task|feedback|user_message|answer)>", re.DOTALL
)
_ENVIRONMENT_DETAILS = re.compile(r"<environment_details>.*?</environment_details>", re.DOTALL)
_WORKING_DIRECTORY = re.compile(r"# Current W\w+ Directory \(([^)\n]+)\)")
_DENIED = "The user denied this operation"
_FAILED = re.compile(r"(?:<error>|The tool execution failed|Error executing)")


def recognizes_file(path: Path) -> bool:
    return path.name == _HISTORY_FILE


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per task, in pieces."""
    talk = TranscriptBuilder(path.parent.name, SOURCE, redactor)
    return read_transcript_by_rows(path, talk, _ClineTaskReader(talk).add_row)


class _ClineTaskReader:
    def __init__(self, talk: TranscriptBuilder) -> None:
        self.talk = talk
        self._number = 0
        # The tool use in a text that has no result yet.
        self._waiting = ""

    def add_row(self, row: Mapping[str, object]) -> None:
        at, content = format_unix_timestamp(row.get("ts")), row.get("content")
        parts = [mapping_or_empty(part) for part in list_or_empty(content)] or [
            {"type": "text", "text": string_or_empty(content)}
        ]
        for part in parts:
            match part.get("type"), row.get("role"):
                case "tool_use", _:
                    self.talk.add_call(
                        string_or_empty(part.get("id")), string_or_empty(part.get("name")), part.get("input"), at=at
                    )
                case "tool_result", _:
                    text = extract_message_text(part.get("content"))
                    has_failed = part.get("is_error") is True or bool(_FAILED.match(text)) or None
                    self._add_result(string_or_empty(part.get("tool_use_id")), text, has_failed=has_failed, at=at)
                case "text", "assistant":
                    self._add_tool_use_from_text(string_or_empty(part.get("text")), at)
                case "text", _:
                    self._add_user_text(string_or_empty(part.get("text")), at)

    def _add_tool_use_from_text(self, text: str, at: str) -> None:
        if found := _TOOL_USE.search(text):
            self._number += 1
            self._waiting = f"text-{self._number}"
            args = {key: value.strip() for key, value in _PARAMETER.findall(found[2])}
            self.talk.add_call(self._waiting, found[1], args, at=at)

    def _add_user_text(self, text: str, at: str) -> None:
        if folder := _WORKING_DIRECTORY.search(text):
            self.talk.set_project_if_unknown(folder[1].strip())
        text = _ENVIRONMENT_DETAILS.sub("", text)
        if (result := _TOOL_RESULT.match(text)) and self._waiting:
            said = text[result.end() :]
            self._add_result(self._waiting, said, has_failed=bool(_FAILED.match(said)) or None, at=at)
            self._waiting = ""
        self.talk.add_request("\n".join(words.strip() for words in _USER_TEXT.findall(text)), at=at)

    def _add_result(self, id: str, text: str, *, has_failed: bool | None, at: str) -> None:
        refused = {"status": "rejected"} if text.lstrip().startswith(_DENIED) else {}
        self.talk.add_result(id, text, has_failed=None if refused else has_failed, fields=(refused,), at=at)
