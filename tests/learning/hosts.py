"""One session as each agent writes it down: calls with what came of them, and what the person said."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
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


def codex(path: Path, deeds: Sequence[Did], *, in_items: bool = False) -> None:
    lines: list[Line] = [{"timestamp": _at(0), "type": "session_meta", "payload": {"id": path.stem, "cwd": CWD}}]
    for number, did in enumerate(deeds):

        def row(kind: str, at: str = _at(number), **payload: object) -> Line:
            return {"timestamp": at, "type": kind, "payload": payload}

        if not did.command:
            item = {"type": "UserMessage", "content": [{"type": "text", "text": did.said}]}
            newer, older = {"type": "item_completed", "item": item}, {"type": "user_message", "message": did.said}
            lines.append(row("event_msg", **(newer if in_items else older)))
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
    codex(path, deeds, in_items=True)
    plain = path.with_name(f"rollout-{path.name}.jsonl")
    plain.with_name(f"{plain.name}.zst").write_bytes(zstd.compress(plain.read_bytes()))
    plain.unlink()


def gemini_older(path: Path, deeds: Sequence[Did]) -> None:
    """The folder is named by the hash of the project, and every shell result lists all its fields."""
    folder = path.parent / sha256(CWD.encode()).hexdigest() / "chats"
    folder.mkdir(parents=True)
    gemini(folder / path.name, deeds, is_older=True)
    (path.parent / "newer").mkdir()
    (path.parent / "newer" / ".project_root").write_text(CWD)


def gemini(path: Path, deeds: Sequence[Did], *, is_older: bool = False) -> None:
    messages: list[Line] = []
    for number, did in enumerate(deeds):
        if not did.command:
            messages.append({"type": "user", "timestamp": _at(number), "content": did.said})
            continue
        # A command that ran is a success to the program, whatever its exit code.
        status = "cancelled" if did.code is None else "success"
        said = "\n".join([f"Output: {did.said}", *[f"Exit Code: {did.code}"] * bool(did.code), "Process Group PGID: 7"])
        if is_older:
            fields = ("Error: (none)", f"Exit Code: {did.code or 0}", "Signal: (none)", "Background PIDs: (none)")
            said = "\n".join([f"Command: {did.command}", "Directory: (root)", f"Output: {did.said}", *fields])
        response = {"functionResponse": {"name": "run_shell_command", "response": {"output": said}}}
        call = {
            "id": str(number),
            "name": "run_shell_command",
            "args": {"command": did.command},
            "status": status,
            "result": [response],
        }
        messages.append({"type": "gemini", "timestamp": _at(number), "content": "", "toolCalls": [call]})
    document = {"sessionId": path.stem, "projectHash": "0", "messages": messages}
    document |= {} if is_older else {"directories": [CWD]}
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


def _milliseconds(number: int) -> int:
    return 1777629600000 + number * 60000


def copilot(path: Path, deeds: Sequence[Did]) -> None:
    lines: list[Line] = [{"type": "session.start", "timestamp": _at(0), "data": {"context": {"cwd": CWD}}}]
    for number, did in enumerate(deeds):

        def row(kind: str, data: Line, at: str = _at(number)) -> Line:
            return {"type": kind, "id": kind, "timestamp": at, "data": data}

        if not did.command:
            lines.append(row("user.message", {"content": did.said, "transformedContent": f"<now/>{did.said}"}))
            continue
        request = {"toolCallId": str(number), "name": "bash", "arguments": {"command": did.command}}
        lines.append(row("assistant.message", {"content": "", "toolRequests": [request]}))
        came: dict[str, object] = {"success": did.code == 0, "result": {"content": did.said}}
        if did.code is None:
            came = {"success": False, "error": {"message": "The user rejected this tool call", "status": "rejected"}}
        lines.append(row("tool.execution_complete", {"toolCallId": str(number), **came}))
    write(path.with_suffix(".jsonl"), lines)


def pi(path: Path, deeds: Sequence[Did]) -> None:
    """With a branch that was left."""
    lines: list[Line] = [{"type": "session", "version": 3, "id": "0", "cwd": CWD}]

    def row(id: str, parent: str, **message: object) -> None:
        lines.append({"type": "message", "id": id, "parentId": parent, "timestamp": _at(0), "message": message})

    row("left", "0", role="user", content="forget this")
    last = "0"
    for number, did in enumerate(deeds):
        if not did.command:
            row(f"u{number}", last, role="user", content=[{"type": "text", "text": did.said}])
            last = f"u{number}"
            continue
        call = {"type": "toolCall", "id": str(number), "name": "bash", "arguments": {"command": did.command}}
        row(f"a{number}", last, role="assistant", content=[call])
        text = "Command rejected by user" if did.code is None else did.said
        said = [{"type": "text", "text": text}]
        row(f"r{number}", f"a{number}", role="toolResult", toolCallId=str(number), isError=did.code != 0, content=said)
        last = f"r{number}"
    write(path.with_suffix(".jsonl"), lines)


def goose(path: Path, deeds: Sequence[Did]) -> None:
    with sqlite3.connect(path.with_suffix(".db")) as database:
        database.executescript(
            "CREATE TABLE sessions (id TEXT, description TEXT, working_dir TEXT);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content_json TEXT,"
            " created_timestamp INTEGER);"
        )
        database.execute("INSERT INTO sessions VALUES ('1', '', ?)", (CWD,))

        def row(role: str, part: Line, number: int) -> None:
            values = (role, json.dumps([part]), _milliseconds(number) // 1000)
            database.execute(
                "INSERT INTO messages (session_id, role, content_json, created_timestamp) VALUES ('1', ?, ?, ?)", values
            )

        for number, did in enumerate(deeds):
            if not did.command:
                row("user", {"type": "text", "text": did.said}, number)
                continue
            call = {"status": "success", "value": {"name": "developer__shell", "arguments": {"command": did.command}}}
            row("assistant", {"type": "toolRequest", "id": str(number), "toolCall": call}, number)
            result: Line = {"status": "success", "value": [{"type": "text", "text": did.said}]}
            if did.code != 0:
                said = "The tool call was declined by the user" if did.code is None else did.said
                result = {"status": "error", "error": said}
            row("user", {"type": "toolResponse", "id": str(number), "toolResult": result}, number)
    database.close()


def amp(path: Path, deeds: Sequence[Did]) -> None:
    messages: list[Line] = []
    for number, did in enumerate(deeds):
        if not did.command:
            messages.append({"role": "user", "content": [{"type": "text", "text": did.said}]})
            continue
        use = {"type": "tool_use", "id": str(number), "name": "Bash", "input": {"cmd": did.command}}
        messages.append({"role": "assistant", "content": [use]})
        run: Line = {"status": "done", "result": {"output": did.said, "exitCode": did.code}}
        run = {"status": "rejected-by-user"} if did.code is None else run
        came = {"type": "tool_result", "toolUseID": str(number), "run": run}
        messages.append({"role": "user", "content": [came]})
    trees = {"initial": {"trees": [{"uri": f"file://{CWD}"}]}}
    thread = {"id": "T-1", "created": 1, "title": "", "env": trees, "messages": messages}
    path.with_name("T-1.json").write_text(json.dumps(thread, indent=1))


def zed(path: Path, deeds: Sequence[Did]) -> None:
    messages: list[Line] = []
    for number, did in enumerate(deeds):
        if not did.command:
            messages.append({"User": {"id": str(number), "content": [{"Text": did.said}]}})
            continue
        use = {"id": str(number), "name": "terminal", "input": {"command": did.command, "cd": CWD}}
        said = "The tool call was rejected by the user" if did.code is None else did.said
        result = {"tool_use_id": str(number), "is_error": did.code != 0, "content": {"Text": said}}
        messages.append({"Agent": {"content": [{"ToolUse": use}], "tool_results": {str(number): result}}})
    snapshot = {"worktree_snapshots": [{"worktree_path": CWD}]}
    thread = {"version": "0.3.0", "initial_project_snapshot": snapshot, "messages": messages}
    with sqlite3.connect(path.with_suffix(".db")) as database:
        database.execute("CREATE TABLE threads (id TEXT, parent_id TEXT, data_type TEXT, data BLOB)")
        packed = zstd.compress(json.dumps(thread).encode())
        database.execute("INSERT INTO threads VALUES ('1', NULL, 'zstd', ?)", (packed,))
    database.close()


_DENIED = "The user denied this operation."


def cline(path: Path, deeds: Sequence[Did]) -> None:
    rows: list[Line] = []
    for number, did in enumerate(deeds):
        at = {"ts": _milliseconds(number)}
        if not did.command:
            rows.append({"role": "user", "content": [{"type": "text", "text": f"<task>{did.said}</task>"}], **at})
            rows[-1]["content"] = [*_parts(rows[-1]), {"type": "text", "text": _DETAILS}]
            continue
        use = {"type": "tool_use", "id": str(number), "name": "execute_command", "input": {"command": did.command}}
        rows.append({"role": "assistant", "content": [use], **at})
        text = _DENIED if did.code is None else f"Exit code: {did.code}\nOutput:\n{did.said}"
        came = {"type": "tool_result", "tool_use_id": str(number), "content": text}
        rows.append({"role": "user", "content": [came], **at})
    _keep_task(path, rows)


def cline_marked(path: Path, deeds: Sequence[Did]) -> None:
    """As older versions write it: in the text."""
    rows: list[Line] = []
    for number, did in enumerate(deeds):
        at = {"ts": _milliseconds(number)}
        if not did.command:
            text = f"<feedback>{did.said}</feedback>" if number else f"<task>{did.said}</task>\n{_DETAILS}"
            rows.append({"role": "user", "content": [{"type": "text", "text": text}], **at})
            continue
        use = f"Now.\n<execute_command>\n<command>{did.command}</command>\n</execute_command>"
        rows.append({"role": "assistant", "content": use, **at})
        said = _DENIED if did.code is None else f"Exit code: {did.code}\nOutput:\n{did.said}"
        text = f"[execute_command for '{did.command}'] Result:\n{said}"
        rows.append({"role": "user", "content": [{"type": "text", "text": text}], **at})
    _keep_task(path, rows)


_DETAILS = f"<environment_details>\n# Current Working Directory ({CWD}) Files\na.py\n</environment_details>"


def _parts(row: Line) -> list[object]:
    content = row["content"]
    assert isinstance(content, list)
    return content


def _keep_task(path: Path, rows: Sequence[Line]) -> None:
    path.mkdir()
    (path / "api_conversation_history.json").write_text(json.dumps(rows))


def vscode(path: Path, deeds: Sequence[Did]) -> None:
    """The log of operations: each request is pushed, and what it led to set in it."""
    (path.parent / "workspace.json").write_text(json.dumps({"folder": f"file://{CWD}"}))
    lines: list[Line] = [{"kind": 0, "v": {"sessionId": "1", "requests": []}}]
    place = -1
    for number, did in enumerate(deeds):
        if not did.command:
            place += 1
            request = {"message": {"text": did.said}, "response": [], "timestamp": _milliseconds(number)}
            lines.append({"kind": 2, "k": ["requests"], "v": [request]})
            continue
        data: Line = {"kind": "terminal", "commandLine": {"original": did.command}}
        if did.code is not None:
            data |= {"terminalCommandState": {"exitCode": did.code}, "terminalCommandOutput": {"text": did.said}}
        part: Line = {"kind": "toolInvocationSerialized", "toolId": "run_in_terminal", "toolSpecificData": data}
        part |= {"isConfirmed": did.code is not None, "toolCallId": str(number)}
        lines.append({"kind": 2, "k": ["requests", place, "response"], "v": [part]})
    folder = path.parent / "chatSessions"
    folder.mkdir()
    write(folder / "s.jsonl", lines)


WRITERS: dict[str, Callable[[Path, Sequence[Did]], None]] = {
    "claude_code": claude_code,
    "codex": codex,
    "codex, compressed": codex_packed,
    "gemini": gemini,
    "gemini, older": gemini_older,
    "opencode": opencode,
    "opencode, files": opencode_files,
    "copilot": copilot,
    "pi": pi,
    "goose": goose,
    "amp": amp,
    "zed": zed,
    "cline": cline,
    "cline, in the text": cline_marked,
    "vscode": vscode,
}
