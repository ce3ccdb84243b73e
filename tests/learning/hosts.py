"""One session as each agent writes it down: calls with what came of them, and what the person said."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.learning.logs import Line, asked, came, used, write

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CWD = "/srv/shop"
REFUSED = {
    "claude_code": "The user doesn't want to proceed with this tool use. The tool use was rejected",
    "codex": "exec command rejected by user",
    "gemini": "",
    "opencode": "The user rejected permission to use this specific tool call.",
}


@dataclass(frozen=True, kw_only=True)
class Did:
    """A shell call, or the person's words where there is no command."""

    command: str = ""
    said: str = ""
    code: int | None = 0  # none where the person refused it


def _at(number: int) -> str:
    return f"2026-05-01T10:{number:02}:00Z"


def claude_code(path: Path, deeds: Sequence[Did]) -> None:
    lines: list[Line] = []
    for number, did in enumerate(deeds):
        more = {"cwd": CWD, "timestamp": _at(number)}
        if not did.command:
            lines.append(asked(did.said, **more))
            continue
        text = (
            REFUSED["claude_code"]
            if did.code is None
            else f"Exit code {did.code}\n{did.said}"
            if did.code
            else did.said
        )
        lines.append(used(str(number), "Bash", {"command": did.command}, **more))
        lines.append({**came(str(number), text, is_error=did.code != 0), **more})
    write(path.with_suffix(".jsonl"), lines)


def codex(path: Path, deeds: Sequence[Did]) -> None:
    lines: list[Line] = [{"timestamp": _at(0), "type": "session_meta", "payload": {"id": path.stem, "cwd": CWD}}]
    for number, did in enumerate(deeds):

        def row(kind: str, at: str = _at(number), **payload: object) -> Line:
            return {"timestamp": at, "type": kind, "payload": payload}

        if not did.command:
            lines.append(row("event_msg", type="user_message", message=did.said))
            continue
        args = json.dumps({"cmd": did.command, "workdir": CWD})
        lines.append(
            row("response_item", type="function_call", name="exec_command", call_id=str(number), arguments=args)
        )
        text = f"Chunk ID: 1\nProcess exited with code {did.code}\nOutput:\n{did.said}"
        output = REFUSED["codex"] if did.code is None else text
        lines.append(row("response_item", type="function_call_output", call_id=str(number), output=output))
    write(path.with_name(f"rollout-{path.name}.jsonl"), lines)


def codex_packed(path: Path, deeds: Sequence[Did]) -> None:
    codex(path, deeds)
    plain = path.with_name(f"rollout-{path.name}.jsonl")
    plain.with_name(f"{plain.name}.zst").write_bytes(zstd.compress(plain.read_bytes()))
    plain.unlink()


def gemini(path: Path, deeds: Sequence[Did]) -> None:
    messages: list[Line] = []
    for number, did in enumerate(deeds):
        if not did.command:
            messages.append({"type": "user", "timestamp": _at(number), "content": did.said})
            continue
        status = {None: "cancelled", 0: "success"}.get(did.code, "error")
        response = {"functionResponse": {"name": "run_shell_command", "response": {"output": did.said}}}
        call = {
            "id": str(number),
            "name": "run_shell_command",
            "args": {"command": did.command},
            "status": status,
            "result": [response],
        }
        messages.append({"type": "gemini", "timestamp": _at(number), "content": "", "toolCalls": [call]})
    document = {"sessionId": path.stem, "projectHash": "0", "directories": [CWD], "messages": messages}
    path.with_name(f"session-{path.name}.json").write_text(json.dumps(document, indent=1))


def opencode(path: Path, deeds: Sequence[Did]) -> None:
    with sqlite3.connect(path.with_suffix(".db")) as database:
        database.executescript(
            "CREATE TABLE session (id TEXT, parent_id TEXT, directory TEXT);"
            "CREATE TABLE message (id TEXT, session_id TEXT, data TEXT);"
            "CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT);"
        )
        database.execute("INSERT INTO session VALUES (?, NULL, ?)", (path.stem, CWD))
        for number, (message, part) in enumerate(map(_in_opencode, range(len(deeds)), deeds)):
            database.execute("INSERT INTO message VALUES (?, ?, ?)", (f"m{number:03}", path.stem, json.dumps(message)))
            database.execute(
                "INSERT INTO part VALUES (?, ?, ?, ?)", (f"p{number:03}", f"m{number:03}", path.stem, json.dumps(part))
            )
    database.close()


def opencode_files(path: Path, deeds: Sequence[Did]) -> None:
    """As it kept them before it had a database."""
    storage = path.with_name("storage")

    def keep(folder: str, name: str, value: Line) -> None:
        (storage / folder).mkdir(parents=True, exist_ok=True)
        (storage / folder / f"{name}.json").write_text(json.dumps(value))

    keep("session/project", "ses_1", {"id": "ses_1", "directory": CWD, "version": "0.9", "time": {}})
    for number, (message, part) in enumerate(map(_in_opencode, range(len(deeds)), deeds)):
        keep("message/ses_1", f"msg_{number:03}", message)
        keep(f"part/msg_{number:03}", f"prt_{number:03}", part)


def _in_opencode(number: int, did: Did) -> tuple[Line, Line]:
    """A message and its one part."""
    role = "assistant" if did.command else "user"
    message: Line = {"role": role, "time": {"created": 1777629600000 + number * 60000}}
    part: Line = {"type": "text", "text": did.said}
    if did.command:
        state: Line = {"status": "completed", "input": {"command": did.command}, "output": did.said}
        state |= {"metadata": {"exit": did.code}}
        if did.code is None:
            state = {"status": "error", "input": {"command": did.command}, "error": REFUSED["opencode"]}
        part = {"type": "tool", "tool": "bash", "callID": str(number), "state": state}
    return message, part


WRITERS: dict[str, Callable[[Path, Sequence[Did]], None]] = {
    "claude_code": claude_code,
    "codex": codex,
    "codex, compressed": codex_packed,
    "gemini": gemini,
    "opencode": opencode,
    "opencode, files": opencode_files,
}
