"""One answer, 'Hello' and a call of `read`, as each provider streams it."""

from __future__ import annotations

import json
from typing import Any

from tests.fake_provider import Reply, sse

ARGUMENTS = '{"path": "a.csv"}'


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def _chat_call(**function: str) -> dict[str, Any]:
    return chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})


_CHAT_USAGE = {
    **chunk({}),
    "choices": [],
    "usage": {
        "prompt_tokens": 50,
        "completion_tokens": 7,
        "total_tokens": 57,
        "prompt_tokens_details": {"cached_tokens": 20},
    },
}


def chat_text(*words: str, finish: str | None = "stop") -> Reply:
    start = chunk({"role": "assistant", "content": ""})
    return sse(start, *(chunk({"content": word}) for word in words), chunk({}, finish), _CHAT_USAGE, done=True)


def chat_call(tool: str, arguments: dict[str, Any]) -> Reply:
    start = chunk({"role": "assistant", "content": ""})
    call = _chat_call(name=tool, arguments=json.dumps(arguments))
    return sse(start, call, chunk({}, "tool_calls"), _CHAT_USAGE, done=True)


CHAT = sse(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    _chat_call(name="read", arguments=""),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[:5]}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[5:]}}]}),
    chunk({}, "tool_calls"),
    _CHAT_USAGE,
    done=True,
)


def _anthropic(kind: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return kind, {"type": kind, **more}


ANTHROPIC_START = _anthropic(
    "message_start",
    message={
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 25,
            "cache_creation_input_tokens": 5,
            "cache_read_input_tokens": 20,
            "output_tokens": 1,
        },
    },
)
ANTHROPIC = sse(
    ANTHROPIC_START,
    _anthropic("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    _anthropic("ping"),
    _anthropic("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hel"}),
    _anthropic("content_block_delta", index=0, delta={"type": "text_delta", "text": "lo"}),
    _anthropic("content_block_stop", index=0),
    _anthropic(
        "content_block_start", index=1, content_block={"type": "tool_use", "id": "call_1", "name": "read", "input": {}}
    ),
    _anthropic("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": ARGUMENTS}),
    _anthropic("content_block_stop", index=1),
    _anthropic("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 7}),
    _anthropic("message_stop"),
)


def anthropic_text(text: str) -> Reply:
    return sse(
        ANTHROPIC_START,
        _anthropic("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _anthropic("content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
        _anthropic("content_block_stop", index=0),
        _anthropic(
            "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 7}
        ),
        _anthropic("message_stop"),
    )


def _candidate(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}]}


def _google_answer(part: dict[str, Any]) -> Reply:
    used = {"promptTokenCount": 50, "candidatesTokenCount": 7, "totalTokenCount": 57}
    return sse({**_candidate(part, finishReason="STOP"), "usageMetadata": used})


def google_text(text: str) -> Reply:
    return _google_answer({"text": text})


def google_call(tool: str, arguments: dict[str, Any]) -> Reply:
    return _google_answer({"functionCall": {"id": "call_1", "name": tool, "args": arguments}})


GOOGLE = sse(
    _candidate({"text": "Hel"}),
    _candidate({"text": "lo"}),
    {
        **_candidate(
            {"functionCall": {"id": "call_1", "name": "read", "args": {"path": "a.csv"}}}, finishReason="STOP"
        ),
        "usageMetadata": {
            "promptTokenCount": 50,
            "candidatesTokenCount": 7,
            "cachedContentTokenCount": 20,
            "totalTokenCount": 57,
        },
        "modelVersion": "gemini-2.5-flash",
    },
)

_RESPONSE = {
    "id": "r1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-5-mini",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "status": "in_progress",
}
_SAID = {
    "type": "message",
    "id": "m1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
}
_CALLED = {
    "type": "function_call",
    "id": "f1",
    "call_id": "call_1",
    "name": "read",
    "arguments": ARGUMENTS,
    "status": "completed",
}


def _numbered(*events: dict[str, Any]) -> Reply:
    return sse(*((event["type"], {**event, "sequence_number": at}) for at, event in enumerate(events)))


def _text_delta(text: str) -> dict[str, Any]:
    place = {"item_id": "m1", "output_index": 0, "content_index": 0}
    return {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []}


OPENAI = _numbered(
    {"type": "response.created", "response": _RESPONSE},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {**_SAID, "status": "in_progress", "content": []},
    },
    _text_delta("Hel"),
    _text_delta("lo"),
    {"type": "response.output_item.done", "output_index": 0, "item": _SAID},
    {
        "type": "response.output_item.added",
        "output_index": 1,
        "item": {**_CALLED, "arguments": "", "status": "in_progress"},
    },
    {"type": "response.function_call_arguments.delta", "item_id": "f1", "output_index": 1, "delta": ARGUMENTS},
    {"type": "response.output_item.done", "output_index": 1, "item": _CALLED},
    {
        "type": "response.completed",
        "response": {
            **_RESPONSE,
            "status": "completed",
            "output": [_SAID, _CALLED],
            "usage": {
                "input_tokens": 50,
                "input_tokens_details": {"cached_tokens": 20},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 57,
            },
        },
    },
)


def openai_text(text: str) -> Reply:
    return _openai_answer({**_SAID, "content": [{"type": "output_text", "text": text, "annotations": []}]})


def openai_call(tool: str, arguments: dict[str, Any]) -> Reply:
    return _openai_answer({**_CALLED, "name": tool, "arguments": json.dumps(arguments)})


def _openai_answer(item: dict[str, Any]) -> Reply:
    used = {"input_tokens": 50, "output_tokens": 7, "total_tokens": 57}
    done = {**_RESPONSE, "status": "completed", "output": [item], "usage": used}
    texts = [part["text"] for part in item.get("content", ())]
    return _numbered(
        {"type": "response.created", "response": _RESPONSE},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
        *map(_text_delta, texts),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    )
