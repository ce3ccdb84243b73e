"""CPU seconds of commands on real skills: the command and everything it starts, each in a new process.

    python benchmarks/commands.py --corpus retrieval/skillroute/corpus.jsonl.gz [--sizes 8 10000] [--keep DIR]
                                  [--only list show] [--repeat 3]

The library is built by `skills import` from the corpus: names, descriptions and bodies as people published them, the
bodies as far as the set has them; sizes beyond the corpus are filled up with skills recombined from its paragraphs.
`list_after_edit` is a list after one SKILL.md was changed in its folder; `_mb` is the peak of memory of a command.
`--keep` leaves the home where it is, for the next run to use; the import is then
not measured again. `alone` has no resident process running; `beside_a_resident` has one with its index open, and
counts what that process uses meanwhile. `on_top` is `alone` less `python -c 'import sqlalchemy, typer'`, which is
measured again before every command: the goals are for that difference.
The figure is the least of `--repeat` runs: a busy machine makes a process slower, never faster.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from _report import Metrics, progress, read_jsonl, show, used_by
from hooks import residents, timed, used_ms, warm_up
from index_size import recombined

REQUEST = "review the changes in a pull request for security problems"
_OPEN = "from habitus import Habitus; habitus = Habitus.open(); habitus.skills.list_skills()"
BASE = [sys.executable, "-c", "import sqlalchemy, typer"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 10_000])
    parser.add_argument("--keep", type=Path, help="where homes are left for the next run")
    parser.add_argument("--only", nargs="*", help="these commands alone")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    corpus = read_jsonl(args.corpus)
    systems: dict[str, Metrics] = {"base": {}, "alone": {}, "on_top": {}, "beside_a_resident": {}}
    for size in args.sizes:
        with tempfile.TemporaryDirectory() as scratch:
            home = Home(args.keep / str(size) if args.keep else Path(scratch))
            built = {} if home.is_built else home.build(recombined(corpus, size - len(corpus)))
            commands = {name: words for name, words in commands_of(home).items() if name in (args.only or name)}
            bases, alone = home.measured(commands, args.repeat)
            with home.resident():
                _, beside = home.measured(commands, args.repeat)
            on_top = {name: round(value - bases[name], 3) for name, value in alone.items()}
            found = {"base": bases, "alone": built | alone, "on_top": on_top, "beside_a_resident": beside}
            for system, metrics in found.items():
                systems[system] |= {f"{name}_{size}": value for name, value in metrics.items()}
    show("commands", args, systems)


def commands_of(home: Home) -> Mapping[str, Sequence[str]]:
    name = sorted(path.name for path in (home.place / "tree").iterdir())[0]
    habitus = [str(Path(sys.executable).with_name("habitus")), "--home", str(home.path)]
    return {
        "version": [habitus[0], "--version"],
        "help": [habitus[0], "--help"],
        "list": [*habitus, "skills", "list"],
        "show": [*habitus, "skills", "show", name],
        "open_and_list": [sys.executable, "-c", _OPEN],
        "list_after_edit": [*habitus, "skills", "list"],
        "search": [*habitus, "skills", "search", REQUEST],
        "lint": [*habitus, "skills", "lint"],
        "import_again": [*habitus, "skills", "import", str(home.place / "tree")],
    }


class Home:
    """A home below `place`, beside the tree of skills that it was imported from."""

    def __init__(self, place: Path) -> None:
        self.place, self.path, self.peak_mb = place, place / "home", 0.0

    @property
    def is_built(self) -> bool:
        return (self.place / "built").exists()

    def build(self, corpus: Sequence[Mapping[str, str]]) -> Metrics:
        """The seconds of the first import and of the first search of all."""
        shutil.rmtree(self.place, ignore_errors=True)
        write_tree(self.place / "tree", corpus)
        habitus = [str(Path(sys.executable).with_name("habitus")), "--home", str(self.path), "skills"]
        found = {}
        for name, words in {
            "import": ("import", str(self.place / "tree")),
            "search_first": ("search", REQUEST),
        }.items():
            progress(f"{len(corpus)} skills: {name}")
            found[name] = self.seconds([*habitus, *words])
            found[f"{name}_mb"] = self.peak_mb
        (self.place / "built").touch()
        return found

    def measured(self, commands: Mapping[str, Sequence[str]], repeat: int) -> tuple[Metrics, Metrics]:
        """The seconds of the base before each command, and of the command."""
        bases: Metrics = {}
        found: Metrics = {}
        for name, words in commands.items():
            progress(f"{self.place.name} skills: {name}")
            times = 1 if name == "lint" else repeat
            bases[name] = min(self.seconds(BASE) for _ in range(times))
            took = []
            for _ in range(times):
                if name == "list_after_edit":
                    self.edit_one_skill()
                took.append(self.seconds(words))
            found |= {name: min(took), f"{name}_mb": self.peak_mb}
        return bases, found

    def edit_one_skill(self) -> None:
        page = sorted((self.path / "skills").glob("*/SKILL.md"))[7]
        page.write_text(page.read_text(encoding="utf-8") + "\nOnce more.\n", encoding="utf-8")

    def seconds(self, words: Sequence[str]) -> float:
        """Of the process, of what it waited for, and of what answers in the background."""
        before = self._background()
        environ = {**os.environ, "HABITUS_HOME": str(self.path)}
        took, self.peak_mb = used_by(words, environ, self.place, may_fail=True)
        return round(took + self._background() - before, 3)

    def _background(self) -> float:
        return sum(used_ms(pid) for pid in residents(self.path)) / 1000

    @contextmanager
    def resident(self) -> Iterator[None]:
        """The process that hooks start is there, its index open."""
        timed(self.path, self.place, "SessionStart", source="startup")
        try:
            warm_up(self.path, self.place)
            yield
        finally:
            for pid in residents(self.path):
                os.kill(pid, signal.SIGTERM)


def write_tree(root: Path, corpus: Sequence[Mapping[str, str]]) -> None:
    """A directory for each; where two people chose one name, the later one gets its id behind it."""
    for skill in corpus:
        name = re.sub(r"[^a-z0-9]+", "-", skill["name"].lower())[:50].strip("-") or skill["id"]
        name = f"{name}-{skill['id']}" if (root / name).exists() else name
        (root / name).mkdir(parents=True)
        head = f"name: {name}\ndescription: {json.dumps(skill['description'], ensure_ascii=False)}"
        (root / name / "SKILL.md").write_text(f"---\n{head}\n---\n{skill['body']}", encoding="utf-8")


if __name__ == "__main__":
    main()
