"""The library: all layers as one collection of skills, and every operation that reads or changes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from habitus.errors import Invalid, NotFound, Refused, build_unknown_version_error, did_you_mean
from habitus.files import Tree, build_tree_file, drop_eval_files, require_path_inside_skill
from habitus.skills import auto_executed, edits, names, trees
from habitus.skills.editable_fields import NO_FIELD_CHANGES, FieldChanges
from habitus.skills.edits import TextEdit, diff_trees
from habitus.skills.formats import conversion
from habitus.skills.layers import copies
from habitus.skills.layers.copies import SkillFiles
from habitus.skills.layers.layer import USER_LAYER, Layer
from habitus.skills.layers.listing import (
    LibrarySnapshot,
    ListedSkill,
    compose_listed_skill,
    compose_listing,
    group_by_name,
)
from habitus.skills.layers.name_map import SortedNameMap
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import ArchivedSkill, Author, Skill, SkillVersion, Stage
from habitus.skills.names import SkillAddress
from habitus.skills.sources.trust import OutsideContentPolicy
from habitus.skills.stores.base import (
    BackendSkillFacts,
    RestoreAction,
    SkillWriteResult,
    list_changed_names,
    make_read_only_error,
    refuse_stale_version,
)
from habitus.skills.stores.usage_cache import UsageCache
from habitus.use_counts import UsageCounts

# Above this, reading the counts of all skills is cheaper than naming them.
_MAX_NAMED = 500


class Library:
    """All layers as one collection of skills. Thread-safe: its state is one immutable snapshot, replaced under a
    lock.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        *,
        usage: UsageCache,
        outside: OutsideContentPolicy,
        read_revision: Callable[[], tuple[Hashable, Hashable]],
        gate_context: GateContext,
        placeholder_values: Mapping[str, str],
        authorize: Callable[[Author], None] = lambda author: None,
        open_transaction: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.layers = tuple(layers)
        self.usage = usage
        self._outside = outside
        self._gates = gate_context
        self._reader = placeholder_values.get("USER", "")  # the default reader
        self._placeholder_values = {name: value for name, value in placeholder_values.items() if name != "USER"}
        self._authorize = authorize
        # Changes whenever trust changes, or any layer that a database records.
        self._read_revision = read_revision
        # Opens one transaction for all reads that make up a snapshot.
        self._open_transaction = open_transaction
        self._lock = threading.RLock()
        self._mark: Hashable = None
        # Numbers of refreshes begun, and of the last completed one, by whether it checked the directories.
        self._refresh_count = 0
        self._last_refresh = {False: -1, True: -1}
        self.last_snapshot = LibrarySnapshot(revision=(), entries=SortedNameMap())  # the newest composed snapshot

    # Reading

    def snapshot(self, *, check_disk: bool = True, user: str = "") -> LibrarySnapshot:
        """Return the library as it is now, as the same object while nothing changes, filled in for `user`.

        Without `check_disk` the directories are not read, so manual edits there go unnoticed.
        """
        asked = self._refresh_count
        with self._lock:
            # Otherwise another thread has begun and completed a refresh while this one waited for the lock.
            if self._last_refresh[check_disk] < asked:
                number, self._refresh_count = self._refresh_count, self._refresh_count + 1
                self._refresh(check_disk=check_disk)
                # A refresh that checked the directories also answers callers that didn't ask for that.
                self._last_refresh |= {False: number, check_disk: number}
            return self.last_snapshot.with_user_placeholder_filled(user or self._reader)

    def _refresh(self, *, check_disk: bool) -> None:
        with self._open_transaction():
            mark = self._read_revision()
            if mark != self._mark:
                self._compose_snapshot(mark[0])
                self._mark = mark
        # A list, not any(): every store must check its directory, not only the first changed one.
        if check_disk and [layer for layer in self.layers if layer.store.refresh_from_disk()]:
            with self._open_transaction():
                self._compose_snapshot(mark[0])

    def _compose_snapshot(self, trust: Hashable) -> None:
        contents = [(layer, layer.store.read_contents(check_disk=False)) for layer in self.layers]
        revision = (trust, *(content.revision for _, content in contents))
        if revision == self.last_snapshot.revision:
            return
        shown = [(layer, content) for layer, content in contents if layer.is_listed]
        # With the changed names known, only those are composed again; None means that everything may have changed.
        names = list_changed_names(self.last_snapshot.revision, revision, [content for _, content in contents])
        reclaimed = self._outside.refresh_import_records(names)
        names = None if names is None else names | reclaimed
        items = compose_listing(shown, self._outside, self._gates, self._placeholder_values, only=names)
        if names is None:
            self.last_snapshot = LibrarySnapshot(revision=revision, entries=group_by_name(items))
        else:
            self.last_snapshot = self.last_snapshot.with_changes(revision, names, items)

    def list_skills(self) -> list[ListedSkill]:
        """Return every skill once, from its highest layer, broken ones included, sorted by name."""
        return list(self.snapshot().listing)

    def find(self, address: str, *, at: LibrarySnapshot | None = None) -> ListedSkill:
        """Return the entry for `name` or `name@layer`; raise `NotFound` with the closest name if there is none."""
        wanted = names.parse_address(address)
        seen = at or self.snapshot()
        if wanted.layer is None:
            item = seen.by_name.get(wanted.name)
            if item is None:
                raise self._make_unknown_skill_error(address, list(seen.by_name))
            return item
        layer = self.get_layer(wanted.layer)
        contents = layer.store.read_contents(check_disk=at is None)
        summary = contents.summaries.get(wanted.name)
        if summary is not None:
            fill = {**self._placeholder_values, "USER": self._reader}
            return compose_listed_skill(layer, contents, summary, None, self._outside, self._gates, fill)
        for item in seen.entries.get(wanted.name, ()):
            if item.layer == layer.name:
                return item
        raise self._make_unknown_skill_error(address, [f"{name}@{layer.name}" for name in contents.summaries])

    def load(
        self, address: str, *, at: LibrarySnapshot | None = None, user: str = "", own: Tree | None = None
    ) -> Skill:
        """Return the skill with its body as the model reads it: layers merged, placeholders filled.

        With a snapshot, load the skill as of then, without a database query. `user` is the reader; `own` are
        the files of the highest copy, if already read.
        """
        item = self.find(address, at=at)
        if item.summary is None:
            raise Invalid(f"'{item.name}' is broken: {item.diagnostics[-1]}", hint="")
        wanted = names.parse_address(address)
        fill = {**self._placeholder_values, "USER": user or self._reader}
        skill = self._load_merged_skill(
            item, only_layer=wanted.layer is not None, check_disk=at is None, fill=fill, own_files=own
        )
        if item.pinned_version is None:
            return skill
        shown = item.summary
        return replace(skill, version=shown.version, description=shown.description, when_to_use=shown.when_to_use)

    def pin_versions(self, at: LibrarySnapshot, versions: Mapping[str, int], *, user: str = "") -> LibrarySnapshot:
        """Return the snapshot with earlier versions of some skills, by name: their text, and the files beside it.

        Only versions that differ in text can be pinned: the manifest stays that of the current version.
        """
        pinned = {name: self._build_pinned_entry(at.by_name[name], version, user) for name, version in versions.items()}
        items = [item for name in sorted(pinned) for item in (pinned[name], *at.entries[name][1:])]
        made = at.with_changes(at.revision, frozenset(pinned), items)
        return replace(made, changes=at.changes, current=at)

    def _build_pinned_entry(self, item: ListedSkill, version: int, user: str) -> ListedSkill:
        assert item.summary is not None, "only a skill that can be loaded has versions"
        tree = self.get_layer(item.layer).store.read_tree(item.name, version, check_disk=False)
        skill = trees.parse_skill_tree(item.name, tree or {}).skill
        if tree is None or skill is None:
            return item
        if item.fills_placeholders:
            skill = trees.fill_placeholders(skill, {**self._placeholder_values, "USER": user or self._reader})
        summary = replace(item.summary, version=version, description=skill.description, when_to_use=skill.when_to_use)
        # The hash stays that of the current files: nothing about the skill is news, and trust is about those.
        return replace(item, summary=summary, pinned_version=version)

    def _load_merged_skill(
        self,
        item: ListedSkill,
        *,
        only_layer: bool = False,
        check_disk: bool = False,
        fill: Mapping[str, str] | None = None,
        own_files: Tree | None = None,
    ) -> Skill:
        """Merge the copies of a skill; without `fill` the placeholders stay."""
        counting = copies.load_effective_copies(
            item, self.get_layer, self._outside, only_layer=only_layer, check_disk=check_disk, own_files=own_files
        )
        skill = copies.merge_skill_copies(counting, fill)
        if skill is None:
            raise NotFound(f"'{item.name}' was removed a moment ago.", hint="See 'habitus skills restore --list'.")
        return skill

    def read_files(self, item: ListedSkill) -> SkillFiles:
        """Return the skill's current files, and which of them are unreviewed."""
        return copies.merge_files_of_copies(
            copies.load_effective_copies(item, self.get_layer, self._outside), self._outside
        )

    def describe_unreviewed_origin(self, item: ListedSkill) -> str:
        """Describe the origin of a skill that no person has reviewed; empty for the others."""
        layer = self.get_layer(item.layer)
        if origin := self._outside.find_untrusted_origin(layer, item.name, item.tree_hash):
            return f"it was imported from {origin}"
        versions = layer.store.list_versions(item.name, check_disk=False)
        return "an agent wrote it" if versions and versions[-1].author.is_automatic else ""

    def describe_missing_trust(self, item: ListedSkill) -> str:
        """Explain that the skill's claims have no effect yet; empty if it is trusted."""
        is_trusted = self._outside.is_trusted(self.get_layer(item.layer), item.name, item.tree_hash)
        return "" if is_trusted else "not trusted in its current version"

    def find_directory(self, address: str) -> Path | None:
        """Return the directory of the skill's files, or None if it isn't stored on disk."""
        item, layer = self._find_skill_with_layer(address)
        return layer.store.find_directory(item.name)

    def is_name_taken(self, name: str) -> bool:
        """Whether a listed layer has a skill of this name."""
        return any(layer.store.is_name_taken(name) for layer in self.layers if layer.is_listed)

    def find_closest_name(self, name: str, *, cutoff: float = names.MATCH_CUTOFF) -> str | None:
        """Return the skill name closest to a misspelt one, or None."""
        return names.find_closest_name(name, self.snapshot().hashes, cutoff=cutoff)

    # Changing

    def create(self, skill: Skill, author: Author, *, layer: str | None = None, files: Tree | None = None) -> Skill:
        """Create a skill, with further files beside its text; raise an error if the layer already has the name."""
        self._authorize(author)
        place = self._get_writable_layer(layer)
        if files:
            place.store.save_tree(skill.name, trees.update_main_file(files, skill), author, expected_version=0)
        made = place.store.save(skill, author, expected_version=None if files else 0)
        self._outside.delete_import_record(place, made.name)
        return made

    def write_tree(self, layer: str, name: str, tree: Tree, author: Author, *, expected: int | None = None) -> int:
        """Replace all files of a skill in one layer; return the new version."""
        self._authorize(author)
        return self._get_writable_layer(layer).store.save_tree(name, tree, author, expected_version=expected).version

    def write_trees(
        self,
        layer: str,
        trees_by_name: Mapping[str, Tree],
        author: Author,
        *,
        facts: Mapping[str, BackendSkillFacts] | None = None,
    ) -> dict[str, int]:
        """Write many skills at once, as `write_tree` does; `facts` are the versions and dates of imported ones."""
        self._authorize(author)
        return self._get_writable_layer(layer).store.save_trees(trees_by_name, author, facts=facts)

    def edit(
        self,
        address: str,
        edit: TextEdit,
        author: Author,
        *,
        fields: FieldChanges = NO_FIELD_CHANGES,
        expected_version: int | None = None,
        at: LibrarySnapshot | None = None,
    ) -> SkillWriteResult:
        """Edit a skill's body and fields; a read-only skill gets an override in the user's layer."""
        self._authorize(author)
        item, layer = self._find_skill_with_layer(address, at=at)
        change = self.build_edit_function(item, edit, fields)
        if layer.can_write:
            return layer.store.update_skill(item.name, change, author, expected_version=expected_version)
        _, tree, skill = self.prepare_editable_copy(item)
        refuse_stale_version(item.name, 0 if item.summary is None else item.summary.version, expected_version)
        return self._write_override(
            names.parse_address(address), layer, trees.update_main_file(tree, change(skill)), author
        )

    def build_edit_function(
        self, item: ListedSkill | None, edit: TextEdit, fields: FieldChanges
    ) -> Callable[[Skill], Skill]:
        """Return a function that applies the edit to an editable copy, starting from the text that the reader
        sees.
        """
        shown = self.read_merged_text(item) if item is not None else ""

        def change(skill: Skill) -> Skill:
            # A copy that extends another may have no body of its own; editing must then start from the inherited
            # text.
            is_borrowed = skill.manifest.extends and "body" not in skill.stated
            before = shown if is_borrowed else skill.body
            after = edits.apply_edit(before, edit)
            if skill.manifest.extends and before and not after.strip():
                raise Invalid(
                    f"Without any text '{skill.name}' would show the text below it again.",
                    hint="Leave a line in it, or remove 'extends' from its file.",
                )
            return fields.apply_to(skill if after == before else replace(skill, body=after))

        return change

    def read_merged_text(self, item: ListedSkill) -> str:
        """Return the merged text of a skill that hides copies in lower layers; empty if it hides none."""
        return self._load_merged_skill(item).body if item.summary is not None and item.hidden else ""

    def prepare_editable_copy(self, item: ListedSkill) -> tuple[str, Tree, Skill]:
        """Return where an edit of this skill goes, its files and the skill; a strict copy if it is read-only."""
        layer = self.get_layer(item.layer)
        tree = layer.store.read_tree(item.name, check_disk=False) or {}
        if not layer.can_write and item.summary is not None:
            tree = _make_override_tree(layer, item.name, tree, description=self._load_merged_skill(item).description)
        skill = trees.parse_skill_tree(item.name, tree).skill
        if skill is None:
            raise Invalid(f"'{item.name}' is broken in the layer '{layer.name}'.", hint="See 'habitus skills lint'.")
        return (layer.name if layer.can_write else USER_LAYER), tree, skill

    def edit_file(
        self,
        address: str,
        path: str,
        content: bytes,
        author: Author,
        *,
        expected_version: int | None = None,
        may_change_unasked: bool = False,
    ) -> SkillWriteResult:
        """Replace one file, if the skill can be loaded with it; no file that tools run unasked unless it was there."""
        self._authorize(author)
        item, layer = self._find_skill_with_layer(address)
        old = layer.store.read_tree(item.name, check_disk=False) or {}
        if path not in old or not may_change_unasked:
            auto_executed.refuse_auto_executed(path)
        if path not in old:
            trees.refuse_ignored_path(path)
        is_executable = path in old and old[path].executable
        tree = {**old, require_path_inside_skill(path): build_tree_file(content, executable=is_executable)}
        parsed = trees.parse_skill_tree(item.name, tree)
        if parsed.skill is None:
            raise Invalid(str(parsed.diagnostics[-1]), hint="")
        if layer.can_write:
            return layer.store.save_tree(item.name, tree, author, expected_version=expected_version, is_exact=True)
        refuse_stale_version(item.name, 0 if item.summary is None else item.summary.version, expected_version)
        strict = _make_override_tree(layer, item.name, tree, description=parsed.skill.description)
        return self._write_override(names.parse_address(address), layer, strict, author)

    def _write_override(self, address: SkillAddress, layer: Layer, tree: Tree, author: Author) -> SkillWriteResult:
        """Write a changed copy of a read-only skill into the user's layer."""
        if address.layer is not None:
            raise make_read_only_error(layer.name, hint=f"Edit '{address.name}' to override it.")
        author = replace(author, reason=author.reason or f"override of {address.name}@{layer.name}")
        return self._get_writable_layer(None).store.save_tree(address.name, tree, author, expected_version=0)

    def remove(self, address: str, author: Author) -> ListedSkill:
        """Archive a skill; a copy of the same name in a lower layer becomes visible again."""
        self._authorize(author)
        item, layer = self._find_skill_with_layer(address)
        if not layer.can_write:
            raise Refused(f"'{item.name}' is in the read-only layer '{layer.name}'.", hint="Disable it instead.")
        layer.allow_removal(author)
        layer.store.delete(item.name, author)
        return item

    def restore(self, address: str, author: Author, *, new_name: str | None = None) -> tuple[str, str]:
        """Restore the newest archived skill for `name` or `name@layer`, or the one with that `#ID`; return name and
        layer.
        """
        self._authorize(author)
        chosen = self.find_archived(address)
        return self.get_layer(chosen.layer).store.restore(chosen.id, author, new_name=new_name), chosen.layer

    def set_enabled(self, address: str, enabled: bool, author: Author) -> ListedSkill:
        """Enable or disable a skill; return its new entry."""
        self._authorize(author)
        item, layer = self._find_skill_with_layer(address)
        layer.store.set_enabled(item.name, enabled, author)
        return self.find(address)

    def rollback(self, address: str, to: int, author: Author) -> SkillWriteResult:
        """Make an earlier version current, as a new version."""
        self._authorize(author)
        item, layer = self._find_skill_with_layer(address)
        if not layer.can_write:
            raise make_read_only_error(layer.name, hint="Only its owner can change it.")
        return layer.store.rollback(item.name, to, author)

    def restore_state_at(self, timestamp: datetime, author: Author, *, dry_run: bool = False) -> list[RestoreAction]:
        """Return all writable layers to their state at a timestamp, as new versions; return the steps taken.

        Skills that other agents or a project put into their own directories stay, even if they are newer.
        """
        self._authorize(author)
        return [
            replace(step, layer=layer.name)
            for layer in self.layers
            if layer.can_write
            for step in layer.store.restore_state_at(
                timestamp, author, dry_run=dry_run, keep_found=layer.name != USER_LAYER
            )
        ]

    # History

    def list_versions(self, address: str) -> list[SkillVersion]:
        """Return the versions of a skill, oldest first."""
        item, layer = self._find_skill_with_layer(address)
        return layer.store.list_versions(item.name)

    def diff_versions(self, address: str, a: int, b: int, *, with_examination: bool = True) -> str:
        """Return a unified diff of two versions, with or without the skill's tasks and cases."""
        item, old, new = self.find(address), self.read_tree(address, a), self.read_tree(address, b)
        if not with_examination:
            old, new = drop_eval_files(old), drop_eval_files(new)
        return diff_trees(old, new, f"{item.name} v{a}", f"{item.name} v{b}")

    def list_archived(self) -> list[ArchivedSkill]:
        """Return the skills that can be restored, newest first."""
        found = [item for layer in self.layers if layer.can_write for item in layer.store.list_archived()]
        return sorted(found, key=lambda item: (item.archived_on, item.id), reverse=True)

    def find_archived(self, address_or_id: str) -> ArchivedSkill:
        """Return the newest archived skill for `name`, `name@layer`, `#ID` or `name@layer#ID`; raise `NotFound`
        otherwise.
        """
        # A bare number is an id too: a skill name made of digits alone can still be given with its layer.
        named, _, number = (f"#{address_or_id}" if address_or_id.isdecimal() else address_or_id).partition("#")
        address, candidates = names.parse_address(named), self.list_archived()
        for item in candidates:
            is_named = not named or (item.name == address.name and address.layer in (None, item.layer))
            if is_named and (not number or str(item.id) == number):
                return item
        near = names.find_closest_name(address_or_id, {item.name for item in candidates})
        hint = f"Did you mean '{near}'?" if near else "See 'habitus skills restore --list'."
        raise NotFound(f"The archive has no skill '{address_or_id}'.", hint=hint)

    def read_counters(self, skill: str | ListedSkill, *, version: int | None = None) -> dict[Stage, UsageCounts]:
        """Return the usage counts of a skill, given by its address or entry, by stage; of one version or all.

        `base.IMPORTED_COUNTS_VERSION` selects those of another system.
        """
        item = self.find(skill) if isinstance(skill, str) else skill
        key = self.get_layer(item.layer).store.key
        return self.usage.read_use_counts([key], [item.name], version=version).get((key, item.name), {})

    def read_all_counters(
        self, *, with_imported: bool = False, named_like: Collection[ListedSkill] = ()
    ) -> dict[tuple[str, str], dict[Stage, UsageCounts]]:
        """Return the counts per stage by (layer, name), for skills that have any, of all or of those named like some.

        `with_imported` adds the counts reported by their sources.
        """
        stores, names = {layer.store.key: layer.store for layer in self.layers}, {item.name for item in named_like}
        there = {key: names or store.read_contents(check_disk=False).hashes for key, store in stores.items()}
        wanted = names if len(names) <= _MAX_NAMED else ()
        found = self.usage.read_use_counts(stores, wanted, with_imported=with_imported)
        return {(stores[key].layer, name): stages for (key, name), stages in found.items() if name in there[key]}

    def refresh_skill(self, item: ListedSkill) -> bool:
        """Read this skill's folders again if they were edited by hand; return whether any was."""
        # A list, not a generator: every copy must be checked, not only up to the first change.
        return True in [self.get_layer(layer).store.refresh_skill(item.name) for layer in (*item.hidden, item.layer)]

    def read_tree(self, address: str, version: int | None = None) -> Tree:
        """Return the files of a skill, current or of one version; raise `NotFound` if there is no such version."""
        item, layer = self._find_skill_with_layer(address)
        tree = layer.store.read_tree(item.name, version)
        if tree is None:
            numbers = [one.number for one in layer.store.list_versions(item.name)]
            raise build_unknown_version_error(item.name, version, numbers)
        return tree

    # Layers

    def _find_skill_with_layer(self, address: str, *, at: LibrarySnapshot | None = None) -> tuple[ListedSkill, Layer]:
        """Return the entry of a skill, and its layer."""
        item = self.find(address, at=at)
        return item, self.get_layer(item.layer)

    def get_layer(self, name: str) -> Layer:
        """Return the layer of this name; raise `NotFound` with the closest name otherwise."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        here = [layer.name for layer in self.layers]
        raise NotFound(
            f"There is no layer '{name}'.", hint=did_you_mean(name, here) or f"There are: {', '.join(here)}."
        )

    def _get_writable_layer(self, name: str | None) -> Layer:
        layer = self.get_layer(name or USER_LAYER)
        if not layer.can_write:
            raise make_read_only_error(layer.name, hint="Check the permissions of its directory.")
        return layer

    def _make_unknown_skill_error(self, address: str, known: Sequence[str]) -> NotFound:
        near = names.find_closest_name(address, known)
        hint = f"Did you mean '{near}'?" if near else "See 'habitus skills list'."
        return NotFound(f"No skill '{address}'.", hint=hint)


def _make_override_tree(layer: Layer, name: str, tree: Tree, *, description: str) -> Tree:
    """Return the copy to put above a read-only skill; its placeholders stay active."""
    strict = conversion.make_standard_compliant_tree(name, tree, description=description)
    return trees.enable_placeholders(name, strict) if layer.fills_placeholders else strict
