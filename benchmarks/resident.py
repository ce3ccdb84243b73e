"""Memory of what stays up: the web server, an MCP server on a pipe and the hook daemon over many mixed requests.

    python benchmarks/resident.py [--only up mcp hooks] [--requests 20000] [--skills 200] [--every 1000]

Each is a process of its own with a home of its own, asked one request after the other. `up`: pages, REST, searches, and
one change of a skill in 20 requests; `mcp`: recalls, searches, listings, outcomes, and one change in 40; `hooks`:
sessions of ten events, a new one after each. Megabytes resident after every so many requests, with the processes it
started; `growth` is the largest after the first 1,000, divided by that after the first 1,000.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from _report import Metrics, progress, show
from hooks import residents, timed, used_ms, warm_up
from mcp_server import environment, greeted
from session import WORDS

PAGES = ("/", "/skills", "/insights", "/lessons", "/inbox", "/activity", "/settings", "/automation")
READS = ("skills?limit=50", "lessons", "insights", "doctor", "overview", "sessions", "evidence")
HABITUS = str(Path(sys.executable).with_name("habitus"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(SERVERS), choices=list(SERVERS))
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--skills", type=int, default=200)
    parser.add_argument("--every", type=int, default=1000)
    args = parser.parse_args()
    systems = {}
    for name in args.only:
        with tempfile.TemporaryDirectory() as scratch:
            environ = environment(Path(scratch), args.skills)
            with SERVERS[name](environ, args.skills) as (pid, ask):
                systems[name] = lasting(name, pid, ask, args.requests, args.every)
    show("resident", args, systems)


def lasting(name: str, pid: int, ask: Callable[[int], None], requests: int, every: int) -> Metrics:
    found: Metrics = {}
    for number in range(1, requests + 1):
        ask(number)
        if number % every == 0:
            found[f"mb_after_{number}"] = round(memory_mb(pid), 1)
            progress(f"{name}: {found[f'mb_after_{number}']} MB after {number}")
    sizes = [float(size) for size in found.values()]
    return found | {"growth": round(max(sizes) / sizes[0], 3), "cpu_s": round(used_ms(pid) / 1000, 1)}


@contextmanager
def web_server(environ: dict[str, str], skills: int) -> Iterator[tuple[int, Callable[[int], None]]]:
    command = [HABITUS, "up", "--port", "0"]
    with subprocess.Popen(command, env=environ, cwd=environ["HOME"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = [process.stdout.readline().strip() for _ in range(3)]
            (token,) = re.findall(r"Bearer \w+", said[2])
            address = said[0].rpartition(" ")[2]
            with httpx2.Client(base_url=address, headers={"Authorization": token}, timeout=300) as http:
                yield process.pid, lambda number: ask_web_server(http, number, skills)
        finally:
            process.send_signal(signal.SIGTERM)


def ask_web_server(http: httpx2.Client, number: int, skills: int) -> None:
    chance = random.Random(number)
    name = f"skill-{chance.randrange(skills):06d}"
    if number % 20 == 0:
        version = http.get(f"/api/v1/skills/{name}").raise_for_status().headers["ETag"]
        changed = {"description": f"Handles {query(number)}."}
        http.patch(f"/api/v1/skills/{name}", json=changed, headers={"If-Match": version}).raise_for_status()
    elif number % 4 == 0:
        http.get("/api/v1/search", params={"q": query(number)}).raise_for_status()
    elif number % 2 == 0:
        path = chance.choice([f"skills/{name}", f"skills/{name}/history", *READS])
        http.get(f"/api/v1/{path}").raise_for_status()
    else:
        http.get(chance.choice([f"/skills/{name}", f"/skills?q={query(number)}", *PAGES])).raise_for_status()


@contextmanager
def mcp_server(environ: dict[str, str], skills: int) -> Iterator[tuple[int, Callable[[int], None]]]:
    with greeted([HABITUS, "mcp"], environ) as server:

        def ask(number: int) -> None:
            name = f"skill-{random.Random(number).randrange(skills):06d}"
            if number % 40 == 0:
                server.call(
                    "update_skill",
                    name=name,
                    operation="replace",
                    content="1. Do it.",
                    description=f"Handles {query(number)}.",
                )
            elif number % 10 == 0:
                server.call("report_outcome", ok=number % 30 != 0, reason="it was checked")
            elif number % 10 == 1:
                server.ask(("tools/list", "resources/list", "prompts/list")[number // 10 % 3])
            elif number % 10 == 2:
                server.ask("resources/read", uri=f"skill://{name}/SKILL.md")
            elif number % 10 == 3:
                server.call("list_lessons")
            elif number % 2:
                server.call("search_skills", query=query(number))
            else:
                server.call("recall_skill", name=name)

        yield server.process.pid, ask


@contextmanager
def hook_daemon(environ: dict[str, str], skills: int) -> Iterator[tuple[int, Callable[[int], None]]]:
    home, place = Path(environ["HABITUS_HOME"]), Path(environ["HOME"])
    os.chdir(home)  # the address of the socket has little room
    timed(home, place, "SessionStart", source="startup")
    warm_up(home, place)
    (pid,) = residents(home)
    try:
        yield pid, lambda number: send_event(place, number)
    finally:
        os.kill(pid, signal.SIGTERM)
        os.chdir("/")


def send_event(place: Path, number: int) -> None:
    """Send an event as a hook does; each session has ten."""
    session, step = divmod(number, 10)
    given: dict[str, Any] = {"session_id": f"s{session}", "cwd": str(place)}
    if step == 0:
        event, given["source"] = "SessionStart", "startup"
    elif step == 9:
        event, given["transcript_path"] = "SessionEnd", str(place / "t.jsonl")
    elif step in (3, 6):
        event = "PostToolUseFailure"
        given |= {"tool_name": "Bash", "tool_input": {"command": f"run {query(number)}"}, "error": "Exit code 1\nno"}
    elif step in (5, 8):
        event, given["transcript_path"] = "Stop", str(place / "t.jsonl")
    else:
        event, given["prompt"] = "UserPromptSubmit", f"{query(number)}, please, number {number}"
    with socket.socket(socket.AF_UNIX) as line:
        line.connect("hooks.socket")
        line.settimeout(60)
        line.sendall(f"{event}\n".encode() + json.dumps(given | {"hook_event_name": event}).encode())
        line.shutdown(socket.SHUT_WR)
        while line.recv(1 << 16):
            pass


def query(number: int) -> str:
    return f"write the {WORDS[number % len(WORDS)]} for the {WORDS[(number * 7 + number // 40) % len(WORDS)]}"


def memory_mb(pid: int) -> float:
    """Of a process and those it started, with what they share counted for each."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    children = (Path("/proc") / str(pid) / "task" / str(pid) / "children").read_text().split()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024 + sum(memory_mb(int(child)) for child in children)


SERVERS = {"up": web_server, "mcp": mcp_server, "hooks": hook_daemon}


if __name__ == "__main__":
    main()
