"""OpenAI message logs: a list of messages, one conversation or one message per line, or Responses API items.

Tool messages have no field for failure, so success is inferred from the shape of the result and marked weak.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.model import CallAwaitingResult, Transcript, TranscriptDraft, infer_call_outcome
from habitus.learning.transcripts.reading import extract_message_text, read_json_objects
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "openai"
_ITEM_TYPES = frozenset(
    {"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning"}
)


def recognizes_row(row: dict[str, object]) -> bool:
    if isinstance(row.get("messages"), list) or row.get("type") == "response_item":
        return True
    return isinstance(row.get("role"), str) or (str(row.get("type")) in _ITEM_TYPES and "sessionId" not in row)


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per conversation; messages on lines of their own form one conversation, in pieces."""
    unread: Counter[str] = Counter()
    loose: _OpenAIConversationReader | None = None
    for number, row in enumerate(read_json_objects(path, unread), 1):
        messages = _find_conversation_messages(row)
        if messages is None:
            loose = loose or _OpenAIConversationReader(path.stem, redactor)
            loose.add_message(row)
            if loose.draft.has_enough_events_for_piece:
                yield loose.draft.remove_and_return_finished_turns(without=loose.draft.turns[-1:])
            continue
        conversation = _OpenAIConversationReader(str(row.get("id") or f"{path.stem}-{number}"), redactor)
        for message in messages:
            conversation.add_message(message)
        yield conversation.draft.finish()
    if loose or unread:
        last = loose or _OpenAIConversationReader(path.stem, redactor)
        last.draft.unread.update(unread)
        yield last.draft.finish()


def _find_conversation_messages(row: Mapping[str, object]) -> list[object] | None:
    """Return the messages of a whole conversation, including the response in a request log; None if the row is none."""
    inner = row.get("request")
    request = inner if isinstance(inner, Mapping) else row
    messages = request.get("messages")
    if not isinstance(messages, list):
        return None
    response = row.get("response")
    choices = response.get("choices") if isinstance(response, Mapping) else None
    if not isinstance(choices, list):
        return messages
    return [*messages, *(choice.get("message") for choice in choices if isinstance(choice, Mapping))]


class _OpenAIConversationReader:
    def __init__(self, conversation_id: str, redactor: Redactor) -> None:
        self.draft = TranscriptDraft(id=conversation_id, source=SOURCE, redactor=redactor)

    def add_message(self, message: object) -> None:
        payload = message.get("payload") if isinstance(message, Mapping) else None
        message = payload if isinstance(payload, Mapping) else message
        if not isinstance(message, Mapping):
            self.draft.unread["unknown message"] += 1
            return
        match message.get("role") or message.get("type"):
            case "user":
                self.draft.open_turn()
            case "assistant":
                self._add_calls_of_answer(message)
            case "function_call" | "custom_tool_call":
                self._add_call(
                    message.get("call_id"), message.get("name"), message.get("arguments") or message.get("input")
                )
            case "tool" | "function" | "function_call_output" | "custom_tool_call_output":
                self._add_result(message)
            case "system" | "developer" | "message" | "reasoning" | "session_meta" | "turn_context" | "token_count":
                pass
            case _:
                self.draft.unread["unknown message"] += 1

    def _add_calls_of_answer(self, message: Mapping[str, object]) -> None:
        self.draft.turn.round_idx += 1
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                self._add_call(call.get("id"), function.get("name"), function.get("arguments"))
            else:
                self.draft.unread["unknown call"] += 1
        legacy = message.get("function_call")
        if isinstance(legacy, Mapping):
            self._add_call("", legacy.get("name"), legacy.get("arguments"))

    def _add_call(self, call_id: object, name: object, args: object) -> None:
        self.draft.add_call(self.draft.turn, str(call_id or ""), str(name or "unknown"), args)

    def _add_result(self, message: Mapping[str, object]) -> None:
        """Add a result to the current turn; its call need not be known."""
        turn, id = self.draft.turn, str(message.get("tool_call_id") or message.get("call_id") or "")
        call = self.draft.calls.get(id)
        name, args = str(message.get("name") or (call.name if call else "unknown")), call.args if call else None
        content = message.get("content", message.get("output"))
        is_text = content is None or isinstance(content, str | list)
        text = extract_message_text(content) if is_text else json.dumps(content, default=str)
        came = CallAwaitingResult(id=id, name=name, args=args, turn=turn, round_idx=turn.round_idx)
        self.draft.add_result(came, infer_call_outcome(args, text, fields=(message,)), text, weak=True)
