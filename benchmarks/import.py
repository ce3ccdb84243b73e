"""How fast skills are taken in, with and without waiting for the disk, beside the reference validator's reading.

    python benchmarks/import.py --tree DIR

Runs twice on each home: the second run finds everything unchanged. `copying` makes a directory and a file for each
skill and does nothing else: what the file system takes, which is the larger part on some. Set TMPDIR to choose one.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

from _report import Metrics, peak_mb, progress, report
from habitus.app import Habitus
from habitus.app.library.importing import open_importer
from habitus.settings import load_settings
from habitus.skills import trees
from habitus.skills.formats import detect


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, required=True, help="a directory with skills of any layout")
    args = parser.parse_args()
    habitus: Metrics = {}
    for is_durable in (False, True):
        habitus |= taken_in(args.tree, is_durable=is_durable)
    habitus["peak_mb"] = peak_mb()
    others = {"copying": by_copying(args.tree), "skills-ref": by_skills_ref(args.tree)}
    report("import", {"tree": args.tree.name}, {"habitus": habitus, **others})


def taken_in(tree: Path, *, is_durable: bool) -> Metrics:
    name = "with_fsync" if is_durable else "without_fsync"
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        environ = {"HOME": scratch, "HABITUS_DURABLE": str(is_durable).lower()}
        with Habitus.open(load_settings(environ, home)) as habitus:
            result: Metrics = {}
            for run in ("first", "second"):
                progress(f"{run} run {name}")
                started, worked = time.perf_counter(), time.process_time()
                results = list(
                    open_importer(habitus).import_entries(detect.read_entries(tree), habitus.build_author("benchmark"))
                )
                seconds, busy = time.perf_counter() - started, time.process_time() - worked
                key = f"files_per_s_{name}" if run == "first" else f"files_per_s_second_run_{name}"
                result[key] = round(len(results) / seconds)
                result[f"{key}_of_cpu"] = round(len(results) / busy)
                result[f"verdicts_{run}_{name}"] = dict(Counter(found.verdict.value for found in results))
        return result


def by_copying(tree: Path) -> Metrics:
    files = [path.read_bytes() for path in sorted(tree.rglob("*")) if path.name in trees.MAIN_FILES and path.is_file()]
    with tempfile.TemporaryDirectory() as scratch:
        started, worked = time.perf_counter(), time.process_time()
        for number, content in enumerate(files):
            aside = f"{scratch}/.{number}"
            os.mkdir(aside)  # noqa: PTH102
            handle = os.open(f"{aside}/SKILL.md", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(handle, content)
            os.close(handle)
            os.rename(aside, f"{scratch}/{number}")  # noqa: PTH104
        seconds, busy = time.perf_counter() - started, time.process_time() - worked
    return {"files_per_s": round(len(files) / seconds), "files_per_s_of_cpu": round(len(files) / busy)}


def by_skills_ref(tree: Path) -> Metrics | str:
    try:
        from skills_ref.validator import validate
    except ImportError:
        return "skipped: skills-ref is not installed"
    folders = [path.parent for path in sorted(tree.rglob("*")) if path.name in trees.MAIN_FILES and path.is_file()]
    verdicts: Counter[str] = Counter()
    started = time.perf_counter()
    for folder in folders:
        try:
            verdicts["valid" if not validate(folder) else "invalid"] += 1
        except (UnicodeDecodeError, OSError) as error:
            verdicts[f"raised {type(error).__name__}"] += 1
    return {
        "files_per_s": round(len(folders) / (time.perf_counter() - started)),
        "verdicts": dict(verdicts),
        "peak_mb": peak_mb(),
    }


if __name__ == "__main__":
    main()
