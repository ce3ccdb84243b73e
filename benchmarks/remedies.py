"""How well remedies are found in planted transcripts, and how fast transcripts are read.

    python benchmarks/remedies.py [--plants 8] [--megabytes 200] [--seed 1]

Commands of small projects are run for real, in a sandbox, and written down as sessions of another agent; what is
learned from each project's sessions is held against what was planted. Kinds that were written after the miner was
frozen are reported apart, and so are those of `data/failures_*.txt`, which were only written down. Beside the speed
stand `wc` on the same files, and `habitus check` on them and sixty skills.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import _planted
import _planted_late
from _failures import FAMILIES, read_kinds, score_remedies
from _planted import Maker, Plant, World
from _report import progress, show
from habitus.learning.remedies import wording
from habitus.learning.remedies.findings import RemedyFindings, collect_remedy_findings
from habitus.learning.remedies.session_facts import FailuresAndCorrectionsCollector, SessionFailuresAndCorrections
from habitus.learning.transcripts import read_pieces
from habitus.sandbox.machine import probe_machine

SKILLS = 60
_WORDS = ("value", "data", "file", "path", "config", "import", "return", "test", "build", "list", "result", "line")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plants", type=int, default=8, help="projects of each kind")
    parser.add_argument("--megabytes", type=int, default=200, help="of transcripts, for the speed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="say on standard error what was wrong and what was missed")
    options = parser.parse_args()
    systems: dict[str, object] = {}
    systems["habitus"] = _quality((*_planted.KINDS, *_planted.DECOYS), options)
    systems["habitus, late kinds"] = _quality(_planted_late.LATE, options)
    for family in FAMILIES:
        found = score_remedies(read_kinds(family))
        systems[f"habitus, {family} kinds by hand"] = {
            "kinds": found.kinds,
            "precision": found.precision,
            "recall": found.recall,
            "wrong": found.wrong,
            "missed": found.missed,
        }
    if options.megabytes:
        systems["speed"] = _speed(options.megabytes)
    show("remedies", options, systems)


def _quality(makers: Sequence[Maker], options: argparse.Namespace) -> dict[str, object]:
    rng = random.Random(options.seed)
    bubblewrap = probe_machine().bubblewrap
    tally: dict[str, Counter[str]] = defaultdict(Counter)
    for maker in makers:
        for _ in range(options.plants):
            plant = maker(rng)
            with tempfile.TemporaryDirectory() as folder:
                world = World(Path(folder), bubblewrap)
                world.furnish(plant)
                files = [_written(world, steps, number) for number, steps in enumerate(plant.sessions)]
                _score(
                    plant,
                    collect_remedy_findings(_facts(file) for file in files),
                    tally[plant.kind],
                    len(files),
                    options.show,
                )
        progress(f"{plant.kind}: {dict(tally[plant.kind])}")
    planted = [counts for counts in tally.values() if counts["planted"]]
    total = sum(tally.values(), Counter())
    return {
        "transcripts": total["transcripts"],
        "precision": _share(total["right"], total["right"] + total["wrong"]),
        "recall": _share(total["right plants"], total["planted"]),
        "lowest_recall_of_a_kind": min(_share(counts["right plants"], counts["planted"]) for counts in planted),
        "kinds": {
            kind: {
                "precision": _share(counts["right"], counts["right"] + counts["wrong"]),
                "recall": _share(counts["right plants"], counts["planted"]),
            }
            for kind, counts in tally.items()
            if counts["planted"]
        },
        "lessons_from_decoys": {kind: counts["wrong"] for kind, counts in tally.items() if not counts["planted"]},
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 3) if whole else 1.0


def _score(plant: Plant, found: RemedyFindings, tally: Counter[str], files: int, is_shown: bool) -> None:
    texts = [wording.describe_remedy_lesson(held) for held in found.lessons]
    right = [text for text in texts if plant.says and all(part in text for part in plant.says)]
    tally["transcripts"] += files
    tally["planted"] += not plant.is_decoy
    tally["right plants"] += bool(right)
    tally["right"] += len(right)
    tally["wrong"] += len(texts) - len(right)
    if is_shown:
        for text in texts:
            if text not in right:
                progress(f"  wrong: {text}")
        if plant.says and not right:
            known = [wording.describe_remedy_lesson(held) for held in found.candidates]
            progress(f"  missed: {plant.says} candidates: {known}")


def _written(world: World, steps: Iterable[tuple[str, object]], number: int) -> Path:
    """The session as Claude Code writes it."""
    path = world.folder / f"session-{number}.jsonl"
    project = str(world.folder / "shop")
    with path.open("w", encoding="utf-8") as file:

        def put(at: int, **row: object) -> None:
            time = f"2026-05-{number + 1:02}T10:{at // 60:02}:{at % 60:02}Z"
            file.write(json.dumps({"sessionId": str(number), "cwd": project, "timestamp": time, **row}) + "\n")

        put(0, type="user", message={"role": "user", "content": "please go on with the shop"})
        for at, (tool, args, code, said) in enumerate(world.ran(list(steps)), 1):
            if tool == "say":
                put(at * 8, type="user", message={"role": "user", "content": args["words"]})
                continue
            used = {"type": "tool_use", "id": f"t{at}", "name": tool, "input": args}
            put(at * 8, type="assistant", message={"id": f"m{at}", "content": [used]})
            text = f"Exit code {code}\n{said}" if code and tool == "Bash" and "!" not in said[:1] else said
            came: dict[str, object] = {"type": "tool_result", "tool_use_id": f"t{at}", "content": text}
            put(
                at * 8 + 5,
                type="user",
                message={"role": "user", "content": [came | ({"is_error": True} if code else {})]},
            )
    return path


def _facts(path: Path) -> SessionFailuresAndCorrections:
    reader: FailuresAndCorrectionsCollector | None = None
    for piece in read_pieces(path):
        reader = reader or FailuresAndCorrectionsCollector(session=piece.id, project=piece.project, file=path.name)
        for turn in piece.turns:
            reader.add_turn(turn)
    assert reader is not None
    return reader.build_facts()


def _speed(megabytes: int) -> dict[str, object]:
    """The same planted lines over and over, among outputs of the lengths that real ones have."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        files = _bulk(home / ".claude" / "projects" / "shop", megabytes * 1_000_000)
        began = time.perf_counter(), time.process_time()
        found = collect_remedy_findings([_facts(file) for file in files])
        wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
        began_wc = time.perf_counter()
        subprocess.run(["wc", *map(str, files)], check=True, capture_output=True)
        return {
            "megabytes": megabytes,
            "files": len(files),
            "calls": found.coverage.calls,
            "seconds": round(wall, 2),
            "cpu_seconds": round(cpu, 2),
            "wc_seconds": round(time.perf_counter() - began_wc, 2),
            **_check(home),
        }


def _check(home: Path) -> dict[str, float]:
    """The command as a process, with sixty skills beside the transcripts."""
    for number in range(SKILLS):
        skill = home / ".claude" / "skills" / f"skill-{number}" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        topic = f"{_WORDS[number % len(_WORDS)]} {_WORDS[number * 5 % len(_WORDS)]} {number}"
        skill.write_text(
            f"---\nname: skill-{number}\ndescription: How to handle {topic}. Use when asked about {topic}.\n---\n"
            + f"1. Look at the {topic}.\n2. Fix it.\n" * 20,
            encoding="utf-8",
        )
    environ = os.environ | {"HOME": str(home), "HABITUS_HOME": str(home / "habitus")}
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "habitus", "check"], check=True, capture_output=True, env=environ, cwd=home)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "check_seconds": round(time.perf_counter() - began, 2),
        "check_cpu_seconds": round(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, 2),
    }


def _bulk(folder: Path, size: int) -> list[Path]:
    rng = random.Random(2)
    folder.mkdir(parents=True)
    outputs = [" ".join(rng.choices(_WORDS, k=rng.choice((20, 60, 200, 800, 3000)))) for _ in range(200)]
    files: list[Path] = []
    written = 0
    while written < size:
        files.append(folder / f"{len(files)}.jsonl")
        with files[-1].open("w", encoding="utf-8") as file:
            for turn in range(8):
                file.write(
                    json.dumps({"type": "user", "cwd": "/srv/shop", "message": {"role": "user", "content": outputs[0]}})
                    + "\n"
                )
                for call in range(12):
                    file.write("".join(json.dumps(row) + "\n" for row in _bulk_call(rng, f"{turn}-{call}", outputs)))
        written += files[-1].stat().st_size
    return files


def _bulk_call(rng: random.Random, id: str, outputs: Sequence[str]) -> list[dict[str, object]]:
    command = rng.choice(
        ("pytest -q", "uv run pytest -q", "git status", "sed -n 1,80p src/app.py", "npm test", "ls -la")
    )
    used = {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command, "description": "go on"}}
    has_failed = command == "pytest -q"
    said = "Exit code 127\nbash: line 1: pytest: command not found" if has_failed else rng.choice(outputs)
    came = {"type": "tool_result", "tool_use_id": id, "content": said, "is_error": has_failed}
    at = "2026-05-01T10:00:00Z"
    return [
        {"type": "assistant", "timestamp": at, "cwd": "/srv/shop", "message": {"id": id, "content": [used]}},
        {
            "type": "user",
            "timestamp": at,
            "message": {"role": "user", "content": [came]},
            "toolUseResult": said if has_failed else {"stdout": said, "stderr": "", "interrupted": False},
        },
    ]


if __name__ == "__main__":
    main()
