"""Write src/habitus/mcp/first_answers.json: what an MCP client hears first from a home that nobody has used.

    python scripts/first_answers.py [FILE]

A server caches its first answers in its home. This asks a server with an empty home the usual first questions of every
protocol version that agents speak, and takes them from there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).resolve().parent.parent / "src/habitus/mcp/first_answers.json"
_PREFIX = "io.modelcontextprotocol/"
_ABOUT = {"name": "habitus", "version": "0"}
_CHANGES = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
_LISTS = ("tools/list", "prompts/list", "resources/list")
# From this one on a client doesn't start with `initialize`.
_LATER = "2026-07-28"


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED
    # An empty object: the servers asked here must not answer from the file before.
    before = SHIPPED.read_bytes() if SHIPPED.exists() else b"{}"
    SHIPPED.write_bytes(b"{}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for version in ("2025-06-18", "2025-11-25", _LATER):
                _ask_server(Path(folder), [*_make_requests(version)])
            (cached,) = (Path(folder) / "home" / "cache").glob("mcp-*.json")
            answers = json.loads(cached.read_text(encoding="utf-8"))["answers"]
    finally:
        SHIPPED.write_bytes(before)
    file.write_text(json.dumps(answers, ensure_ascii=False, sort_keys=True, indent=1) + "\n", encoding="utf-8")


def _make_requests(version: str) -> Iterator[dict[str, Any]]:
    """Yield a client's first requests; one without an id is a notification."""
    if version < _LATER:
        params = {"protocolVersion": version, "clientInfo": _ABOUT, "capabilities": {}}
        yield {"id": 0, "method": "initialize", "params": params}
        yield {"method": "notifications/initialized"}
        meta = {}
    else:
        about = {"protocolVersion": version, "clientInfo": _ABOUT, "clientCapabilities": {}}
        meta = {"_meta": {f"{_PREFIX}{name}": value for name, value in about.items()}}
        yield {"id": 0, "method": "server/discover", "params": meta}
        listens = {**meta, "notifications": dict.fromkeys(_CHANGES, True)}
        yield {"id": 1, "method": "subscriptions/listen", "params": listens}
    yield from ({"id": 2 + at, "method": method, "params": meta} for at, method in enumerate(_LISTS))


def _ask_server(folder: Path, requests: list[dict[str, Any]]) -> None:
    """Send the requests one by one, each after the answer to the one before."""
    command = [sys.executable, "-m", "habitus", "mcp"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "HABITUS_HOME": str(folder / "home")}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=environ, **pipes) as server:
        for request in requests:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **request}) + "\n")
            server.stdin.flush()
            if "id" in request:
                server.stdout.readline()


if __name__ == "__main__":
    main()
