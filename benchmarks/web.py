"""The web page and REST under load, on SQLite and on PostgreSQL in one run: processor a request, and a mixed minute.

The clients are a process of their own, so that memory and the processor's time are the server's alone; what
PostgreSQL takes for itself is in the requests a second. In the mix, 40 % search and 10 % write.

Run: .venv/bin/python benchmarks/web.py [SKILLS [CLIENTS [SECONDS]]]
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import httpx2
import uvicorn

from habitus.app import Habitus, read_settings
from habitus.mcp.http import open_listening_socket
from habitus.skills.model import Skill
from habitus.skills.trees import update_main_file
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from scale_out import postgresql

SIZES = ("2000", "50", "60")  # skills, clients, seconds of the mix
REQUESTS = 4  # of each client
PATHS = {
    "a bare file": "/static/icon.svg",
    "a list page of 50": "/skills",
    "REST, a list of 50": "/api/v1/skills?limit=50",
    "one skill": "/skills/skill-7",
    "REST, one skill": "/api/v1/skills/skill-7",
    "search": "/skills?q=reconcile+the+ledger+of+region+7",
    "REST, search": "/api/v1/search?q=reconcile+the+ledger+of+region+7",
}
READS = ("/skills", "/api/v1/skills?limit=50", "/skills/skill-{}", "/api/v1/skills/skill-{}")
SEARCH = "/api/v1/search?q=reconcile+the+ledger+of+region+{}"
WORDS = ("reconcile", "ledger", "region", "invoice", "export", "mail", "archive", "report", "deploy", "review", "chart")


def main() -> None:
    if sys.argv[1:2] == ["clients"]:
        asyncio.run(ask(sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5])))
        return
    if "OPENBLAS_NUM_THREADS" not in os.environ:  # as `habitus up` begins
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    gc.set_threshold(100_000, 50, 100)
    given = sys.argv[1:4]
    skills, clients, seconds = map(int, (*given, *SIZES[len(given) :]))
    rates: list[float] = []
    for kind in ("sqlite", "postgresql"):
        print(f"{kind}: {skills} skills, {clients} clients")
        with (
            tempfile.TemporaryDirectory() as place,
            database(kind, Path(place)) as url,
            serving(place, url, skills) as at,
        ):
            bare = 0.0
            for name, path in PATHS.items():
                bare = measure(name, (*at, path), clients, bare)
            alone, _ = mixed("reads alone", (*at, "reads"), clients, seconds / 2)
            p95, rate = mixed("the mix", (*at, "mix"), clients, seconds)
            rates.append(rate)
            print(f"  p95 of reads in the mix: {p95 / alone:.1f} × reads alone")
    print(f"postgresql answers {rates[1] / rates[0]:.2f} × as many requests a second as sqlite")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{peak:.0f} MB at most")


def database(kind: str, place: Path) -> AbstractContextManager[str]:
    return postgresql("", place) if kind == "postgresql" else nullcontext("")


@contextmanager
def serving(place: str, url: str, skills: int) -> Iterator[tuple[str, str]]:
    """The address of a server with so many skills, and its token."""
    environ = {"HOME": place, "USER": "ann", "HABITUS_DURABLE": "false"} | ({"HABITUS_DATABASE": url} if url else {})
    settings = read_settings(Path(place) / "home", environ).model_copy(update={"cwd": Path(place)})
    with open_listening_socket("127.0.0.1", 0) as door, Habitus.open(settings.for_server()) as habitus:
        fill(habitus, skills)
        host = f"127.0.0.1:{door.getsockname()[1]}"
        desks, keys = HomePool(habitus), load_sign_in_service(habitus)
        config = uvicorn.Config(
            make_web_app(desks, keys, [host]), log_level="warning", lifespan="off", timeout_keep_alive=600
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[door])))
        thread.start()
        try:
            yield f"http://{host}", keys.owner_token
        finally:
            server.should_exit = True
            thread.join()
            desks.close()


def fill(habitus: Habitus, count: int) -> None:
    trees = {}
    for number in range(count):
        words = " ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 3, 5))
        skill = Skill(
            name=f"skill-{number}", title=f"{words} {number}", description=f"How to {words}.", body="1. Do it."
        )
        trees[skill.name] = update_main_file({}, skill)
    habitus.skills.write_trees("user", trees, habitus.build_author())


def measure(name: str, what: tuple[str, str, str], clients: int, bare: float) -> float:
    """The processor's time for a request, in ms, beside that of the bare file."""
    run(what, 1, 0)  # what is made once is not counted
    began = time.process_time()
    took = run(what, clients, 0)[0]["read"]
    each = 1000 * (time.process_time() - began) / len(took)
    times = f"{each / bare:.1f} ×" if bare else "1 ×"
    print(f"  {name:<20} {each:6.1f} ms of processor each, {times:>6}; p95 {p95_of(took):7.1f} ms")
    return bare or each


def mixed(name: str, what: tuple[str, str, str], clients: int, seconds: float) -> tuple[float, float]:
    """The p95 of reads in ms, and requests a second."""
    took, seconds = run(what, clients, seconds)
    count = sum(map(len, took.values()))
    each = ", ".join(f"{kind} p95 {p95_of(some):.0f} ms" for kind, some in took.items() if len(some) > 1)
    print(f"  {name:<12} {count / seconds:6.1f} requests a second, {len(took['error'])} errors; {each}")
    return p95_of(took["read"]), count / seconds


def p95_of(took: list[float]) -> float:
    return statistics.quantiles(took, n=20)[18]


def run(what: tuple[str, str, str], clients: int, seconds: float) -> tuple[dict[str, list[float]], float]:
    """How many milliseconds each request took, by what it was, and how many seconds all of them together."""
    asked = [sys.executable, __file__, "clients", *what[:2], f"{clients} {what[2]}", str(seconds)]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    took, lasted = json.loads(done.stdout)
    return took, lasted


async def ask(url: str, token: str, what: str, seconds: float) -> None:
    """All clients at once; prints what `run` returns."""
    took: dict[str, list[float]] = {"read": [], "search": [], "write": [], "error": []}
    count, _, asked = what.partition(" ")
    began_all = time.monotonic()
    until = began_all + seconds
    chance = random.Random(7)

    async def send(http: httpx2.AsyncClient, kind: str, path: str, **sent: object) -> None:
        began = time.perf_counter()
        answer = await http.request("POST" if sent else "GET", f"{url}{path}", **sent)  # type: ignore[arg-type]
        took[kind if answer.status_code < 400 else "error"].append(1000 * (time.perf_counter() - began))

    async def client(http: httpx2.AsyncClient, me: int) -> None:
        for number in range(REQUESTS if not seconds else 10**9):
            drawn, some = chance.random(), chance.randrange(1000)
            if seconds and time.monotonic() > until:
                return
            if not seconds:
                await send(http, "read", asked)
            elif asked == "mix" and drawn < 0.1:
                text = f"Region {me} closes its ledger number {number} on day {some}."
                await send(http, "write", "/api/v1/lessons", json={"text": text})
            elif asked == "mix" and drawn < 0.5:
                await send(http, "search", SEARCH.format(some))
            else:
                await send(http, "read", chance.choice(READS).format(some))

    limits = httpx2.Limits(max_connections=int(count))
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(timeout=600, limits=limits, headers=headers) as http:
        await asyncio.gather(*(client(http, me) for me in range(int(count))))
    print(json.dumps([took, time.monotonic() - began_all]))


if __name__ == "__main__":
    main()
