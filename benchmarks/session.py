"""What a turn costs in a real session as the library grows: statements, preparation, blocks of the event loop.

    python benchmarks/session.py [--skills 10 1000 10000] [--turns 5]

A home with made-up skills, three of them in every prompt, thirty lessons and two rules; a model that answers at once
from a script, so that all time is ours. Per size, for the later turns: SQL statements of a turn without calls and of
each call more (transactions' BEGIN not counted, learning in the background apart), milliseconds from the request to
the model's first word, of which selecting and the menu, the longest time the event loop was blocked, closing, and how
the prompt grows. Beside it the same turns in a hand-written loop, through `habitus.turn`, and what importing costs.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from _report import Metrics, peak_mb, progress, show
from habitus.agent.session import Session
from habitus.app import Habitus, read_settings
from habitus.app.library.layers import build_skill_gate_context
from habitus.llm.model import CompletionRequest
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.memory.model import LessonDraft, LessonProducer
from habitus.settings import Settings
from habitus.skills import trees
from habitus.skills.choosing import menu, selection
from habitus.skills.model import Manifest, Skill

WORDS = tuple(
    "report invoice chart deploy server test customer ticket email table query index backup schedule image "  # noqa: SIM905  # a list of thirty strings is harder to read
    "video model prompt merge branch release note budget forecast contract policy audit route cache token".split()
)
TICK_S = 0.002
Call = tuple[str, dict[str, object]]
WITH_CALLS: tuple[Call, ...] = (
    ("search_skills", {"query": "deploy the server"}),
    ("recall_skill", {"name": "skill-000001"}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    habitus: Metrics = importing()
    by_hand: Metrics = {}
    for size in args.skills:
        progress(f"{size} skills")
        with tempfile.TemporaryDirectory() as scratch:
            found = asyncio.run(measured(Path(scratch), size, max(args.turns, 3)))
            loop = hand_written(Path(scratch), max(args.turns, 3))
        habitus |= {f"{name}_{size}": value for name, value in found.items()}
        by_hand |= {f"{name}_{size}": value for name, value in loop.items()}
    habitus["peak_mb"] = peak_mb()
    show("session", args, {"habitus": habitus, "a hand-written loop": by_hand})


def importing() -> Metrics:
    """Milliseconds of the imports that a program begins with, in a process of its own, the best of five."""

    def best(line: str) -> float:
        code = f"import time; began = time.perf_counter(); {line}; print((time.perf_counter() - began) * 1000)"
        command = [sys.executable, "-c", code]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(5)]
        return round(min(map(float, runs)), 1)

    return {"import_ms": best("import habitus"), "import_class_ms": best("from habitus import Habitus")}


def settings_in(folder: Path) -> Settings:
    settings = read_settings(folder / "home", {"HOME": str(folder), "USER": "ann"})
    return settings.model_copy(update={"cwd": folder, "durable": False})


async def measured(folder: Path, size: int, turns: int) -> Metrics:
    settings = settings_in(folder)
    with Habitus.open(settings) as habitus:
        fill(habitus, size)
    with Habitus.open(settings) as habitus, counted(habitus) as counter:
        seen = Seen()
        script = [*(says("Done.") for _ in range(turns)), *_with_calls(), says("Done.")]
        session = habitus.session(ScriptedModel([seen.asked(step) for step in script]))
        plain = [await turn(session, counter, seen, f"please write the report number {n}") for n in range(turns)]
        called = await turn(session, counter, seen, "please search and load")
        began = time.perf_counter()
        before = counter.count
        await session.close()
        closing = {"close_ms": (time.perf_counter() - began) * 1000, "close_statements": counter.count - before}
    later = plain[2:]
    return {
        "statements": max(one.statements for one in later),
        "statements_per_call": round((called.statements - later[-1].statements) / 2, 1),
        "prepare_ms": round(statistics.median(one.prepare_ms for one in later), 1),
        "select_and_menu_ms": round(choosing(habitus), 1),
        "block_ms": round(max(one.block_ms for one in (*later, called)), 1),
        "first_prepare_ms": round(plain[0].prepare_ms, 1),
        "input_tokens_first": plain[0].input_tokens,
        "input_tokens_last": later[-1].input_tokens,
        **{name: round(value, 1) for name, value in closing.items()},
    }


def hand_written(folder: Path, turns: int) -> Metrics:
    """The same turns in a loop of one's own: from the request to prompt and tools in hand, and the calls."""
    with Habitus.open(settings_in(folder)) as habitus, counted(habitus) as counter:
        plain = [by_hand(habitus, counter, f"please write the report number {n}") for n in range(turns)]
        called = by_hand(habitus, counter, "please search and load", WITH_CALLS)
    later = plain[2:]
    return {
        "statements": max(one.statements for one in later),
        "statements_per_call": round((called.statements - later[-1].statements) / len(WITH_CALLS), 1),
        "prepare_ms": round(statistics.median(one.prepare_ms for one in later), 1),
        "first_prepare_ms": round(plain[0].prepare_ms, 1),
    }


@dataclass(frozen=True)
class ByHand:
    statements: int
    prepare_ms: float


def by_hand(
    habitus: Habitus, counter: Counter, text: str, made: Sequence[tuple[str, dict[str, object]]] = ()
) -> ByHand:
    before, began = counter.count, time.perf_counter()
    with habitus.turn(text, conversation="by-hand") as turn:
        assert turn.system
        assert turn.context
        assert turn.tools("anthropic")
        prepared = time.perf_counter() - began
        for name, arguments in made:
            assert turn.run(name, arguments).outcome.is_ok
        turn.done("Done.")
    return ByHand(statements=counter.count - before, prepare_ms=prepared * 1000)


def fill(habitus: Habitus, size: int) -> None:
    who = habitus.build_author("made up")
    made = {f"skill-{n:06d}": trees.update_main_file({}, skill(n)) for n in range(size)}
    for start in range(0, size, 500):
        habitus.skills.write_trees("user", dict(list(made.items())[start : start + 500]), who)
    for n in range(3):
        always = Skill(
            name=f"always-{n}",
            description="In every prompt.",
            body=" ".join(WORDS) * 30,
            manifest=Manifest(always_include=True),
        )
        habitus.skills.create(always, who)
    for n in range(32):
        kind = "always" if n < 2 else "lesson"
        text = f"The {WORDS[n % len(WORDS)]} of case {n} wants {WORDS[(n * 7) % len(WORDS)]} first."
        habitus.memory.encode(LessonDraft(text=text, kind=kind, produced_by=LessonProducer.USER, user="ann"))
    habitus.finder.search("warm")


def skill(number: int) -> Skill:
    words = [WORDS[(number * (k + 3) + k * k) % len(WORDS)] for k in range(12)]
    return Skill(
        name=f"skill-{number:06d}",
        description=f"Handles {' '.join(words)}.",
        when_to_use=f"When the {words[0]} of the {words[1]} is wanted",
        body=f"1. Open the {words[2]}.\n2. Write the {words[3]}.",
    )


@dataclass
class Seen:
    """When the model was asked, and with how much."""

    at: float = 0.0
    asks: list[CompletionRequest] = field(default_factory=list)

    def asked(self, step: Any) -> Any:
        def answer(ask: CompletionRequest) -> Any:
            if not self.at:
                self.at = time.perf_counter()
            self.asks.append(ask)
            return step

        return answer


def _with_calls() -> list[Any]:
    return [calls(name, arguments) for name, arguments in WITH_CALLS]


@dataclass(frozen=True)
class Turned:
    statements: int
    prepare_ms: float
    block_ms: float
    input_tokens: int


async def turn(session: Session, counter: Counter, seen: Seen, text: str) -> Turned:
    seen.at, before, began = 0.0, counter.count, time.perf_counter()
    watch = asyncio.create_task(longest_block())
    await asyncio.sleep(0)
    done = await session.turn(text)
    statements = counter.count - before
    watch.cancel()
    block = await watch
    await session.wait_for_learning()
    return Turned(
        statements=statements,
        prepare_ms=(seen.at - began) * 1000,
        block_ms=block * 1000,
        input_tokens=done.usage.input_tokens,
    )


async def longest_block() -> float:
    """How long the event loop was busy with one thing, until this is cancelled."""
    longest, last = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.perf_counter()
            longest, last = max(longest, now - last - TICK_S), now
    except asyncio.CancelledError:
        return longest


@dataclass
class Counter:
    count: int = 0


@contextmanager
def counted(habitus: Habitus) -> Iterator[Counter]:
    """Counts what is executed on the home's database."""
    counter = Counter()

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        counter.count += not statement.startswith(("BEGIN", "PRAGMA")) and not is_learning()

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield counter
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def is_learning() -> bool:
    """Whether what runs now goes on after the reply, in the background."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name not in (
        "credit_skills_and_lessons_of_turn",
        "credit_skills_and_lessons_of_request",
        "scan_directories_for_manual_changes",
        "learn",
    ):
        frame = frame.f_back
    return frame is not None


def choosing(habitus: Habitus) -> float:
    """Selecting among all skills and composing the menu, in milliseconds."""
    snapshot = habitus.skills.snapshot()
    request = selection.UserRequest(text="please write the report")
    gates = build_skill_gate_context(habitus.settings, habitus.get_user())
    times = []
    for _ in range(5):
        began = time.perf_counter()
        chosen = selection.select_skills(snapshot.listing, request, gates)
        menu.compose_menu(
            chosen.menu,
            menu.compute_menu_budget(habitus.settings.context_tokens, habitus.settings.menu_tokens),
            lambda: defaultdict(lambda: 1.0),
        )
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


if __name__ == "__main__":
    main()
