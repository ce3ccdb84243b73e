"""A skill store with history, archive and counters over any shelf: the files lie on the shelf, the rest in SQL."""

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
    """The skills of one layer. Names compare equal across `-`, `_` and case."""

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
        """Complete what a killed process had begun before this was opened. It writes, so no reader may be open."""
        if self._is_unfinished:
            with self._known.writing() as connection:
                self._recorder.recover(connection)
            self._is_unfinished = False

    # Reading

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """One transaction for all that is asked of it inside."""
        return sql.reading(self._engine)

    def is_in(self, engine: sa.Engine) -> bool:
        """Whether that database knows its skills."""
        return self._engine is engine

    def look(self, *, now: bool = False) -> bool:
        """Notice what changed by hand, if the last look was a while ago; whether anything had."""
        return self._known.look(now=now)

    def contents(self, *, look: bool = True) -> Contents:
        """Everything at once, up to date with the database; with a look, with what changed by hand as well."""
        return self._known.fresh(look=None if look else False).contents

    def rows(self) -> list[Row]:
        """The rows, as they were last seen."""
        return list(self._known.rows.values())

    def list_summaries(self) -> list[Summary]:
        return list(self.contents().summaries.in_order())

    def list_broken(self) -> list[Broken]:
        return list(chain.from_iterable(self.contents().broken.in_order()))

    def list_all(self) -> list[Skill]:
        found = (self.load(summary.name) for summary in self.list_summaries())
        return [skill for skill in found if skill is not None]

    def load(self, name: str, *, look: bool = True, tree: Tree | None = None) -> Skill | None:
        """The skill with its body; without a look, as it was last seen, and no database is asked.

        `tree` are its files, where they were read already.
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
        """Read a skill's folder if it was changed by hand since it was last looked at; whether it was."""
        row = self._known.index.loadable.get(names.canonical(name))
        if row is None or self._known.is_told_all():
            return False
        if self._shelf.is_fresh(row.folder, self._known.rows.get(row.id, row).stamp):
            return False
        return self._known.look_at([row.folder])

    def summary(self, name: str, *, look: bool = True) -> Summary | None:
        row = (self._known.fresh() if look else self._known.index).loadable.get(names.canonical(name))
        return None if row is None else row.summary

    def is_taken(self, name: str) -> bool:
        return names.canonical(name) in self._known.fresh().taken

    def diagnostics(self, name: str) -> tuple[Diagnostic, ...]:
        return self.contents().diagnostics.get(names.canonical(name), ())

    def closest_match(self, name: str, *, cutoff: float = names.CUTOFF) -> str | None:
        return names.closest_match(name, self._known.fresh().loadable, cutoff=cutoff)

    def directory(self, name: str, *, look: bool = True) -> Path | None:
        """Where the skill's files lie, for those who run or open them."""
        row = (self._known.fresh() if look else self._known.index).taken.get(names.canonical(name))
        return None if row is None else self._shelf.directory(row.folder)

    def bodies(self, wanted: Collection[str]) -> dict[str, str]:
        """Name → body of the skills as they were last seen, of many at once."""
        rows = {
            row.folder: row.name for name in wanted if (row := self._known.index.loadable.get(names.canonical(name)))
        }
        mains = {rows[folder]: main for folder, main in self._shelf.main_files(rows).items()}
        return {name: _body(main, name) for name, main in mains.items()}

    # Changing

    def save(self, skill: Skill, author: Author, *, expected_version: int | None = None) -> Skill:
        """Write a new skill, or change the one of that name; its other files and its counters stay."""
        name = names.check_name(skill.name)
        skill = replace(skill, name=name, body=skill_md.normal_body(skill.body))
        self._write(name, lambda folder, tree: trees.with_skill(tree, skill), author, expected_version)
        saved = self.load(name, look=False)
        if saved is None:
            raise StorageFailed(f"'{name}' was saved and can't be read back.", mend="Run 'habitus skills lint'.")
        return saved

    def change(
        self, name: str, change: Callable[[Skill], Skill], author: Author, *, expected_version: int | None = None
    ) -> Written:
        """Change a skill that is there; `change` gets it as it is at that moment, under the write lock."""
        name = names.canonical(name)

        def make(folder: str, tree: Tree) -> Tree:
            skill = trees.parse(folder, tree).skill
            if skill is None:
                raise Invalid(
                    f"'{name}' is broken and can't be edited this way.", mend="Mend its file, or roll it back."
                )
            return trees.with_skill(tree, change(skill))

        return self._write(name, make, author, expected_version)

    def save_tree(
        self, name: str, tree: Tree, author: Author, *, expected_version: int | None = None, is_exact: bool = False
    ) -> Written:
        """Make the skill consist of these files; those it is examined by stay unless this is exact."""
        name = names.check_name(name)
        for path in tree:
            checked_path(path)

        def make(folder: str, old: Tree) -> Tree:
            return dict(tree) if is_exact else trees.examined_as(tree, old)

        return self._write(name, make, author, expected_version)

    def save_many(
        self, wanted: Mapping[str, Tree], author: Author, *, facts: Mapping[str, Facts] | None = None
    ) -> dict[str, int]:
        """Many skills at once, each to consist of these files; returns name → version.

        `facts` are the version and dates that skills new here have from elsewhere.
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
        """Name → hash over all files, of every skill that can be loaded."""
        return {name: row.tree_hash for name, row in self._known.fresh().loadable.items()}

    def delete(self, name: str, author: Author) -> bool:
        """Move a skill, or a broken directory, into the archive; False when there is none of that name."""
        self._refuse_if_read_only()
        with self._known.writing(durable=True) as connection:
            row, _ = self._current(connection, names.canonical(name))
            if row is None:
                return False
            intent = self._recorder.remove(connection, row, author)
        self._perform(intent)
        return True

    def restore(self, archived: int, author: Author, *, new_name: str | None = None) -> str:
        """Bring back an archived skill by its id, under a new name if asked; returns the name."""
        self._refuse_if_read_only()
        with self._known.writing(durable=True) as connection:
            found = next((item for item, _ in self._ledger.list_archived(connection) if item.id == archived), None)
            if found is None:
                raise NotFound(f"The archive has no entry {archived}.", mend="See 'habitus skills restore --list'.")
            name = names.check_name(new_name or found.name)
            if self._current(connection, name)[0] is not None:
                raise Refused(
                    f"There is a skill '{name}' already.", mend="Give another name with --as, or remove that one first."
                )
            if new_name is not None:
                trees.refuse_clash(name, self._ledger.tree(connection, archived, found.version) or {})
            intent = self._recorder.restore(connection, archived, name, author)
        self._perform(intent)
        if new_name is not None and self.summary(name) is not None:
            self._write(name, lambda folder, tree: trees.rename_tree(tree, name), author, None)
        return name

    def set_enabled(self, name: str, enabled: bool, author: Author) -> bool:
        """Switch a skill on or off, which makes no version; False when there is none of that name."""
        with self._known.writing() as connection:
            row, _ = self._current(connection, names.canonical(name))
            if row is None:
                return False
            if row.enabled != enabled:
                self._ledger.enable(connection, row.id, enabled, author, self._clock())
                self._recorder.settle(connection, [row.folder])
        return True

    def rollback(self, name: str, to: int, author: Author) -> Written:
        """Make an earlier version the current one again, as a new version."""
        wanted = self.tree(name, to)
        if wanted is None:
            raise no_version(name, to, [version.number for version in self.history(name)])
        return self._write(names.canonical(name), lambda folder, old: trees.with_kept(wanted, old), author, None)

    def return_to(
        self, moment: datetime, author: Author, *, dry_run: bool = False, keeps_found: bool = False
    ) -> list[Step]:
        """Make every skill what it was at a moment: rewritten, restored, or archived where it did not exist yet.

        `keeps_found` leaves alone what was found on disk since: it may have been there long before anybody looked.
        """
        self._known.fresh(look=True)
        with sql.reading(self._engine) as connection:
            steps = history.steps_back(connection, self._ledger, self._known.rows, moment, keeps_found=keeps_found)
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
        row = (self._known.fresh(look=True) if look else self._known.index).taken.get(names.canonical(name))
        if row is None:
            return []
        with sql.reading(self._engine) as connection:
            return self._ledger.history(connection, row.id)

    def whole_history(self, name: str) -> History:
        """With what was done to it beside its files; of the newest one in the archive when none is there."""
        self._known.fresh(look=True)
        with sql.reading(self._engine) as connection:
            return history.whole_history(connection, self._ledger, names.canonical(name))

    def changed_in(self, change: str) -> list[Changed]:
        """Every skill that was touched by what one command did."""
        with sql.reading(self._engine) as connection:
            return history.changed_in(connection, self._ledger.key, change)

    def tree(self, name: str, version: int | None = None, *, look: bool = True) -> Tree | None:
        """The files of a version with their contents (those small enough to be kept); the current one by default."""
        row = (self._known.fresh() if look else self._known.index).taken.get(names.canonical(name))
        if row is None:
            return None
        if version is None:
            found = self._shelf.read(row.folder)
            return None if found is None else found.tree
        with sql.reading(self._engine) as connection:
            return self._ledger.tree(connection, row.id, version)

    def list_archived(self) -> list[Archived]:
        self._known.fresh(look=True)
        with sql.reading(self._engine) as connection:
            return [archived for archived, _ in self._ledger.list_archived(connection)]

    # Counters

    def increment_recommended(self, name: str, *, stage: Stage = Stage.STEPS) -> None:
        self._known.count([name], stage, {"recommended": 1}, last_used=None)

    def record_use(self, *wanted: str, stage: Stage = Stage.STEPS, succeeded: bool | None = None) -> None:
        """Count one use of each; `succeeded` is None when nobody knows how it went."""
        plus = {"used": 1}
        if succeeded is not None:
            plus["succeeded" if succeeded else "failed"] = 1
        self._known.count(wanted, stage, plus, last_used=self._clock())

    def keep_told(self, name: str, stage: Stage, counted: Counters) -> None:
        """Keep what another system says it has counted, apart from what was counted here."""
        numbers = {each: getattr(counted, each) for each in ("recommended", "used", "succeeded", "failed")}
        self._known.count([name], stage, numbers, last_used=counted.last_used, version=TOLD)

    def counters(self, name: str, *, version: int | None = None) -> dict[Stage, Counters]:
        """Per stage, over all versions or for one; `TOLD` is what another system says."""
        counted, told = self.counted_and_told(name, version=version)
        return told if version == TOLD else counted

    def counted_and_told(
        self, name: str, *, version: int | None = None
    ) -> tuple[dict[Stage, Counters], dict[Stage, Counters]]:
        """Per stage, what was counted of all versions or of one, and what another system says."""
        return self._known.counted_and_told(name, version)

    def all_counters(
        self, *, with_told: bool = False, among: Sequence[str] | None = None
    ) -> dict[str, dict[Stage, Counters]]:
        """Per name and stage, over all versions, for the skills that have any; `among` are a few of those last seen."""
        return self._known.all_counters(with_told=with_told, among=among)

    # In one transaction with the write lock, or two

    def _current(self, connection: sa.Connection, name: str) -> tuple[Row | None, Found | None]:
        """The row of a name and its folder, after unfinished changes were completed and the folder was looked at."""
        self._recorder.recover(connection)
        folder = self._ledger.folders_of(connection, [name]).get(name, name)
        found = self._recorder.notice(connection, [folder]).get(folder)
        return self._ledger.row(connection, folder), found

    def _write(self, name: str, make: MakeTree, author: Author, expected_version: int | None) -> Written:
        """Change a skill's files to what `make` makes of them; a change that changes nothing keeps the version."""
        self._refuse_if_read_only()
        with self._known.writing(durable=True) as connection:
            row, found = self._current(connection, name)
            refuse_stale(name, 0 if row is None else row.version, expected_version)
            folder = name if row is None else row.folder
            if found is not None and found.problem is not None:
                raise Refused(str(found.problem), mend="Then repeat the change.")
            before: Tree = {} if found is None else found.tree
            after = make(folder, before)
            if row is not None and is_same(before, after):
                return Written(name=name, layer=self.layer, version=row.version, is_changed=False)
            write = Write(folder=folder, tree=after, before=before)
            intent = self._recorder.write(connection, [write], author, {})
        version = self._perform(intent, {folder: after}).get(folder)
        if version is None:  # another process has carried it out, and may have changed more since
            version = max((v.number for v in self.history(name, look=False) if v.author == author), default=0)
        return Written(name=name, layer=self.layer, version=version, is_changed=True)

    def _perform(self, intent: Intent, at_hand: Mapping[str, Tree] | None = None) -> Mapping[str, int]:
        """Carry out an intent, and take it back when the disk refuses; folder → version of what was written so."""
        try:
            with self._known.writing() as connection:
                return self._recorder.perform(connection, intent, at_hand or {})
        except StorageFailed as error:
            try:
                with self._known.writing() as connection:
                    if not self._recorder.abandon(connection, intent):
                        return {}  # it was carried out, and only the word of it got lost
            except StorageFailed:
                raise pending(error, intent[1]) from error
            raise

    def _refuse_if_read_only(self) -> None:
        if not self._shelf.can_write:
            raise read_only(self.layer, mend="Edit the skill without '@' to override it.")


def _body(main: bytes, name: str) -> str:
    return frontmatter.split(main.decode("utf-8", "replace"), name).body
