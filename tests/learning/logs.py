"""Lines as Claude Code writes them, for tests that need a session."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

Line = dict[str, object]


def asked(text: str, **more: object) -> Line:
    return {"type": "user", "sessionId": "s", "message": {"role": "user", "content": text}, **more}


def used(call: str, tool: str, args: object, **more: object) -> Line:
    block = {"type": "tool_use", "id": call, "name": tool, "input": args}
    return {"type": "assistant", "sessionId": "s", "message": {"id": f"m-{call}", "content": [block]}, **more}


def came(call: str, text: object, *, is_error: bool | None = None, **more: object) -> Line:
    block = {"type": "tool_result", "tool_use_id": call, "content": text}
    block |= {} if is_error is None else {"is_error": is_error}
    return {"type": "user", "sessionId": "s", "message": {"role": "user", "content": [block]}, **more}


def failing(turn: int, *, error: str = "No module named 'shop'", times: int = 2) -> list[Line]:
    """A request for which the same tool keeps failing."""
    lines = [asked(f"fix test {turn}")]
    for number in range(times):
        call = f"call-{turn}-{number}"
        lines += [used(call, "Bash", {"command": f"pytest -k {number}"}), came(call, error, is_error=True)]
    return lines


def clean(turn: int, *, size: int = 10) -> list[Line]:
    call = f"read-{turn}"
    return [
        asked(f"read file {turn}"),
        used(call, "Read", {"path": f"{turn}.md"}),
        came(call, f"{turn} " + "text " * (size // 5)),
    ]


def write(path: Path, lines: Iterable[Line], *, tail: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
        file.write(tail)
    return path
