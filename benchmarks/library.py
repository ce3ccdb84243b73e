"""How the skill library scales: listing, loading, editing with history, reading files, counting from many processes.

    python benchmarks/library.py [--sizes 100 1000 10000] [--commands 10 1000 10000] [--tree DIR]
                                 [--processes 4] [--increments 250]

Commands run as processes of their own; their figures are CPU seconds, which a busy machine changes less than time.
Without --tree the files to read are made up. Each size runs on a home of its own; times are medians in milliseconds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from _report import Metrics, peak_mb, progress, report
from habitus import sql
from habitus.skills import trees
from habitus.skills.formats import skill_md
from habitus.skills.model import ActorKind, Author, Skill, Stage
from habitus.skills.stores.files import DirectoryBackend
from habitus.skills.stores.usage_cache import UsageCache
from habitus.skills.stores.versioned import SkillStore
from habitus.use_counts import UsageCountKey, UsageCounts

ME = Author(actor=ActorKind.USER, name="bench")
BODY = "\n".join(f"{number}. Look at part {number} and decide whether it needs work." for number in range(1, 31))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--tree", type=Path, help="a directory with SKILL.md files anywhere below it")
    parser.add_argument("--commands", type=int, nargs="*", default=[10, 1000, 10_000], help="sizes for commands")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--increments", type=int, default=250)
    args = parser.parse_args()
    metrics: Metrics = {}
    for size in args.sizes:
        progress(f"library of {size}")
        metrics |= {f"{name}_{size}": value for name, value in library_of(size).items()}
    metrics |= counting(args.processes, args.increments)
    metrics["help_ms"] = help_ms()
    for size in args.commands:
        progress(f"commands on {size} skills")
        metrics |= {f"{name}_{size}_cpu_s": value for name, value in commands_on(size).items()}
    with tempfile.TemporaryDirectory() as scratch:
        files = list(skill_files(args.tree or made_up(Path(scratch), 3000)))
        systems: dict[str, Metrics | str] = {
            "habitus": metrics | reading("habitus", files, by_habitus),
            "skills-ref": reading("skills-ref", files, by_skills_ref),
        }
    shown = {"sizes": args.sizes, "tree": args.tree.name if args.tree else "made up", "files": len(files)}
    report("library", shown | {"processes": args.processes, "increments": args.increments}, systems)


def library_of(size: int) -> Metrics:
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        made_up(home / "skills", size)
        time.sleep(0.1)  # files younger than that are looked at twice
        store = open_store(home)
        first = timed(store.list_summaries)
        store = open_store(home)
        cold = timed(store.list_summaries)
        warm = median(store.list_summaries, 20)
        fresh = median(lambda: store.refresh_from_disk(force=True), 7)
        name = f"skill-{size // 2:05d}"
        load = median(lambda: store.load(name), 50)
        edit = median(counted(lambda number: store.save(skill(size // 2, f"{BODY}\n{number}"), ME)), 10)
        return {
            "first_listing_ms": first,
            "list_cold_ms": cold,
            "list_warm_ms": warm,
            "list_after_look_ms": fresh,
            "load_ms": load,
            "edit_ms": edit,
        }


def counting(processes: int, increments: int) -> Metrics:
    progress(f"{processes} processes count {increments} times each")
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        made_up(home / "skills", 1)
        open_store(home).list_summaries()
        workers = [multiprocessing.Process(target=count, args=(home, increments)) for _ in range(processes)]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - started
        found = UsageCache(open_store(home).engine).read_use_counts(["user"])["user", "skill-00000"][Stage.STEPS].used
        return {
            "increments_wanted": processes * increments,
            "increments_found": found,
            "increments_per_s": round(found / seconds),
        }


def count(home: Path, increments: int) -> None:
    usage, key = (
        UsageCache(open_store(home).engine),
        UsageCountKey(layer="user", item="skill-00000", version=1, stage="steps"),
    )
    for _ in range(increments):
        usage.add_usage_counts({key: UsageCounts(used=1)})


def reading(system: str, files: list[Path], read: Callable[[Path], str]) -> Metrics:
    progress(f"{system} reads {len(files)} files")
    verdicts: Counter[str] = Counter()
    started = time.perf_counter()
    for path in files:
        verdicts[read(path)] += 1
    seconds = time.perf_counter() - started
    return {"files_per_s": round(len(files) / seconds), "verdicts": dict(verdicts), "peak_mb": peak_mb()}


def by_habitus(path: Path) -> str:
    parsed = skill_md.parse_skill_md_with_diagnostics(path.parent.name, path.read_bytes(), file=path.name)
    if parsed.skill is None:
        return "broken"
    return "clean" if not parsed.diagnostics else "with diagnostics"


def by_skills_ref(path: Path) -> str:
    from skills_ref.validator import validate

    try:
        return "valid" if not validate(path.parent) else "invalid"
    except (UnicodeDecodeError, OSError) as error:
        return f"raised {type(error).__name__}"


def help_ms() -> float:
    command = [str(Path(sys.executable).with_name("habitus")), "--help"]
    return median(lambda: subprocess.run(command, check=True, capture_output=True), 5)


def commands_on(size: int) -> Metrics:
    """CPU seconds of each command as a new process, on a home that was looked at and indexed before."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        made_up(home / "skills", size)
        run_command(home, "skills", "search", "case 3 comes up")
        commands = {
            "list": ("skills", "list"),
            "show": ("skills", "show", "skill-00003"),
            "search": ("skills", "search", "case 3 comes up"),
            "doctor": ("doctor",),
            "lint": ("skills", "lint"),
            "export": ("skills", "export", "--all", "--to", str(Path(scratch) / "exported")),
        }
        return {name: run_command(home, *words) for name, words in commands.items()}


def run_command(home: Path, *words: str) -> float:
    command = [str(Path(sys.executable).with_name("habitus")), "--home", str(home), *words]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=False, capture_output=True, cwd=home)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


def skill(number: int, body: str = BODY) -> Skill:
    return Skill(
        name=f"skill-{number:05d}",
        title=f"Skill {number}",
        description=f"Handles case {number} of the many cases there are.",
        when_to_use=f"case {number} comes up",
        tags=("bench", f"group-{number % 10}"),
        body=body,
    )


def made_up(root: Path, size: int) -> Path:
    for number in range(size):
        folder = root / f"skill-{number:05d}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_bytes(skill_md.render_skill_md(replace(skill(number), body=BODY)))
    return root


def skill_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.name in trees.MAIN_FILES and path.is_file():
            yield path


def open_store(home: Path) -> SkillStore:
    engine = sql.open_engine_with_current_schema(sql.build_sqlite_url(home / "habitus.db"))
    shelf = DirectoryBackend(home / "skills", home / "archive")
    return SkillStore(shelf, engine, layer="user", clock=lambda: datetime.now(UTC))


def timed(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return round((time.perf_counter() - started) * 1000, 3)


def median(action: Callable[[], Any], times: int) -> float:
    return round(statistics.median(timed(action) for _ in range(times)), 3)


def counted(action: Callable[[int], Any]) -> Callable[[], Any]:
    numbers: Iterable[int] = iter(range(1_000_000))
    return lambda: action(next(iter(numbers)))


if __name__ == "__main__":
    main()
