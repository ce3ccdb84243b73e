"""Whether a real Claude Code has a server's tools in its first request, with every core busy: ours and a bare one.

    python benchmarks/connected_agent.py --claude PROGRAM [--sessions 10] [--busy 2]

Each session is headless, in a new home, with a provider on loopback that answers "Done."; ours is connected by
`habitus connect` and, in another home, loaded as a plugin; the bare echo server of the same SDK by hand. By turns, so
that all see the same load. The program is what `npm install @anthropic-ai/claude-code` brings, of any version, or what
the wheel `claude-agent-sdk` carries.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from _report import progress, show
from mcp_server import ECHO

HABITUS = Path(sys.executable).with_name("habitus")
PLUGIN = Path(__file__).parent.parent / "plugin"
# The prefix of the tools of a server in the agent's requests.
PREFIXES = {"echo": "mcp__echo__", "habitus": "mcp__habitus__", "plugin": "mcp__plugin_habitus_habitus__"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claude", type=Path, required=True)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    version = subprocess.run([args.claude, "--version"], env=_environ(Path("/")), capture_output=True, text=True)
    present = dict.fromkeys(PREFIXES, 0)
    with ExitStack() as burning:
        for _ in range(args.busy):
            burner = burning.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            burning.callback(burner.kill)
        for number in range(args.sessions):
            progress(f"session {number + 1}: {present}")
            for name in present:
                present[name] += has_tools(args.claude, name)
    found = {name: {"sessions": args.sessions, "with_tools": count} for name, count in present.items()}
    show("connected_agent", args, {"claude": {"version": version.stdout.strip()}, **found})


def has_tools(claude: Path, name: str) -> bool:
    """Whether the first request of a session offers the server's tools to the model."""
    with tempfile.TemporaryDirectory() as folder, provider() as server:
        home = Path(folder)
        environ = _environ(home)
        command = [str(claude), "-p", "hello", "--model", "claude-sonnet-4-5"]
        if name == "plugin":
            command += ["--plugin-dir", str(PLUGIN)]
        elif name == "habitus":
            connect = [str(HABITUS), "connect", "claude-code", "--yes", "--no-hook", "all"]
            subprocess.run(connect, env=environ, check=True, capture_output=True)
        else:
            bare = {"type": "stdio", "command": sys.executable, "args": ["-P", "-c", ECHO]}
            (home / ".claude.json").write_text(json.dumps({"mcpServers": {name: bare}}))
        there = {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        subprocess.run(
            command, env={**environ, **there}, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, check=True
        )
        offered = [tool["name"] for tool in server.requests[0]["tools"]]
        return any(tool.startswith(PREFIXES[name]) for tool in offered)


def _environ(home: Path) -> dict[str, str]:
    return {"PATH": f"{HABITUS.parent}:{os.environ.get('PATH', '')}", "HOME": str(home)}


class Provider(ThreadingHTTPServer):
    daemon_threads = True
    requests: list[dict[str, Any]]


@contextmanager
def provider() -> Iterator[Provider]:
    with Provider(("127.0.0.1", 0), _Done) as server:
        server.requests = []
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


class _Done(BaseHTTPRequestHandler):
    """Says "Done." to whatever is asked."""

    server: Provider

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if body.get("tools"):
            self.server.requests.append(body)
        about = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
        usage = {"input_tokens": 1, "output_tokens": 1}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**about, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


if __name__ == "__main__":
    main()
