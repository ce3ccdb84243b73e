"""The skill store: history and archive in SQL over any backend that holds the files."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import assert_never

import sqlalchemy as sa

from habitus import sql
from habitus.errors import Invalid, NotFound, Refused, StorageFailed, build_unknown_version_error
from habitus.files import Tree, has_same_files, require_path_inside_skill
from habitus.skills import names, trees
from habitus.skills.formats import frontmatter, skill_md
from habitus.skills.model import ArchivedSkill, Author, Skill, SkillSummary, SkillVersion, SkillVersionAndEventHistory
from habitus.skills.stores import history, records
from habitus.skills.stores.base import (
    BackendSkillFacts,
    BrokenSkill,
    ChangedSkillRecord,
    FileBackend,
    FolderContents,
    FolderWrite,
    LayerContents,
    RestoreAction,
    SkillWriteResult,
    make_read_only_error,
    refuse_stale_version,
)
from habitus.skills.stores.layer_cache import LayerCache
from habitus.skills.stores.layer_database import LayerDatabase, SkillRow
from habitus.skills.stores.recording import ChangeRecorder, RiskInspector, WalRecord, make_pending_change_error

TreeFunction = Callable[[str, Tree], Tree]  # from the folder and its files


class SkillStore:
    """The skills of one layer. Names are equal across `-`, `_` and case."""

    def __init__(
        self,
        backend: FileBackend,
        engine: sa.Engine,
        *,
        layer: str,
        key: str = "",
        only: str = "",
        clock: Callable[[], datetime],
        check_interval: float = 2.0,
        inspect: RiskInspector = lambda tree: (),
        read_change_marker: Callable[[], Hashable] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
        recover_on_open: bool = True,
    ) -> None:
        self.layer = layer
        self.can_write = backend.can_write
        self.backend = self._backend = backend
        # The database that holds the store's rows.
        self.engine = engine
        self._db = LayerDatabase(key or layer, layer, only)
        self._recorder = ChangeRecorder(backend, self._db, clock, inspect)
        self._cache = LayerCache(
            engine, backend, self._db, self._recorder, check_interval, read_change_marker, monotonic
        )
        self._clock = clock
        with sql.read_transaction(engine) as conn:
            self._has_pending_writes = bool(self._db.list_write_ahead_records(conn))
        if recover_on_open:
            self.complete_pending_writes()

    def complete_pending_writes(self) -> None:
        """Complete the writes of a process that was killed. This writes, so no read transaction may be open."""
        if self._has_pending_writes:
            with self._cache.open_write_transaction() as conn:
                self._recorder.complete_pending_writes(conn)
            self._has_pending_writes = False

    # Reading

    def refresh_from_disk(self, *, force: bool = False) -> bool:
        """Read manual edits from disk if the last check is old enough; return whether anything changed."""
        return self._cache.refresh_from_disk(force=force)

    def read_contents(self, *, check_disk: bool = True) -> LayerContents:
        """Return the layer's contents, up to date with the database and, with `check_disk`, with manual edits."""
        return self._cache.refresh(check_disk=None if check_disk else False).contents

    def list_rows(self) -> list[SkillRow]:
        """Return the rows as last read."""
        return list(self._cache.rows.values())

    def list_summaries(self) -> list[SkillSummary]:
        """Return the summaries of the loadable skills, by name."""
        return list(self.read_contents().summaries.iterate_values())

    def list_broken(self) -> list[BrokenSkill]:
        """Return the directories that can't be loaded."""
        return list(chain.from_iterable(self.read_contents().broken.iterate_values()))

    def load(self, name: str, *, check_disk: bool = True, tree: Tree | None = None) -> Skill | None:
        """Return the skill with its body, or None; without `check_disk`, as last read and without a database query.

        `tree` holds its files, if already read.
        """
        if check_disk:
            self._cache.refresh()
            self.refresh_skill(name)
        row = self._cache.index.loadable.get(names.canonicalize_name(name))
        if row is None or row.summary is None:
            return None
        if tree is None:
            return records.build_skill_from_summary(row.summary, self.read_bodies([row.name]).get(row.name, ""))
        main = trees.read_main_files({row.name: tree}).get(row.name, b"")
        return records.build_skill_from_summary(row.summary, _extract_body(main, name))

    def refresh_skill(self, name: str) -> bool:
        """Read the skill's folder again if it was edited by hand; return whether it was."""
        row = self._cache.index.loadable.get(names.canonicalize_name(name))
        if row is None or self._cache.has_no_notified_change():
            return False
        if self._backend.is_stamp_current(row.folder, self._cache.rows.get(row.id, row).stamp):
            return False
        return self._cache.refresh_folders([row.folder])

    def get_summary(self, name: str, *, check_disk: bool = True) -> SkillSummary | None:
        """Return the summary of a skill, or None."""
        row = self._find_row(name, check_disk=check_disk)
        return None if row is None else row.summary

    def _find_row(self, name: str, *, check_disk: bool) -> SkillRow | None:
        index = self._cache.refresh() if check_disk else self._cache.index
        return index.rows_by_name.get(names.canonicalize_name(name))

    def is_name_taken(self, name: str) -> bool:
        """Whether a skill or a broken directory has this name."""
        return names.canonicalize_name(name) in self._cache.refresh().rows_by_name

    def find_closest_name(self, name: str, *, cutoff: float = names.MATCH_CUTOFF) -> str | None:
        """Return the loadable name closest to a misspelt one, or None."""
        return names.find_closest_name(name, self._cache.refresh().loadable, cutoff=cutoff)

    def find_directory(self, name: str, *, check_disk: bool = True) -> Path | None:
        """Return the directory of the skill's files, or None if they aren't on disk."""
        row = self._find_row(name, check_disk=check_disk)
        return None if row is None else self._backend.find_directory(row.folder)

    def read_bodies(self, skill_names: Collection[str]) -> dict[str, str]:
        """Return the bodies of many skills at once, by name, as last read."""
        rows = {
            row.folder: row.name
            for name in skill_names
            if (row := self._cache.index.loadable.get(names.canonicalize_name(name)))
        }
        mains = {rows[folder]: main for folder, main in self._backend.read_main_files(rows).items()}
        return {name: _extract_body(main, name) for name, main in mains.items()}

    # Changing

    def save(self, skill: Skill, author: Author, *, expected_version: int | None = None) -> Skill:
        """Create a skill, or change the one of that name; its other files stay."""
        name = names.canonicalize_and_check_name(skill.name)
        skill = replace(skill, name=name, body=skill_md.normalize_body(skill.body))
        self._replace_skill_files(
            name, lambda folder, tree: trees.update_main_file(tree, skill), author, expected_version
        )
        saved = self.load(name, check_disk=False)
        if saved is None:
            raise StorageFailed(f"'{name}' was saved and can't be read back.", hint="Run 'habitus skills lint'.")
        return saved

    def update_skill(
        self, name: str, change: Callable[[Skill], Skill], author: Author, *, expected_version: int | None = None
    ) -> SkillWriteResult:
        """Change an existing skill; `change` receives its state under the write lock."""
        name = names.canonicalize_name(name)

        def make(folder: str, tree: Tree) -> Tree:
            skill = trees.parse_skill_tree(folder, tree).skill
            if skill is None:
                hint = "Fix its file, or roll it back."
                raise Invalid(f"'{name}' is broken and can't be edited this way.", hint=hint)
            return trees.update_main_file(tree, change(skill))

        return self._replace_skill_files(name, make, author, expected_version)

    def save_tree(
        self, name: str, tree: Tree, author: Author, *, expected_version: int | None = None, is_exact: bool = False
    ) -> SkillWriteResult:
        """Replace a skill's files; its tasks and cases stay unless `is_exact` is set."""
        name = names.canonicalize_and_check_name(name)
        for path in tree:
            require_path_inside_skill(path)

        def make(folder: str, old: Tree) -> Tree:
            return dict(tree) if is_exact else trees.keep_examination_files(tree, old)

        return self._replace_skill_files(name, make, author, expected_version)

    def save_trees(
        self, trees_by_name: Mapping[str, Tree], author: Author, *, facts: Mapping[str, BackendSkillFacts] | None = None
    ) -> dict[str, int]:
        """Replace the files of many skills at once; return the version of each.

        `facts` holds the versions and dates of skills that are new here.
        """
        self._refuse_if_read_only()
        checked = {names.canonicalize_and_check_name(name): tree for name, tree in trees_by_name.items()}
        for path in chain.from_iterable(checked.values()):
            require_path_inside_skill(path)
        entries = list(checked.items())
        for some in sql.split_batches(entries):
            self._save_batch(dict(some), author, facts or {})
        return {name: self._cache.index.rows_by_name[name].version for name in checked}

    def _save_batch(
        self, trees_by_name: Mapping[str, Tree], author: Author, facts: Mapping[str, BackendSkillFacts]
    ) -> None:
        with self._cache.open_write_transaction(durable=True) as conn:
            self._recorder.complete_pending_writes(conn)
            folders = {name: name for name in trees_by_name} | self._db.find_folders(conn, list(trees_by_name))
            there = self._recorder.read_folders_and_record_changes(conn, list(folders.values()))
            writes: list[FolderWrite] = []
            for name, tree in trees_by_name.items():
                found = there.get(folders[name])
                before: Tree = {} if found is None else found.tree
                tree = trees.keep_examination_files(tree, before)
                if found is None or not has_same_files(before, tree):
                    writes.append(FolderWrite(folder=folders[name], tree=tree, before=before))
            own = {folders[name]: facts[name] for name in trees_by_name if name in facts}
            intent = self._recorder.record_planned_writes(conn, writes, author, own) if writes else None
        if intent is not None:
            self._apply_or_roll_back_records([intent], {each.folder: each.tree for each in writes})

    def delete(self, name: str, author: Author) -> bool:
        """Archive a skill or a broken directory; False if there is none of that name."""
        self._refuse_if_read_only()
        with self._cache.open_write_transaction(durable=True) as conn:
            row, _ = self._read_current_row_and_folder(conn, names.canonicalize_name(name))
            if row is None:
                return False
            intent = self._recorder.record_planned_removal(conn, row, author)
        self._apply_or_roll_back_records([intent])
        return True

    def restore(self, archived: int, author: Author, *, new_name: str | None = None) -> str:
        """Restore an archived skill by its id, optionally under a new name; return the name."""
        self._refuse_if_read_only()
        with self._cache.open_write_transaction(durable=True) as conn:
            found = self._find_archived(conn, archived)
            name = names.canonicalize_and_check_name(new_name or found.name)
            if self._read_current_row_and_folder(conn, name)[0] is not None:
                raise _make_name_taken_error(name)
            tree = {} if new_name is None else self._db.load_version_tree(conn, archived, found.version) or {}
            trees.refuse_code_name_conflict(name, tree)
            is_renamed = trees.parse_skill_tree(name, tree).skill is not None
            after = trees.rename_skill_in_main_file(tree, name) if is_renamed else tree
            planned = self._plan_restore(conn, archived, FolderWrite(folder=name, tree=after, before=tree), author)
        self._apply_or_roll_back_records(planned)
        return name

    def _find_archived(self, conn: sa.Connection, archived: int) -> ArchivedSkill:
        found = next((item for item, _ in self._db.list_archived(conn) if item.id == archived), None)
        if found is None:
            raise NotFound(f"The archive has no entry {archived}.", hint="See 'habitus skills restore --list'.")
        return found

    def _plan_restore(self, conn: sa.Connection, archived: int, write: FolderWrite, author: Author) -> list[WalRecord]:
        """Plan to restore an archived skill to a folder, and to write the files that differ there."""
        planned = [self._recorder.record_planned_restore(conn, archived, write.folder, author)]
        if not has_same_files(write.before, write.tree):
            planned.append(self._recorder.record_planned_writes(conn, [write], author, {}))
        return planned

    def set_enabled(self, name: str, enabled: bool, author: Author) -> bool:
        """Enable or disable a skill without making a version; False if there is none of that name."""
        with self._cache.open_write_transaction() as conn:
            row, _ = self._read_current_row_and_folder(conn, names.canonicalize_name(name))
            if row is None:
                return False
            if row.enabled != enabled:
                self._db.set_enabled(conn, row.id, enabled, author, self._clock())
                self._recorder.write_back_versions_and_dates(conn, [row.folder])
        return True

    def rollback(self, name: str, to: int, author: Author) -> SkillWriteResult:
        """Make an earlier version current, as a new version."""
        wanted = self.read_tree(name, to)
        if wanted is None:
            raise build_unknown_version_error(name, to, [version.number for version in self.list_versions(name)])
        return self._replace_skill_files(
            names.canonicalize_name(name),
            lambda folder, old: trees.combine_version_with_current_eval_files(wanted, old),
            author,
            None,
        )

    def restore_state_at(
        self, timestamp: datetime, author: Author, *, dry_run: bool = False, keep_found: bool = False
    ) -> list[RestoreAction]:
        """Return every skill to its state at a timestamp: rewritten, restored, or archived if it did not exist yet.

        `keep_found` leaves skills found on disk since then alone: they may be older than their first reading.
        """
        self._cache.refresh(check_disk=True)
        with sql.read_transaction(self.engine) as conn:
            steps = history.plan_restore_steps(conn, self._db, self._cache.rows, timestamp, keep_found=keep_found)
        if dry_run or not steps:
            return steps
        self._refuse_if_read_only()
        gone = {step.name for step in steps if step.action == "archive"}
        # All steps are planned in one transaction: a crash leaves none of them done, or the rest to be completed.
        with self._cache.open_write_transaction(durable=True) as conn:
            self._recorder.complete_pending_writes(conn)
            planned = [record for step in steps for record in self._plan_restore_step(conn, step, author, gone)]
        self._apply_or_roll_back_records(planned)
        return steps

    def _plan_restore_step(
        self, conn: sa.Connection, step: RestoreAction, author: Author, gone: set[str]
    ) -> list[WalRecord]:
        """Plan one step of a return to a timestamp; `gone` holds the names that other steps free."""
        row, found = self._record_folder_by_name(conn, step.name)
        match step.action:
            case "archive":
                return [] if row is None else [self._recorder.record_planned_removal(conn, row, author)]
            case "restore":
                if row is not None and step.name not in gone:
                    raise _make_name_taken_error(step.name)
                newest = self._find_archived(conn, step.skill).version
                before = self._db.load_version_tree(conn, step.skill, newest) or {}
                write = FolderWrite(
                    folder=step.name, tree=self._load_version_files_for_restore(conn, step, before), before=before
                )
                return self._plan_restore(conn, step.skill, write, author)
            case "rewrite":
                old = {} if found is None else found.tree
                folder = step.name if row is None else row.folder
                write = FolderWrite(
                    folder=folder, tree=self._load_version_files_for_restore(conn, step, old), before=old
                )
                return [self._recorder.record_planned_writes(conn, [write], author, {})]
            case "enable" | "disable":
                self._db.set_enabled(conn, step.skill, step.action == "enable", author, self._clock())
                if row is not None and row.id == step.skill:
                    self._recorder.write_back_versions_and_dates(conn, [row.folder])
                return []
            case never:
                assert_never(never)

    def _load_version_files_for_restore(self, conn: sa.Connection, step: RestoreAction, old: Tree) -> Tree:
        wanted = self._db.load_version_tree(conn, step.skill, step.version)
        return trees.combine_version_with_current_eval_files(records.require_intact(wanted), old)

    # History

    def list_versions(self, name: str, *, check_disk: bool = True) -> list[SkillVersion]:
        """Return the versions of a skill, oldest first; empty if there is no such skill."""
        if check_disk:
            self._cache.refresh(check_disk=True)
        row = self._find_row(name, check_disk=False)
        if row is None:
            return []
        with sql.read_transaction(self.engine) as conn:
            return self._db.list_versions(conn, row.id)

    def read_change_history(self, name: str) -> SkillVersionAndEventHistory:
        """Return versions and lifecycle events of a skill, or of the most recently archived one of that name."""
        self._cache.refresh(check_disk=True)
        with sql.read_transaction(self.engine) as conn:
            return history.read_versions_and_lifecycle_events(conn, self._db, names.canonicalize_name(name))

    def list_changed_skills(self, change_id: str) -> list[ChangedSkillRecord]:
        """Return every skill that one command touched."""
        with sql.read_transaction(self.engine) as conn:
            return history.list_skills_touched_by_change(conn, self._db.key, change_id)

    def read_tree(self, name: str, version: int | None = None, *, check_disk: bool = True) -> Tree | None:
        """Return the files of the current or of one version, or None; files too large to store have no content."""
        row = self._find_row(name, check_disk=check_disk)
        if row is None:
            return None
        if version is None:
            found = self._backend.read_folder(row.folder)
            return None if found is None else found.tree
        with sql.read_transaction(self.engine) as conn:
            return self._db.load_version_tree(conn, row.id, version)

    def list_archived(self) -> list[ArchivedSkill]:
        """Return the archived skills, newest first."""
        self._cache.refresh(check_disk=True)
        with sql.read_transaction(self.engine) as conn:
            return [archived for archived, _ in self._db.list_archived(conn)]

    @property
    def key(self) -> str:
        """The key of this layer in the database, unique across projects."""
        return self._db.key

    # In one transaction with the write lock, or two

    def _read_current_row_and_folder(
        self, conn: sa.Connection, name: str
    ) -> tuple[SkillRow | None, FolderContents | None]:
        """Return the row and folder of a name, after completing pending writes."""
        self._recorder.complete_pending_writes(conn)
        return self._record_folder_by_name(conn, name)

    def _record_folder_by_name(self, conn: sa.Connection, name: str) -> tuple[SkillRow | None, FolderContents | None]:
        """Return the row and folder of a name, after reading the folder."""
        folder = self._db.find_folders(conn, [name]).get(name, name)
        found = self._recorder.read_folders_and_record_changes(conn, [folder]).get(folder)
        return self._db.read_row(conn, folder), found

    def _replace_skill_files(
        self, name: str, make_tree: TreeFunction, author: Author, expected: int | None
    ) -> SkillWriteResult:
        """Replace a skill's files with the result of `make_tree`; equal files keep the version."""
        self._refuse_if_read_only()
        with self._cache.open_write_transaction(durable=True) as conn:
            row, found = self._read_current_row_and_folder(conn, name)
            refuse_stale_version(name, 0 if row is None else row.version, expected)
            folder = name if row is None else row.folder
            if found is not None and found.problem is not None:
                raise Refused(str(found.problem), hint="Then repeat the change.")
            before: Tree = {} if found is None else found.tree
            after = make_tree(folder, before)
            if row is not None and has_same_files(before, after):
                return SkillWriteResult(name=name, layer=self.layer, version=row.version, is_changed=False)
            write = FolderWrite(folder=folder, tree=after, before=before)
            intent = self._recorder.record_planned_writes(conn, [write], author, {})
        version = self._apply_or_roll_back_records([intent], {folder: after}).get(folder)
        # Another process has completed this write, and may have changed more since.
        if version is None:
            version = max(
                (v.number for v in self.list_versions(name, check_disk=False) if v.author == author), default=0
            )
        return SkillWriteResult(name=name, layer=self.layer, version=version, is_changed=True)

    def _apply_or_roll_back_records(
        self, planned: Sequence[WalRecord], known_trees: Mapping[str, Tree] | None = None
    ) -> Mapping[str, int]:
        """Apply write-ahead records, or roll all back if the disk fails; return the versions written by this call."""
        started: list[WalRecord] = []
        try:
            made: dict[str, int] = {}
            with self._cache.open_write_transaction() as conn:
                for one in planned:
                    started.append(one)
                    made |= self._recorder.apply_write_ahead_record(conn, one, known_trees or {})
            return made
        except StorageFailed as error:
            try:
                with self._cache.open_write_transaction() as conn:
                    back = [self._recorder.roll_back(conn, one, is_started=one in started) for one in reversed(planned)]
                    if not any(back):
                        # It was applied; only the confirmation was lost.
                        return {}
            # Neither applied nor rolled back: the records stay, and the next process completes them.
            except StorageFailed:
                raise make_pending_change_error(error, planned[0][1]) from error
            raise

    def _refuse_if_read_only(self) -> None:
        if not self._backend.can_write:
            raise make_read_only_error(self.layer, hint="Edit the skill without '@' to override it.")


def _make_name_taken_error(name: str) -> Refused:
    hint = "Give another name with --as, or remove that one first."
    return Refused(f"There is a skill '{name}' already.", hint=hint)


def _extract_body(main: bytes, name: str) -> str:
    return frontmatter.split_front_matter(main.decode("utf-8", "replace"), name).body
