"""A long life of one home: what a turn costs, what it keeps, and what looking costs, as turns add up.

    python benchmarks/year.py [--turns 500 5000] [--skills 200] [--processes 3] [--judged 0.3] [--withhold 0.1]
                              [--a-day 28] [--copied-from 5000] [--keep DIR]

Several processes share a home with made-up skills and lessons. Conversations of one to four turns go through
`habitus.turn`, on a clock of their own that moves so many turns a day; two of five turns load a skill, the judged share
is judged at once or, one in ten of these, up to forty days later. Turns above `--copied-from` are earlier years of the
same home: what outlives a turn (exposures, outcomes, uses) is written again under new ids and older dates.

Per size: seconds and CPU seconds to make it; CPU milliseconds of a plain turn, of one that follows a use, and of both
in a fresh home; bytes and rows of the database for each turn so far; CPU seconds and peak memory of each look, in
a new process of installed (compiled) modules, as it is and after a judgement of a conversation forty days old.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from _report import Metrics, progress, show, used_by
from habitus.app import Habitus, read_settings
from habitus.app.operating.housekeeping import run_due_housekeeping
from habitus.journal.model import JudgementSourceKind
from session import WORDS, fill

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)
LONGEST, USING, LATE, LATEST_DAYS = 4, 0.4, 0.1, 40
# Each in a new process, which opens the home on the clock of its last turn and looks.
_OPEN = (
    # As the program begins and ends.
    "import atexit, gc, os, runpy, sys, datetime; gc.set_threshold(100_000, 50, 100); atexit.register(gc.freeze); "
    "os.environ['PYDANTIC_DISABLE_PLUGINS'] = '1'; "
    "from habitus.app import habitus as module, home, wiring; "
    "ahead = datetime.datetime.fromisoformat(os.environ['YEAR_NOW']) - home.utc_now(); clock = home.utc_now; "
    "openers = (module.Habitus.open.__func__, wiring.open_home); "
    "[opener.__kwdefaults__.update(clock=lambda: clock() + ahead) for opener in openers]; "
)
_COMMAND = _OPEN + "sys.argv = ['habitus', *sys.argv[1:]]; runpy.run_module('habitus', run_name='__main__')"
_PAGE = (
    "import asyncio; from habitus.web.app import make_web_app; from habitus.web.home_pool import HomePool; "
    "from habitus.web.security import load_sign_in_service; "
    "habitus = module.Habitus.open(); keys = load_sign_in_service(habitus); "
    "app = make_web_app(HomePool(habitus), keys, {'x'}); "
    "cookie = f'{keys.cookie}={keys.exchange_sign_in_key_for_cookie(keys.create_owner_sign_in_key())}'; "
    "scope = dict(type='http', http_version='1.1', method='GET', scheme='http', path=sys.argv[1], root_path='', "
    "raw_path=sys.argv[1].encode(), query_string=b'', client=('127.0.0.1', 1), server=('x', 80), "
    "headers=[(b'host', b'x'), (b'cookie', cookie.encode())]); sent = []; "
    "receive = lambda: asyncio.sleep(0, {'type': 'http.request', 'body': b''}); "
    "send = lambda message: asyncio.sleep(0, sent.append(message)); "
    "asyncio.run(app(scope, receive, send)); assert sent[0]['status'] == 200, sent"
)
LOOKS = {
    "imports": ["-c", "import sqlalchemy, typer, numpy"],
    "evidence": ["-c", _COMMAND, "skills", "evidence"],
    "curate": ["-c", _COMMAND, "learn", "curate"],
    "doctor": ["-c", _COMMAND, "doctor"],
    "home": ["-c", _OPEN + _PAGE, "/"],
    "insights": ["-c", _OPEN + _PAGE, "/insights"],
    "a bare page": ["-c", _OPEN + _PAGE, "/static/icon.svg"],
}
LATE_LOOKS = ("evidence", "curate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[500, 5000])
    parser.add_argument("--skills", type=int, default=200)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--judged", type=float, default=0.3)
    parser.add_argument("--withhold", type=float, default=0.1)
    parser.add_argument("--a-day", type=int, default=28)
    parser.add_argument("--copied-from", type=int, default=5000)
    parser.add_argument("--measured", type=int, default=15, help="turns of each kind whose cost is measured")
    parser.add_argument("--looks", nargs="*", default=list(LOOKS), choices=list(LOOKS))
    parser.add_argument("--keep", type=Path, help="where the home is left")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if args.worker:
        ask(Year(**json.loads(args.worker)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        place = args.keep or Path(scratch) / "home"
        found = grow(place, args)
    show("year", args, {"habitus": found})


@dataclass(frozen=True, kw_only=True)
class Year:
    """Which turns of the life a process makes."""

    home: str
    first: int
    end: int
    process: int = 0
    processes: int = 1
    judged: float = 0.0
    a_day: int = 28


class Clock:
    """Tells the time of the turn that is being made."""

    def __init__(self, a_day: int) -> None:
        self.a_day, self.turn, self._began = a_day, 0, time.monotonic()

    def __call__(self) -> datetime:
        passed = timedelta(seconds=(time.monotonic() - self._began) % 60)
        return BEGAN + timedelta(days=self.turn / self.a_day) + passed


def opened(home: str, clock: Clock) -> Habitus:
    settings = read_settings(Path(home), {"HOME": home, "USER": "ann"})
    return Habitus.open(settings.model_copy(update={"cwd": Path(home), "durable": False}), clock=clock)


def grow(place: Path, args: argparse.Namespace) -> Metrics:
    fresh = place.parent / f"{place.name}-fresh"
    for home in (place, fresh):
        home.mkdir(parents=True)
        (home / "habitus.toml").write_text(f"[evidence]\nwithhold = {args.withhold}\n")
        with opened(str(home), Clock(args.a_day)) as habitus:
            fill(habitus, args.skills)
    before, bytes_before = 0, size_of(place)
    found = {f"fresh_{name}": value for name, value in cost_of_turns(fresh, 1, args, "m").items()}
    looks(fresh, BEGAN, args.looks, "")  # compiles what they import
    for size in args.turns:
        began, cpu_before = time.monotonic(), used_by_processes()
        asked = max(before, min(size, args.copied_from))
        year = Year(home=str(place), first=before, end=asked, processes=args.processes, judged=args.judged)
        in_processes(replace(year, a_day=args.a_day))
        made, cpu = time.monotonic() - began, used_by_processes() - cpu_before
        at = BEGAN + timedelta(days=(asked + 1) / args.a_day)
        if size > asked:
            add_earlier_years(place, asked / args.a_day, (size - asked) / args.a_day)
            look(["-c", _COMMAND, "doctor", "--fix"], place, at)  # counts the uses again
        with opened(str(place), clock := Clock(args.a_day)) as habitus:
            clock.turn = asked
            run_due_housekeeping(habitus)
        progress(f"{size} turns after {made:.0f} s")
        own: Metrics = {
            "made_s": round(made, 1),
            "made_cpu_s": round(cpu, 1),
            "kb_per_turn": round((size_of(place) - bytes_before) / size / 1024, 2),
        }
        own |= {f"rows_per_turn_{name}": round(count / size, 2) for name, count in rows_of(place).items()}
        late = [name for name in args.looks if name in LATE_LOOKS]
        # The first one builds the sums that later looks extend.
        own |= looks(place, at, late[:1], "_first")
        own |= looks(place, at + timedelta(hours=1), args.looks, "")
        late_judgement(place, asked, args)
        own |= looks(place, at + timedelta(hours=2), late, "_after_late_judgement")
        own |= cost_of_turns(place, asked, args, f"m{size}")
        found |= {f"{name}_{size}": value for name, value in own.items()}
        before = asked
    shutil.rmtree(fresh)
    return found


def used_by_processes() -> float:
    """CPU seconds of the processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_processes(year: Year) -> None:
    command = [sys.executable, __file__, "--worker"]
    each = [json.dumps(vars(replace(year, process=number))) for number in range(year.processes)]
    started = [subprocess.Popen([*command, one]) for one in each]
    ended = [process.wait() for process in started]
    if any(ended):
        raise SystemExit("a process of the year failed")


def ask(year: Year) -> None:
    """Make every so-manieth conversation of the year."""
    clock, chance = Clock(year.a_day), random.Random(year.first * 64 + year.process)
    skills: list[str] = []
    past: list[tuple[datetime, str]] = []
    with opened(year.home, clock) as habitus:
        skills = sorted(one.name for one in habitus.skills.list_skills() if one.name.startswith("skill-"))
        number = year.first + year.process * LONGEST
        while number < year.end:
            for turn in range(number, min(number + chance.randint(1, LONGEST), year.end)):
                clock.turn = turn
                done = one_turn(habitus, chance, skills, f"c{year.process}-{number}")
                if chance.random() < year.judged:
                    due = clock() + timedelta(days=chance.uniform(1, LATEST_DAYS) if chance.random() < LATE else 0)
                    past.append((due, done))
                for due, judged in [one for one in past if one[0] <= clock()]:
                    past.remove((due, judged))
                    habitus.outcome(judged, ok=chance.random() < 0.8, by="user", source_kind=JudgementSourceKind.PERSON)
            # The mean conversation has that many turns, and every number stands for one turn of the year.
            number += year.processes * (LONGEST + 1) // 2


def one_turn(habitus: Habitus, chance: random.Random, skills: Sequence[str], conversation: str) -> str:
    words = chance.sample(WORDS, 3)
    with habitus.turn(
        f"please handle the {words[0]} of the {words[1]}, then the {words[2]}", conversation=conversation
    ) as turn:
        assert turn.context is not None
        if chance.random() < USING:
            # Few skills are used often, most are hardly used.
            turn.run("recall_skill", {"name": skills[int(len(skills) * chance.random() ** 3)]})
        turn.done("It is done.")
        return turn.id


# What outlives a turn: columns that name a turn or conversation, and those with a time.
_LASTING = {
    "exposures": (("unit", "turn"), ("at",)),
    "menu_exposures": (("unit", "turn"), ("at",)),
    "lasting_outcomes": (("unit", "turn"), ("began_on", "at")),
    "uses": (("id", "turn"), ("at",)),
}


def add_earlier_years(place: Path, days: float, more: float) -> None:
    """Write what outlives the turns of these days again as that of `more` days before them."""
    with closing(sqlite3.connect(place / "habitus.db")) as raw:
        for table, (names, times) in _LASTING.items():
            columns = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
            kept = raw.execute(f"SELECT * FROM {table} WHERE {times[0]} >= ?", (BEGAN.isoformat(),)).fetchall()
            rows = [dict(zip(columns, row, strict=True)) for row in kept]
            for number in range(1, math.ceil(more / days) + 1):
                first, shift = BEGAN - timedelta(days=more), timedelta(days=days * number)
                older = [
                    row
                    | {name: f"{row[name]}-{number}" for name in names}
                    | {name: (datetime.fromisoformat(row[name]) - shift).isoformat() for name in times}
                    for row in rows
                    if datetime.fromisoformat(row[times[0]]) - shift >= first
                ]
                raw.executemany(
                    f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})",
                    (tuple(row[name] for name in columns) for row in older),
                )
        # The count of sums that were deleted stays.
        raw.execute("DELETE FROM evidence_sums WHERE sums IS NOT NULL")
        raw.commit()


def looks(place: Path, at: datetime, names: Sequence[str], suffix: str) -> Metrics:
    found: Metrics = {}
    for number, name in enumerate(names):
        # Time goes on, or a later look would not find what an earlier one kept.
        cpu, peak = look(LOOKS[name], place, at + timedelta(minutes=number))
        found |= {f"{name}{suffix}_cpu_s": cpu, f"{name}{suffix}_mb": peak}
    return found


def look(words: Sequence[str], place: Path, at: datetime) -> tuple[float, float]:
    """CPU seconds and the peak of memory in MB of a process that opens the home at this time."""
    environ = os.environ | {"HOME": str(place), "USER": "ann", "HABITUS_HOME": str(place), "HABITUS_DURABLE": "false"}
    return used_by([sys.executable, *words], environ | {"YEAR_NOW": at.isoformat()}, place)


def late_judgement(place: Path, size: int, args: argparse.Namespace) -> None:
    """Judge the conversation that began forty days ago, or the first one."""
    with opened(str(place), clock := Clock(args.a_day)) as habitus:
        clock.turn = size
        before = clock() - timedelta(days=LATEST_DAYS)
        kept = habitus.journal.load_scored_exposures()
        chosen = max((one for one in kept if one.at <= before), default=kept[0], key=lambda one: one.at)
        habitus.outcome(chosen.turn, ok=False, by="user", source_kind=JudgementSourceKind.PERSON)


def cost_of_turns(place: Path, size: int, args: argparse.Namespace, prefix: str) -> Metrics:
    """CPU milliseconds of turns in one process: plain ones, and ones that follow a use and its judgement."""
    chance = random.Random(size)
    took: dict[str, list[float]] = {"plain": [], "after_use": []}
    with opened(str(place), clock := Clock(args.a_day)) as habitus:
        clock.turn = size
        skills = sorted(one.name for one in habitus.skills.list_skills() if one.name.startswith("skill-"))
        for number in range(-3, args.measured):
            for kind in took:
                clock.turn += 1
                if kind == "after_use":
                    with habitus.turn(f"please load {number}", conversation=f"{prefix}-u{number}") as turn:
                        turn.run("recall_skill", {"name": chance.choice(skills)})
                        turn.done("It is done.", ok=True)
                began = time.process_time()
                with habitus.turn(
                    f"please handle the report {number}", conversation=f"{prefix}-{kind}{number}"
                ) as turn:
                    assert turn.context is not None
                    turn.done("It is done.")
                if number >= 0:
                    took[kind].append((time.process_time() - began) * 1000)
    return {f"{kind}_turn_cpu_ms": round(statistics.median(times), 1) for kind, times in took.items()}


def size_of(place: Path) -> int:
    with closing(sqlite3.connect(place / "habitus.db")) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return (place / "habitus.db").stat().st_size


def rows_of(place: Path) -> dict[str, int]:
    """How many rows the largest tables have."""
    with closing(sqlite3.connect(place / "habitus.db")) as raw:
        names = [row[0] for row in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        counts = {name: raw.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}
    return dict(sorted(counts.items(), key=lambda one: -one[1])[:10])


if __name__ == "__main__":
    main()
