"""The skill store: history, archive and counters in SQL over any backend that holds the files."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import assert_never

import sqlalchemy as sa

from habitus import sql
from habitus.errors import Invalid, NotFound, Refused, StorageFailed, no_version
from habitus.files import Tree, checked_path, is_same
from habitus.skills import names, trees
from habitus.skills.formats import frontmatter, skill_md
from habitus.skills.model import Archived, Author, Counters, Diagnostic, History, Skill, Stage, Summary, Version
from habitus.skills.stores import history, records
from habitus.skills.stores.base import (
    TOLD,
    Broken,
    Changed,
    Contents,
    Facts,
    Found,
    Shelf,
    Step,
    Write,
    Written,
    read_only,
    refuse_stale,
)
from habitus.skills.stores.ledger import Ledger, Row
from habitus.skills.stores.recording import Inspect, Intent, Recorder, pending
from habitus.skills.stores.row_index import CHUNK, KnownLayer

MakeTree = Callable[[str, Tree], Tree]  # from the folder and its files


class SkillStore:
    """The skills of one layer. Names are equal across `-`, `_` and case."""

    def __init__(
        self,
        shelf: Shelf,
        engine: sa.Engine,
        *,
        layer: str,
        key: str = "",
        only: str = "",
        clock: Callable[[], datetime],
        look_every: float = 2.0,
        inspect: Inspect = lambda tree: (),
        heard: Callable[[], Hashable] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
        completes: bool = True,
    ) -> None:
        self.layer = layer
        self.can_write = shelf.can_write
        self.shelf = self._shelf = shelf
        self._engine = engine
        self._ledger = Ledger(key or layer, layer, only)
        self._recorder = Recorder(shelf, self._ledger, clock, inspect)
        self._known = KnownLayer(
            engine,
            shelf,
            self._ledger,
            self._recorder,
            look_every=look_every,
            heard=heard,
            monotonic=monotonic,
        )
        self._clock = clock
        with sql.reading(engine) as connection:
            self._is_unfinished = bool(self._ledger.list_intents(connection))
        if completes:
            self.complete()

    def complete(self) -> None:
        """Complete the writes of a process that was killed. This writes, so no read transaction may be open."""
        if self._is_unfinished:
            with self._known.writing() as connection:
                self._recorder.recover(connection)
            self._is_unfinished = False

    # Reading

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Open one read transaction for several queries."""
        return sql.reading(self._engine)

    def is_in(self, engine: sa.Engine) -> bool:
        """Whether this database holds the store's rows."""
        return self._engine is engine

    def look(self, *, now: bool = False) -> bool:
        """Read manual edits from disk if the last check is old enough; return whether anything changed."""
        return self._known.look(now=now)

    def contents(self, *, look: bool = True) -> Contents:
        """Return the layer's contents, up to date with the database and, with `check_disk`, with manual edits."""
        return self._known.fresh(look=None if look else False).contents

    def rows(self) -> list[Row]:
        """Return the rows as last read."""
        return list(self._known.rows.values())

    def list_summaries(self) -> list[Summary]:
        """Return the summaries of the loadable skills, by name."""
        return list(self.contents().summaries.in_order())

    def list_broken(self) -> list[Broken]:
        """Return the directories that can't be loaded."""
        return list(chain.from_iterable(self.contents().broken.in_order()))

    def list_all(self) -> list[Skill]:
        """Load every skill with its body."""
        found = (self.load(summary.name) for summary in self.list_summaries())
        return [skill for skill in found if skill is not None]

    def load(self, name: str, *, look: bool = True, tree: Tree | None = None) -> Skill | None:
        """Return the skill with its body, or None; without `check_disk`, as last read and without a database query.

        `tree` holds its files, if already read.
        """
        if look:
            self._known.fresh()
            self.notice(name)
        row = self._known.index.loadable.get(names.canonical(name))
        if row is None or row.summary is None:
            return None
        if tree is not None:
            return records.with_body(row.summary, _body(trees.main_contents({row.name: tree}).get(row.name, b""), name))
        return records.with_body(row.summary, self.bodies([row.name]).get(row.name, ""))

    def notice(self, name: str) -> bool:
        """Read the skill's folder again if it was edited by hand; return whether it was."""
        row = self._known.index.loadable.get(names.canonical(name))
        if row is None or self._known.is_told_all():
            return False
        if self._shelf.is_fresh(row.folder, self._known.rows.get(row.id, row).stamp):
            return False
        return self._known.look_at([row.folder])

    def summary(self, name: str, *, look: bool = True) -> Summary | None:
        """Return the summary of a skill, or None."""
        row = (self._known.fresh() if look else self._known.index).loadable.get(names.canonical(name))
        return None if row is None else row.summary

    def is_taken(self, name: str) -> bool:
        """Whether a skill or a broken directory has this name."""
        return names.canonical(name) in self._known.fresh().taken

    def diagnostics(self, name: str) -> tuple[Diagnostic, ...]:
        """Return the diagnostics of a skill; empty if it has none."""
        return self.contents().diagnostics.get(names.canonical(name), ())

    def closest_match(self, name: str, *, cutoff: float = names.CUTOFF) -> str | None:
        """Return the loadable name closest to a misspelt one, or None."""
        return names.closest_match(name, self._known.fresh().loadable, cutoff=cutoff)

    def directory(self, name: str, *, look: bool = True) -> Path | None:
        """Return the directory of the skill's files, or None if they aren't on disk."""
        row = (self._known.fresh() if look else self._known.index).taken.get(names.canonical(name))
        return None if row is None else self._shelf.directory(row.folder)

    def bodies(self, wanted: Collection[str]) -> dict[str, str]:
        """Return the bodies of many skills at once, by name, as last read."""
        rows = {
            row.folder: row.name for name in wanted if (row := self._known.index.loadable.get(names.canonical(name)))
        }
        mains = {rows[folder]: main for folder, main in self._shelf.main_files(rows).items()}
        return {name: _body(main, name) for name, main in mains.items()}

    # Changing

    def save(self, skill: Skill, author: Author, *, expected_version: int | None = None) -> Skill:
        """Create a skill, or change the one of that name; its other files and its counters stay."""
        name = names.check_name(skill.name)
        skill = replace(skill, name=name, body=skill_md.normal_body(skill.body))
        self._write(name, lambda folder, tree: trees.with_skill(tree, skill), author, expected_version)
        saved = self.load(name, look=False)
        if saved is None:
            raise StorageFailed(f"'{name}' was saved and can't be read back.", hint="Run 'habitus skills lint'.")
        return saved

    def change(
        self, name: str, change: Callable[[Skill], Skill], author: Author, *, expected_version: int | None = None
    ) -> Written:
        """Change an existing skill; `change` receives its state under the write lock."""
        name = names.canonical(name)

        def make(folder: str, tree: Tree) -> Tree:
            skill = trees.parse(folder, tree).skill
            if skill is None:
                raise Invalid(
                    f"'{name}' is broken and can't be edited this way.", hint="Fix its file, or roll it back."
                )
            return trees.with_skill(tree, change(skill))

        return self._write(name, make, author, expected_version)

    def save_tree(
        self, name: str, tree: Tree, author: Author, *, expected_version: int | None = None, is_exact: bool = False
    ) -> Written:
        """Replace a skill's files; its tasks and cases stay unless `is_exact` is set."""
        name = names.check_name(name)
        for path in tree:
            checked_path(path)

        def make(folder: str, old: Tree) -> Tree:
            return dict(tree) if is_exact else trees.examined_as(tree, old)

        return self._write(name, make, author, expected_version)

    def save_many(
        self, wanted: Mapping[str, Tree], author: Author, *, facts: Mapping[str, Facts] | None = None
    ) -> dict[str, int]:
        """Replace the files of many skills at once; return the version of each.

        `facts` holds the versions and dates of skills that are new here.
        """
        self._refuse_if_read_only()
        checked = {names.check_name(name): tree for name, tree in wanted.items()}
        for tree in checked.values():
            for path in tree:
                checked_path(path)
        everything = list(checked)
        for start in range(0, len(everything), CHUNK):
            self._save_chunk({name: checked[name] for name in everything[start : start + CHUNK]}, author, facts or {})
        return {name: self._known.index.taken[name].version for name in checked}

    def _save_chunk(self, wanted: Mapping[str, Tree], author: Author, facts: Mapping[str, Facts]) -> None:
        with self._known.writing(durable=True) as connection:
            self._recorder.recover(connection)
            folders = {name: name for name in wanted} | self._ledger.folders_of(connection, list(wanted))
            there = self._recorder.notice(connection, list(folders.values()))
            writes: list[Write] = []
            for name, tree in wanted.items():
                found = there.get(folders[name])
                before: Tree = {} if found is None else found.tree
                tree = trees.examined_as(tree, before)
                if found is None or not is_same(before, tree):
                    writes.append(Write(folder=folders[name], tree=tree, before=before))
            own = {folders[name]: facts[name] for name in wanted if name in facts}
            intent = self._recorder.write(connection, writes, author, own) if writes else None
        if intent is not None:
            self._perform(intent, {each.folder: each.tree for each in writes})

    def tree_hashes(self) -> dict[str, str]:
        """Return the hash over all files of every loadable skill, by name."""
        return {name: row.tree_hash for name, row in self._known.fresh().loadable.items()}

    def delete(self, name: str, author: Author) -> bool:
        """Archive a skill or a broken directory; False if there is none of that name."""
        self._refuse_if_read_only()
        with self._known.writing(durable=True) as connection:
            row, _ = self._current(connection, names.canonical(name))
            if row is None:
                return False
            intent = self._recorder.remove(connection, row, author)
        self._perform(intent)
        return True

    def restore(self, archived: int, author: Author, *, new_name: str | None = None) -> str:
        """Restore an archived skill by its id, optionally under a new name; return the name."""
        self._refuse_if_read_only()
        with self._known.writing(durable=True) as connection:
            found = next((item for item, _ in self._ledger.list_archived(connection) if item.id == archived), None)
            if found is None:
                raise NotFound(f"The archive has no entry {archived}.", hint="See 'habitus skills restore --list'.")
            name = names.check_name(new_name or found.name)
            if self._current(connection, name)[0] is not None:
                raise Refused(
                    f"There is a skill '{name}' already.", hint="Give another name with --as, or remove that one first."
                )
            if new_name is not None:
                trees.refuse_clash(name, self._ledger.tree(connection, archived, found.version) or {})
            intent = self._recorder.restore(connection, archived, name, author)
        self._perform(intent)
        if new_name is not None and self.summary(name) is not None:
            self._write(name, lambda folder, tree: trees.rename_tree(tree, name), author, None)
        return name

    def set_enabled(self, name: str, enabled: bool, author: Author) -> bool:
        """Enable or disable a skill without making a version; False if there is none of that name."""
        with self._known.writing() as connection:
            row, _ = self._current(connection, names.canonical(name))
            if row is None:
                return False
            if row.enabled != enabled:
                self._ledger.enable(connection, row.id, enabled, author, self._clock())
                self._recorder.settle(connection, [row.folder])
        return True

    def rollback(self, name: str, to: int, author: Author) -> Written:
        """Make an earlier version current, as a new version."""
        wanted = self.tree(name, to)
        if wanted is None:
            raise no_version(name, to, [version.number for version in self.history(name)])
        return self._write(names.canonical(name), lambda folder, old: trees.with_kept(wanted, old), author, None)

    def return_to(
        self, timestamp: datetime, author: Author, *, dry_run: bool = False, keeps_found: bool = False
    ) -> list[Step]:
        """Return every skill to its state at a timestamp: rewritten, restored, or archived if it did not exist yet.

        `keep_found` leaves skills found on disk since then alone: they may be older than their first reading.
        """
        self._known.fresh(look=True)
        with sql.reading(self._engine) as connection:
            steps = history.steps_back(connection, self._ledger, self._known.rows, timestamp, keeps_found=keeps_found)
        for step in steps if not dry_run else ():
            match step.action:
                case "archive":
                    self.delete(step.name, author)
                case "restore":
                    self.rollback(self.restore(step.skill, author), step.version, author)
                case "rewrite":
                    self.rollback(step.name, step.version, author)
                case "enable" | "disable":
                    self.set_enabled(step.name, step.action == "enable", author)
                case never:
                    assert_never(never)
        return steps

    # History

    def history(self, name: str, *, look: bool = True) -> list[Version]:
        """Return the versions of a skill, oldest first; empty if there is no such skill."""
        row = (self._known.fresh(look=True) if look else self._known.index).taken.get(names.canonical(name))
        if row is None:
            return []
        with sql.reading(self._engine) as connection:
            return self._ledger.history(connection, row.id)

    def whole_history(self, name: str) -> History:
        """Return versions and lifecycle events of a skill, or of the most recently archived one of that name."""
        self._known.fresh(look=True)
        with sql.reading(self._engine) as connection:
            return history.whole_history(connection, self._ledger, names.canonical(name))

    def changed_in(self, change: str) -> list[Changed]:
        """Return every skill that one command touched."""
        with sql.reading(self._engine) as connection:
            return history.changed_in(connection, self._ledger.key, change)

    def tree(self, name: str, version: int | None = None, *, look: bool = True) -> Tree | None:
        """Return the files of the current or of one version, or None; files too large to store have no content."""
        row = (self._known.fresh() if look else self._known.index).taken.get(names.canonical(name))
        if row is None:
            return None
        if version is None:
            found = self._shelf.read(row.folder)
            return None if found is None else found.tree
        with sql.reading(self._engine) as connection:
            return self._ledger.tree(connection, row.id, version)

    def list_archived(self) -> list[Archived]:
        """Return the archived skills, newest first."""
        self._known.fresh(look=True)
        with sql.reading(self._engine) as connection:
            return [archived for archived, _ in self._ledger.list_archived(connection)]

    # Counters

    def increment_recommended(self, name: str, *, stage: Stage = Stage.STEPS) -> None:
        """Count that the skill was recommended."""
        self._known.count([name], stage, {"recommended": 1}, last_used=None)

    def record_use(self, *wanted: str, stage: Stage = Stage.STEPS, succeeded: bool | None = None) -> None:
        """Count one use of each skill; `succeeded` is None without feedback."""
        plus = {"used": 1}
        if succeeded is not None:
            plus["succeeded" if succeeded else "failed"] = 1
        self._known.count(wanted, stage, plus, last_used=self._clock())

    def keep_told(self, name: str, stage: Stage, counted: Counters) -> None:
        """Store the counts of another system, apart from our own."""
        numbers = {each: getattr(counted, each) for each in ("recommended", "used", "succeeded", "failed")}
        self._known.count([name], stage, numbers, last_used=counted.last_used, version=TOLD)

    def counters(self, name: str, *, version: int | None = None) -> dict[Stage, Counters]:
        """Return the counters by stage, over all versions or of one; `IMPORTED_COUNTS_VERSION` selects those of
        another system.
        """
        counted, told = self.counted_and_told(name, version=version)
        return told if version == TOLD else counted

    def counted_and_told(
        self, name: str, *, version: int | None = None
    ) -> tuple[dict[Stage, Counters], dict[Stage, Counters]]:
        """Return our own counters by stage, over all versions or of one, and those of another system."""
        return self._known.counted_and_told(name, version)

    def all_counters(
        self, *, with_told: bool = False, among: Sequence[str] | None = None
    ) -> dict[str, dict[Stage, Counters]]:
        """Return the counters by name and stage, over all versions; skills without any are left out."""
        return self._known.all_counters(with_told=with_told, among=among)

    # In one transaction with the write lock, or two

    def _current(self, connection: sa.Connection, name: str) -> tuple[Row | None, Found | None]:
        """Return the row and folder of a name, after completing pending writes and reading the folder."""
        self._recorder.recover(connection)
        folder = self._ledger.folders_of(connection, [name]).get(name, name)
        found = self._recorder.notice(connection, [folder]).get(folder)
        return self._ledger.row(connection, folder), found

    def _write(self, name: str, make: MakeTree, author: Author, expected_version: int | None) -> Written:
        """Replace a skill's files with the result of `make_tree`; equal files keep the version."""
        self._refuse_if_read_only()
        with self._known.writing(durable=True) as connection:
            row, found = self._current(connection, name)
            refuse_stale(name, 0 if row is None else row.version, expected_version)
            folder = name if row is None else row.folder
            if found is not None and found.problem is not None:
                raise Refused(str(found.problem), hint="Then repeat the change.")
            before: Tree = {} if found is None else found.tree
            after = make(folder, before)
            if row is not None and is_same(before, after):
                return Written(name=name, layer=self.layer, version=row.version, is_changed=False)
            write = Write(folder=folder, tree=after, before=before)
            intent = self._recorder.write(connection, [write], author, {})
        version = self._perform(intent, {folder: after}).get(folder)
        # Another process has completed this write, and may have changed more since.
        if version is None:
            version = max((v.number for v in self.history(name, look=False) if v.author == author), default=0)
        return Written(name=name, layer=self.layer, version=version, is_changed=True)

    def _perform(self, intent: Intent, at_hand: Mapping[str, Tree] | None = None) -> Mapping[str, int]:
        """Apply a write-ahead record, or roll it back if the disk fails; return the versions written by this call."""
        try:
            with self._known.writing() as connection:
                return self._recorder.perform(connection, intent, at_hand or {})
        except StorageFailed as error:
            try:
                with self._known.writing() as connection:
                    if not self._recorder.abandon(connection, intent):
                        # It was applied; only the confirmation was lost.
                        return {}
            # Neither applied nor rolled back: the record stays, and the next process completes it.
            except StorageFailed:
                raise pending(error, intent[1]) from error
            raise

    def _refuse_if_read_only(self) -> None:
        if not self._shelf.can_write:
            raise read_only(self.layer, hint="Edit the skill without '@' to override it.")


def _body(main: bytes, name: str) -> str:
    return frontmatter.split(main.decode("utf-8", "replace"), name).body
