"""A process that does one thing to a home and is killed at the Nth step of it.

Every change of a file and every SQL statement that writes, begins or ends a transaction counts as a step, seen from
outside, so no step needs to be declared by the code under test. Run as
`python -m tests.journeys.crash HOME OPERATION N`; N = 0 runs to the end and prints how many steps there were.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.files import build_tree_file
from habitus.skills.formats import skill_md
from habitus.skills.model import ActorKind, Author, Skill
from habitus.skills.stores.files import DirectoryBackend
from habitus.skills.stores.versioned import SkillStore
from tests.contracts.stores import count

ME = Author(actor=ActorKind.USER, name="ada")
OLD = Skill(name="report", description="Writes the report.", body="old steps")
BIG = {
    "chunks.md": build_tree_file(b"## one\n"),
    "scripts/tool.py": build_tree_file(b"print(1)\n"),
    "references/notes.md": build_tree_file(b"notes " * 500),
}


def open_store(home: Path) -> SkillStore:
    engine = sql.open_engine_with_current_schema(sql.build_sqlite_url(home / "habitus.db"))
    shelf = DirectoryBackend(home / "skills", home / "archive")
    return SkillStore(shelf, engine, layer="user", clock=lambda: datetime.now(UTC), check_interval=0)


def prepare(home: Path) -> None:
    """Two skills, one with several files, an archived one, and a bystander."""
    store = open_store(home)
    store.save(OLD, ME)
    store.save(replace(OLD, body="new steps"), ME)
    count(store, "report", used=1)
    store.save(replace(OLD, name="with-files"), ME)
    tree = store.read_tree("with-files")
    assert tree is not None
    store.save_tree("with-files", {**tree, **BIG}, ME)
    store.save(replace(OLD, name="gone"), ME)
    store.delete("gone", ME)
    store.save(replace(OLD, name="bystander"), ME)


def _edit_by_hand(store: SkillStore) -> None:
    directory = store.find_directory("report")
    assert directory is not None
    path = directory / "SKILL.md"
    aside = directory.parent.parent / "editor.tmp"
    aside.write_bytes(path.read_bytes().replace(b"new steps", b"hand-made steps"))
    aside.rename(path)
    store.list_summaries()


def _replace_files(store: SkillStore) -> None:
    tree = dict(store.read_tree("with-files") or {})
    del tree["references/notes.md"]
    changed = {"chunks.md": build_tree_file(b"## two\n"), "assets/new.bin": build_tree_file(b"\0" * 5000)}
    store.save_tree("with-files", {**tree, **changed}, ME)


def _save_many(store: SkillStore) -> None:
    many = {
        f"many-{n}": {"SKILL.md": build_tree_file(skill_md.render_skill_md(replace(OLD, name=f"many-{n}")))}
        for n in range(4)
    }
    changed = {"SKILL.md": build_tree_file(skill_md.render_skill_md(replace(OLD, body="newest"))), **BIG}
    store.save_trees({**many, "report": changed}, ME)


OPERATIONS: dict[str, Callable[[SkillStore], object]] = {
    "create": lambda store: store.save(replace(OLD, name="brand-new"), ME),
    "edit": lambda store: store.save(replace(OLD, body="newer steps"), ME),
    "replace_home_entries_with_staged_ones": _replace_files,
    "save_many": _save_many,
    "delete": lambda store: store.delete("with-files", ME),
    "restore": lambda store: store.restore(store.list_archived()[0].id, ME),
    "restore_as": lambda store: store.restore(store.list_archived()[0].id, ME, new_name="returned"),
    "rollback": lambda store: store.rollback("with-files", 1, ME),
    "disable": lambda store: store.set_enabled("report", False, ME),
    "count": lambda store: count(store, "report", used=1, succeeded=1),
    "edit_by_hand": _edit_by_hand,
    "return_to": lambda store: store.restore_state_at(store.list_versions("report")[0].made_on, ME),
}

_SEEN = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "shutil.rmtree"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Killer:
    """Counts the steps and kills this process at the chosen one."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.steps = 0
        self.is_on = False

    def step(self) -> None:
        if self.is_on:
            self.steps += 1
            if self.steps == self.at:
                os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        sys.addaudithook(self._audit)
        sa.event.listen(sa.Engine, "before_cursor_execute", self._statement)
        sa.event.listen(sa.Engine, "commit", lambda connection: self.step())

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _SEEN or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING):
            self.step()

    def _statement(self, connection: object, cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith(("SELECT", "PRAGMA")):
            self.step()


def main(home: Path, operation: str, at: int) -> None:
    killer = Killer(at)
    killer.watch()
    store = open_store(home)
    store.list_summaries()
    killer.is_on = True
    OPERATIONS[operation](store)
    killer.is_on = False
    sys.stdout.write(f"{killer.steps}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
