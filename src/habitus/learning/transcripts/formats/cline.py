"""Cline and Roo: `api_conversation_history.json` of a task, with tool uses as blocks or, in older versions, as text.

<execute_command><command>pytest</command></execute_command>   →   [execute_command for 'pytest'] Result: …
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.lines import Talk, as_list, iso_timestamp, mapping, objects, string, text_of
from habitus.learning.transcripts.model import Transcript
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "cline"
_FILE = "api_conversation_history.json"
_TOOLS = (
    "execute_command|read_file|write_to_file|replace_in_file|apply_diff|insert_content|search_and_replace|search_files"
    "|list_files|list_code_definition_names|browser_action|use_mcp_tool|access_mcp_resource|web_fetch"
)
_USE = re.compile(rf"<({_TOOLS})>(.*?)</\1>", re.DOTALL)
_PARAMETER = re.compile(r"<(\w{1,40})>(.*?)</\1>", re.DOTALL)
_RESULT = re.compile(rf"\[({_TOOLS})(?: for [^\n]*)?\] Result:\s*")
_PERSON = re.compile(r"<(?:task|feedback|user_message|answer)>(.*?)</(?:task|feedback|user_message|answer)>", re.DOTALL)
_DETAILS = re.compile(r"<environment_details>.*?</environment_details>", re.DOTALL)
_FOLDER = re.compile(r"# Current W\w+ Directory \(([^)\n]+)\)")
_DENIED = "The user denied this operation"
_FAILED = re.compile(r"(?:<error>|The tool execution failed|Error executing)")


def owns(path: Path) -> bool:
    return path.name == _FILE


def looks_like(row: dict[str, object]) -> bool:
    """Always False: the file is known by its name."""
    return False


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per task, in pieces."""
    unread: Counter[str] = Counter()
    reader = _Task(Talk(path.parent.name, SOURCE, redactor))
    for row in objects(path, unread):
        reader.take(row)
        yield from reader.talk.pieces()
    yield reader.talk.finish(unread)


class _Task:
    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self._number = 0
        # The tool use in a text that has no result yet.
        self._waiting = ""

    def take(self, row: Mapping[str, object]) -> None:
        at, content = iso_timestamp(row.get("ts")), row.get("content")
        parts = [mapping(part) for part in as_list(content)] or [{"type": "text", "text": string(content)}]
        for part in parts:
            match part.get("type"), row.get("role"):
                case "tool_use", _:
                    self.talk.call(string(part.get("id")), string(part.get("name")), part.get("input"), at=at)
                case "tool_result", _:
                    text = text_of(part.get("content"))
                    has_failed = part.get("is_error") is True or bool(_FAILED.match(text)) or None
                    self._answer(string(part.get("tool_use_id")), text, has_failed=has_failed, at=at)
                case "text", "assistant":
                    self._use(string(part.get("text")), at)
                case "text", _:
                    self._hear(string(part.get("text")), at)

    def _use(self, text: str, at: str) -> None:
        if found := _USE.search(text):
            self._number += 1
            self._waiting = f"text-{self._number}"
            args = {key: value.strip() for key, value in _PARAMETER.findall(found[2])}
            self.talk.call(self._waiting, found[1], args, at=at)

    def _hear(self, text: str, at: str) -> None:
        if folder := _FOLDER.search(text):
            self.talk.locate(folder[1].strip())
        text = _DETAILS.sub("", text)
        if (result := _RESULT.match(text)) and self._waiting:
            said = text[result.end() :]
            self._answer(self._waiting, said, has_failed=bool(_FAILED.match(said)) or None, at=at)
            self._waiting = ""
        self.talk.hear("\n".join(words.strip() for words in _PERSON.findall(text)), at=at)

    def _answer(self, id: str, text: str, *, has_failed: bool | None, at: str) -> None:
        refused = {"status": "rejected"} if text.lstrip().startswith(_DENIED) else {}
        self.talk.answer(id, text, has_failed=None if refused else has_failed, fields=(refused,), at=at)
