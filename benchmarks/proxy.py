"""What a call of a skill's command line costs through the proxy, beside the same file started in the same scratchpad.

    python benchmarks/proxy.py [--calls 60]

A cell of a session does both in turns, so that whatever else the machine does hits both alike. The proxied call has all
of it: the command, the socket, every gate, its own sandbox, redaction and the log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path

from _report import peak_memory_mb, report
from habitus.agent.stream import ToolFinished
from habitus.app import Habitus, read_settings
from habitus.app.use_cases import writing
from habitus.llm.scripted import ScriptedModel, calls, says

CELL = """
import json, os, subprocess, sys, time

script = os.environ["GIVEN"] + "/skills/greeter/scripts/cli.py"

def started(*command):
    return subprocess.run([*command, "greet", "you"], capture_output=True, text=True).stdout

ways = {
    "direct": lambda: started(sys.executable, script),
    "command": lambda: started("habitus-skill", "greeter"),
    "service": lambda: skills.run("greeter", "greet", "you").stdout,
}
said = {name: call() for name, call in ways.items()}
assert len(set(said.values())) == 1, said
took = {name: [] for name in ways}
for _ in range(CALLS):
    for name, call in ways.items():
        began = time.perf_counter()
        call()
        took[name].append(time.perf_counter() - began)
    progress()
print(json.dumps(took))
"""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=60, help="how often each way is taken")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        took = await _measured(Path(folder), options.calls)
    direct = statistics.median(took["direct"])
    systems: dict[str, dict[str, object] | str] = {"started directly": _spread(took["direct"])}
    for name, label in (("command", "habitus-skill"), ("service", "skills.run")):
        systems[label] = {
            **_spread(took[name]),
            "to_direct": round(statistics.median(took[name]) / direct, 3),
            "peak_memory_mb": peak_memory_mb(),
        }
    report("proxy", sys.argv[1:], systems)


async def _measured(folder: Path, count: int) -> dict[str, list[float]]:
    with Habitus.open(read_settings(folder / "home", {"HOME": str(folder), "USER": "bench"})) as habitus:
        writing.create_skill(habitus, writing.CreateSkillRequest(name="greeter", cli=True))
        cell = {
            "action": "exec",
            "code": CELL.replace("CALLS", str(count)),
            "estimated_execution_time_seconds": max(60, count),
        }
        script = [calls("recall_skill", {"name": "greeter"}), calls("scratchpad", cell), says("done")]
        async with habitus.session(ScriptedModel(script)) as session:
            seen = [event.content async for event in session.turn_stream("go") if isinstance(event, ToolFinished)]
    said = seen[-1].splitlines()[0]
    if not said.startswith("{"):
        raise SystemExit(f"The cell did not measure: {seen[-1]}")
    took: dict[str, list[float]] = json.loads(said)
    return took


def _spread(seconds: list[float]) -> dict[str, object]:
    return {"median_ms": round(statistics.median(seconds) * 1000, 2), "best_ms": round(min(seconds) * 1000, 2)}


if __name__ == "__main__":
    asyncio.run(main())
