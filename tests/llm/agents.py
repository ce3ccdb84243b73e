"""Programs of agents as they were seen to behave: scripts that keep how they were called, and say what was recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from habitus.llm.agents.programs import PROGRAMS


def claude(text: str, **more: Any) -> str:
    used = {"input_tokens": 90, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 6, "output_tokens": 7}
    said = {"type": "result", "is_error": False, "result": text, "total_cost_usd": 0.25, "usage": used}
    return json.dumps({**said, **more})


def _lines(*events: object) -> str:
    return "\n".join(map(json.dumps, events))


def codex(text: str) -> str:
    used = {"input_tokens": 100, "cached_input_tokens": 6, "output_tokens": 7}
    return _lines(
        {"type": "item.completed", "item": {"type": "error", "message": "Model metadata not found."}},
        {"type": "item.completed", "item": {"type": "agent_message", "text": text}},
        {"type": "turn.completed", "usage": used},
    )


def gemini(text: str) -> str:
    used = {"prompt": 100, "candidates": 5, "thoughts": 2, "cached": 6}
    return json.dumps({"response": text, "stats": {"models": {"gemini-2.5-flash": {"tokens": used}}}}, indent=2)


def opencode(text: str) -> str:
    used = {"input": 94, "output": 7, "reasoning": 0, "cache": {"write": 0, "read": 6}}
    return _lines(
        {"type": "text", "part": {"type": "text", "text": text}},
        {"type": "step_finish", "part": {"tokens": used, "cost": 0.25}},
    )


def copilot(text: str) -> str:
    return _lines({"type": "session.info", "data": {}}, {"type": "assistant.message", "data": {"content": text}})


def pi(text: str) -> str:
    used = {"input": 94, "output": 7, "cacheRead": 6, "cacheWrite": 0, "cost": {"total": 0.25}}
    message = {"role": "assistant", "content": [{"type": "text", "text": text}], "usage": used, "stopReason": "stop"}
    asked = {"role": "user", "content": []}
    return _lines({"type": "message_end", "message": asked}, {"type": "message_end", "message": message})


def cursor(text: str) -> str:
    return json.dumps({"type": "result", "is_error": False, "result": text, "session_id": "s"})


SAYS = {
    "claude-code": claude,
    "codex": codex,
    "gemini-cli": gemini,
    "opencode": opencode,
    "copilot": copilot,
    "pi": pi,
    "cursor-agent": cursor,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """How the program was started the last time."""

    arguments: list[str]
    environ: Mapping[str, str]
    stdin: str
    files: list[str]  # where it was started
    cwd: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FakeProgram:
    place: Path
    name: str

    @property
    def seen(self) -> Seen:
        got = self.place / "seen"
        environ = dict(line.partition("=")[::2] for line in (got / "env").read_text().splitlines())
        return Seen(
            arguments=(got / "args").read_text().split("\0")[:-1],
            environ=environ,
            stdin=(got / "stdin").read_text(),
            files=(got / "files").read_text().split(),
            cwd=(got / "cwd").read_text().strip(),
        )

    @property
    def times(self) -> int:
        return len((self.place / "seen" / "times").read_text().split())


def install(place: Path, name: str, *outputs: str, code: int = 0, error: str = "", then: str = "") -> FakeProgram:
    """A program for the PATH `place`, which says one output after the other, the last one again and again."""
    (seen := place / "seen").mkdir(parents=True, exist_ok=True)
    for number, output in enumerate(outputs, 1):
        (seen / f"out{number}").write_text(output)
    (seen / "error").write_text(error)
    script = place / PROGRAMS[name].command
    script.write_text(
        f"""#!/bin/sh
cd_seen='{seen}'
printf '%s\\0' "$@" > "$cd_seen/args"
env > "$cd_seen/env"
pwd > "$cd_seen/cwd"
ls -A > "$cd_seen/files"
cat > "$cd_seen/stdin"
echo x >> "$cd_seen/times"
n=$(wc -l < "$cd_seen/times")
[ "$n" -gt {len(outputs)} ] && n={len(outputs)}
{then}
cat "$cd_seen/out$((n))" 2>/dev/null
cat "$cd_seen/error" >&2
exit {code}
"""
    )
    script.chmod(0o755)
    return FakeProgram(place=place, name=name)
