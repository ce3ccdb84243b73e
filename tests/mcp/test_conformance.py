"""The official conformance suite of the base protocol against our server over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from habitus.app import Habitus
from habitus.files import build_tree_file
from habitus.mcp import server_options
from habitus.mcp.http import HOST, make_guarded_app, open_listening_socket
from habitus.mcp.server import LazyHome
from habitus.skills import trees
from habitus.skills.model import Skill
from tests import npm
from tests.mcp.test_tools import made, with_code

TOKEN = "t"
CELL = "for n in range(4):\n    progress(f'step {n}')"
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}},
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
# The suite's names for things of which ours have names of their own.
OURS = {
    "test://static-text": "skill://fixtures/text.txt",
    "test://static-binary": "skill://fixtures/blob.bin",
    "test://template/123/data": "skill://fixtures/123.txt",
    "test_simple_prompt": "review",
    'prompt","name":"test_prompt_with_arguments"},"argument":{"name":"arg1"': (
        'prompt","name":"improve_skill"},"argument":{"name":"name"'
    ),
    '"test_tool_with_progress","arguments":{}': (
        f'"scratchpad","arguments":{json.dumps({"action": "exec", "code": CELL})}'
    ),
}
TEXT_ONLY = "our tools and prompts are text, and JSON beside it"
NO_QUESTIONS = "our tools ask the client for nothing: what needs a person waits in the review"
NOT_APPLICABLE = {
    "tools-call-image": TEXT_ONLY,
    "tools-call-audio": TEXT_ONLY,
    "tools-call-embedded-resource": TEXT_ONLY,
    "tools-call-mixed-content": TEXT_ONLY,
    "prompts-get-embedded-resource": TEXT_ONLY,
    "prompts-get-with-image": TEXT_ONLY,
    "prompts-get-with-args": "no prompt of ours takes two arguments",
    "tools-call-with-logging": "a call is logged in one line, and the fixture wants three",
    "tools-call-sampling": NO_QUESTIONS,
    "tools-call-elicitation": NO_QUESTIONS,
    "elicitation-sep1034-defaults": NO_QUESTIONS,
    "elicitation-sep1330-enums": NO_QUESTIONS,
    "server-sse-polling": "no tool of ours closes its stream while it works; the suite itself has it pending",
}


def furnish(habitus: Habitus) -> None:
    steps = Skill(name="fixtures", description="Files for the suite", body="1. Read them.")
    files = {
        "text.txt": build_tree_file(b"This is the content of the static text resource."),
        "blob.bin": build_tree_file(b"\x89PNG\x00\xff"),
        "123.txt": build_tree_file(b'{"id": "123"}'),
    }
    habitus.skills.write_trees(
        "user", {"fixtures": {**trees.update_main_file({}, steps), **files}}, habitus.build_author()
    )
    plain: dict[str, Any] = {"parameters": {"type": "object", "properties": {}}, "cases": [{"payload": {}}]}
    code = {
        "test-simple-text": b"print('This is a simple text response for testing.')\n",
        "test-error-handling": b"raise SystemExit('This tool intentionally returns an error for testing')\n",
        "json-schema-2020-12-tool": b"print('Hello.')\n",
    }
    written = {name: with_code(name, **plain) for name in code}
    written["json-schema-2020-12-tool"] = with_code(
        "json-schema-2020-12-tool", parameters=SCHEMA, cases=[{"payload": {}}]
    )
    made(habitus, {name: {**tree, trees.TOOL_CODE: build_tree_file(code[name])} for name, tree in written.items()})


class InItsWords:
    """Lets the suite in, which has no token, and puts our names in the place of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, asked: Scope, receive: Receive, send: Send) -> None:
        if asked["type"] != "http":
            await self._app(asked, receive, send)
            return
        message = await receive()
        whole = message.get("body", b"")
        while message.get("more_body"):
            message = await receive()
            whole += message.get("body", b"")
        text = whole.decode()
        for theirs, ours in OURS.items():
            text = text.replace(theirs, ours)
        given: list[Message] = [{**message, "body": text.encode()}]
        length = str(len(text.encode())).encode()
        headers = [(name, length if name == b"content-length" else value) for name, value in asked["headers"]]
        headers.append((b"authorization", f"Bearer {TOKEN}".encode()))

        async def again() -> Message:
            return given.pop() if given else await receive()

        await self._app({**asked, "headers": headers}, again, send)


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[str]:
    wide = server_options.McpServerOptions(home=home, profile="all")
    behind = LazyHome(wide)
    with open_listening_socket(HOST, 0) as door:
        port = door.getsockname()[1]
        app = InItsWords(make_guarded_app(behind, [f"{HOST}:{port}", f"localhost:{port}"], wide, TOKEN))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
        running = asyncio.create_task(server.serve(sockets=[door]))
        try:
            yield f"http://{HOST}:{port}/mcp"
        finally:
            server.should_exit = True
            await running
            await behind.close()


@pytest.mark.full
@pytest.mark.req("CL-05")
async def test_the_official_suite_finds_nothing_but_what_does_not_apply(
    place: Path, habitus: Habitus, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("suite")
    programs = npm.install(folder, npm.NODE, "@modelcontextprotocol/conformance@0.1.16")
    furnish(habitus)
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    async with serving(place) as url:
        command = ("server", "--url", url, "--suite", "all", "--output-dir", str(folder / "results"))
        quiet = asyncio.subprocess.PIPE
        done = await asyncio.create_subprocess_exec(
            programs / "conformance", *command, env=environ, stdout=quiet, stderr=quiet
        )
        await done.communicate()
    found: dict[str, str] = {}
    for file in (folder / "results").glob("server-*/checks.json"):
        name = file.parent.name.removeprefix("server-").partition("-2026")[0]
        bad = [check for check in json.loads(file.read_text()) if check["status"] == "FAILURE"]
        found[name] = "; ".join(check.get("errorMessage", "failed") for check in bad)
        if name == "tools-call-simple-text":
            (check,) = json.loads(file.read_text())
            assert "simple text response" in json.dumps(check["details"])  # the fixture's, and no error's
    failed = {name: why for name, why in found.items() if why}
    assert len(found) >= 30, found
    assert failed.keys() == NOT_APPLICABLE.keys(), failed
