"""The web page with 10,000 skills and 50 clients: list and search, beside a bare page of the same server.

The clients are a process of their own, so that memory and the processor's time are the server's alone.

Run: .venv/bin/python benchmarks/web.py [SKILLS [CLIENTS]]
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx2
import uvicorn

from habitus.app import Habitus, read_settings
from habitus.mcp.http import listening
from habitus.skills.model import Skill
from habitus.skills.trees import with_skill
from habitus.web.app import make_app
from habitus.web.desks import Desks
from habitus.web.security import keys_of

REQUESTS = 4  # of each client
PATHS = {
    "bare": "/static/icon.svg",
    "list": "/skills",
    "search": "/skills?q=reconcile+the+ledger+of+region+7",
    "api list": "/api/v1/skills?limit=100",
    "one skill": "/skills/skill-7",
}
WORDS = ("reconcile", "ledger", "region", "invoice", "export", "mail", "archive", "report", "deploy", "review", "chart")


def main() -> None:
    if sys.argv[1:2] == ["clients"]:
        asyncio.run(ask(sys.argv[2], int(sys.argv[3])))
        return
    skills, clients = (int(given) for given in (sys.argv[1:] + ["10000", "50"][len(sys.argv) - 1 :])[:2])
    with tempfile.TemporaryDirectory() as place, listening("127.0.0.1", 0) as door:
        environ = {"HOME": place, "USER": "ann", "HABITUS_DURABLE": "false"}
        settings = read_settings(Path(place) / "home", environ).model_copy(update={"cwd": Path(place)})
        with Habitus.open(settings) as habitus:
            fill(habitus, skills)
            host = f"127.0.0.1:{door.getsockname()[1]}"
            app = make_app(Desks(habitus), keys_of(settings.home), [host])
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_keep_alive=600))
            serving = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[door])))
            serving.start()
            try:
                for name, path in PATHS.items():
                    measure(name, f"http://{host}{path}", clients)
            finally:
                server.should_exit = True
                serving.join()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{skills} skills, {clients} clients; {peak:.0f} MB at most")


def fill(habitus: Habitus, count: int) -> None:
    trees = {}
    for number in range(count):
        words = " ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 3, 5))
        skill = Skill(
            name=f"skill-{number}", title=f"{words} {number}", description=f"How to {words}.", body="1. Do it."
        )
        trees[skill.name] = with_skill({}, skill)
    habitus.skills.write_trees("user", trees, habitus.person())


def measure(name: str, url: str, clients: int) -> None:
    asked = [sys.executable, __file__, "clients", url]
    subprocess.run([*asked, "1"], check=True, stdout=subprocess.DEVNULL)  # what is made once is not counted
    began = time.process_time()
    done = subprocess.run([*asked, str(clients)], check=True, capture_output=True, text=True)
    busy = time.process_time() - began
    took: list[float] = json.loads(done.stdout)
    median, p95 = statistics.median(took), statistics.quantiles(took, n=20)[18]
    each = 1000 * busy / len(took)
    print(f"{name:<10} p50 {median:7.1f} ms  p95 {p95:7.1f} ms  {each:6.1f} ms of processor each")


async def ask(url: str, clients: int) -> None:
    """All clients at once, each some requests in a row; prints how many milliseconds each request took."""
    took: list[float] = []

    async def client(http: httpx2.AsyncClient) -> None:
        for _ in range(REQUESTS):
            began = time.perf_counter()
            (await http.get(url)).raise_for_status()
            took.append(1000 * (time.perf_counter() - began))

    limits = httpx2.Limits(max_connections=clients)
    async with httpx2.AsyncClient(timeout=600, limits=limits) as http:
        await asyncio.gather(*(client(http) for _ in range(clients)))
    print(json.dumps(took))


if __name__ == "__main__":
    main()
