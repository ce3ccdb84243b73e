"""What the MCP server costs as the library grows, beside a bare echo server of the same SDK.

    python benchmarks/mcp_server.py [--skills 10 10000] [--starts 5] [--calls 30] [--long 0]

A home with made-up skills; a client that writes JSON lines to a pipe, so that all time is the server's. Per size: from
starting the process to the answer to `initialize` (median; wall clock and processor) and to `tools/list`, memory after
`tools/list` and after the first search, and the median of a call of `recall_skill` and `search_skills`, each another
one. With `--long N`, the memory of one connection at every eighth of N such calls, and of a bare server.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _report import Metrics, progress, show
from habitus.app import Habitus, read_settings
from session import WORDS, fill

ECHO = """
import asyncio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}

async def tools(ctx, params):
    return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema=TEXT)])

async def call(ctx, params):
    return types.CallToolResult(content=[types.TextContent(type="text", text=params.arguments["text"])])

async def main():
    server = Server("echo", on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

asyncio.run(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", type=int, nargs="+", default=[10, 10_000])
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--long", type=int, default=0)
    args = parser.parse_args()
    echo = [sys.executable, "-P", "-c", ECHO]
    ours = [str(Path(sys.executable).with_name("habitus")), "mcp"]
    texts = [f"text {number}" for number in range(args.calls)]
    systems: dict[str, Metrics] = {"echo": {}, "habitus": {}}
    for size in args.skills:
        progress(f"{size} skills")
        with tempfile.TemporaryDirectory() as scratch:
            furnished = environment(Path(scratch), size)
            # Alternating, so that a machine that is busy for a while is busy for both.
            starts = [(started(echo, furnished), started(ours, furnished)) for _ in range(args.starts)]
            systems["echo"][f"echo_ms_{size}"] = round(echoed(echo, furnished, texts), 2)
            used = in_use(ours, furnished, size, args.calls)
            if args.long:
                calls = [("recall_skill", {"name": f"skill-{n % size:06d}"}) for n in range(args.long)]
                calls[::2] = [("search_skills", {"query": _query(n)}) for n in range(len(calls[::2]))]
                systems["habitus"] |= lasting(ours, furnished, calls, size)
                systems["echo"] |= lasting(echo, furnished, [("echo", {"text": "x"})] * args.long, size)
        for system, of_one in zip(("echo", "habitus"), zip(*starts, strict=True), strict=True):
            wall, processor, tools = (statistics.median(each) for each in zip(*of_one, strict=True))
            systems[system] |= {f"initialize_ms_{size}": round(wall), f"initialize_cpu_ms_{size}": round(processor)}
            systems[system][f"tools_list_ms_{size}"] = round(tools)
        systems["habitus"] |= {f"{name}_{size}": value for name, value in used.items()}
    show("mcp_server", args, systems)


def environment(folder: Path, size: int) -> dict[str, str]:
    environ = {"HOME": str(folder), "USER": "ann"}
    settings = read_settings(folder / "home", environ).model_copy(update={"cwd": folder, "durable": False})
    with Habitus.open(settings) as habitus:
        fill(habitus, size)
    return {"PATH": os.environ.get("PATH", ""), "HABITUS_HOME": str(folder / "home"), **environ}


class Server:
    """A server on a pipe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._last = 0

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request; what the server says unasked is passed over."""
        self._last += 1
        self.tell(method, id=self._last, params=params)
        while True:
            assert self.process.stdout is not None
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self._last:
                return answer["result"]

    def tell(self, method: str, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **more}).encode() + b"\n")
        self.process.stdin.flush()

    def call(self, tool: str, **arguments: Any) -> float:
        """Milliseconds that a call takes, which must succeed."""
        began = time.perf_counter()
        result = self.ask("tools/call", name=tool, arguments=arguments)
        assert not result.get("isError"), result
        return (time.perf_counter() - began) * 1000

    def memory_mb(self) -> float:
        told = subprocess.run(["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, check=True)
        return round(int(told.stdout) / 1024, 1)


@contextmanager
def greeted(command: Sequence[str], environ: dict[str, str]) -> Iterator[Server]:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environ, cwd=environ["HOME"], **pipes) as process:
        server = Server(process)
        client = {"name": "benchmark", "version": "1"}
        server.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        server.tell("notifications/initialized")
        yield server  # leaving closes its standard input


def lasting(
    command: Sequence[str], environ: dict[str, str], calls: Sequence[tuple[str, dict[str, Any]]], size: int
) -> Metrics:
    """Megabytes of a server after as many calls in one connection."""
    found: Metrics = {}
    with greeted(command, environ) as server:
        server.ask("tools/list")
        for number, (tool, given) in enumerate(calls, start=1):
            server.call(tool, **given)
            if number % max(1, len(calls) // 8) == 0:
                found[f"memory_mb_after_{number}_calls_{size}"] = server.memory_mb()
    return found


def started(command: Sequence[str], environ: dict[str, str]) -> tuple[float, float, float]:
    """Milliseconds of wall clock and of processor until it has answered the greeting, and until it lists its tools."""
    began = time.perf_counter()
    with greeted(command, environ) as server:
        wall = (time.perf_counter() - began) * 1000
        processor = _processor_ms(server)
        server.ask("tools/list")
        return wall, processor, (time.perf_counter() - began) * 1000


def _processor_ms(server: Server) -> float:
    ticks = Path(f"/proc/{server.process.pid}/stat")
    if not ticks.exists():
        used = subprocess.run(["ps", "-o", "cputimes=", "-p", str(server.process.pid)], capture_output=True, check=True)
        return float(used.stdout) * 1000
    user, system = ticks.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * 1000 / os.sysconf("SC_CLK_TCK")


def echoed(command: Sequence[str], environ: dict[str, str], texts: Sequence[str]) -> float:
    with greeted(command, environ) as server:
        server.ask("tools/list")
        return statistics.median(server.call("echo", text=text) for text in texts)


def in_use(command: Sequence[str], environ: dict[str, str], size: int, calls: int) -> Metrics:
    with greeted(command, environ) as server:
        tools = server.ask("tools/list")["tools"]
        before = server.memory_mb()
        first_search = server.call("search_skills", query="deploy the server")
        recalls = [server.call("recall_skill", name=f"skill-{n % size:06d}") for n in range(calls)]
        searches = [server.call("search_skills", query=_query(n)) for n in range(calls)]
        return {
            "tools": len(tools),
            "tools_tokens": len(json.dumps(tools)) // 4,
            "memory_before_search_mb": before,
            "memory_after_mb": server.memory_mb(),
            "first_search_ms": round(first_search),
            "recall_ms": round(statistics.median(recalls), 2),
            "search_ms": round(statistics.median(searches), 2),
        }


def _query(number: int) -> str:
    return f"write the {WORDS[number % len(WORDS)]} for the {WORDS[(number * 7 + 3) % len(WORDS)]}"


if __name__ == "__main__":
    main()
