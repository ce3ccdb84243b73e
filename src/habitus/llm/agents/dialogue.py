"""A conversation written out for a program that is asked once: its system prompt, and one text to answer."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import assert_never

from habitus.llm.model import Answered, Ask, Asked, Message, Returned, Text, ToolSpec

_NO_IMAGE = "[An image, which can't be shown here.]"


def system_of(ask: Ask) -> str:
    if ask.schema is None:
        return ask.system
    return f"{ask.system}\n\n{_text('one-json').format(schema=as_json(dict(ask.schema)))}".strip()


def with_tools(system: str, tools: tuple[ToolSpec, ...]) -> str:
    """The system prompt, and the tools that are run for whoever asks for them in its answer."""
    listed = [{"tool": one.name, "description": one.description, "arguments": dict(one.parameters)} for one in tools]
    return f"{system}\n\n{_text('calls').format(tools=chr(10).join(map(as_json, listed)))}".strip()


def prompt_of(ask: Ask) -> str:
    """A single question as it is; a longer talk with who said what."""
    if len(ask.messages) == 1 and isinstance(ask.messages[0], Asked):
        return _words(ask.messages[0])
    return "\n\n".join([*(f"<{_who(one)}>\n{_words(one)}\n</{_who(one)}>" for one in ask.messages), _text("go-on")])


def _who(message: Message) -> str:
    match message:
        case Asked():
            return "asked"
        case Answered():
            return "you-answered"
        case Returned():
            return "result"
        case never:
            assert_never(never)


def _words(message: Message) -> str:
    match message:
        case Asked(parts=parts):
            return "\n\n".join(part.text if isinstance(part, Text) else _NO_IMAGE for part in parts)
        case Answered(text=text, calls=()):
            return text
        case Answered(text=text, calls=calls):
            asked = [
                {"id": call.id, "tool": call.name, "arguments": _parse_arguments(call.arguments)} for call in calls
            ]
            return as_json({"text": text, "calls": asked})
        case Returned(call=call, tool=tool, content=content, failed=failed, images=images):
            shown = "\n".join([content, *[_NO_IMAGE] * len(images)])
            return f"{tool} ({call}){' failed' if failed else ''}:\n{shown}"
        case never:
            assert_never(never)


def _parse_arguments(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


@cache
def _text(name: str) -> str:
    return files("habitus.llm").joinpath("prompts", f"agent-{name}.md").read_text("utf-8").strip()
