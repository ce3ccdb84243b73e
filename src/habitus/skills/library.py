"""The library: all layers as one collection of skills, and every operation that reads or changes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from habitus.errors import Invalid, NotFound, Refused, did_you_mean, no_version
from habitus.files import Tree, checked_path, file_of, without_examination
from habitus.skills import edits, names, trees
from habitus.skills.editable_fields import NO_FIELDS, Fields
from habitus.skills.edits import Edit, diff_trees
from habitus.skills.formats import fitting
from habitus.skills.layers import copies
from habitus.skills.layers.by_name import ByName
from habitus.skills.layers.copies import SkillFiles
from habitus.skills.layers.layer import USER, Layer
from habitus.skills.layers.listing import Listed, Snapshot, by_name, compose_listing, list_skill
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Archived, Author, Counters, Skill, Stage, Version
from habitus.skills.names import Address
from habitus.skills.sources.trust import OutsideContent
from habitus.skills.stores.base import Facts, Step, Written, changed_names, read_only, refuse_stale


class Library:
    """All layers as one collection of skills. Thread-safe: its state is one immutable snapshot, replaced under a
    lock.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        *,
        outside: OutsideContent,
        newest: Callable[[], tuple[Hashable, Hashable]],
        gate_context: GateContext,
        fill: Mapping[str, str],
        allow: Callable[[Author], None] = lambda author: None,
        reading: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.layers = tuple(layers)
        self._outside = outside
        self._gates = gate_context
        self._reader = fill.get("USER", "")  # the default reader
        self._fill = {name: value for name, value in fill.items() if name != "USER"}
        self._allow = allow
        # Changes whenever trust changes, or any layer that a database records.
        self._newest = newest
        # Opens one transaction for all reads that make up a snapshot.
        self._reading = reading
        self._lock = threading.RLock()
        self._mark: Hashable = None
        # Numbers of refreshes begun, and of the last completed one, by whether it checked the directories.
        self._looks = 0
        self._last_look = {False: -1, True: -1}
        self.last = Snapshot(revision=(), entries=ByName())  # the newest composed snapshot

    # Reading

    def snapshot(self, *, look: bool = True, user: str = "") -> Snapshot:
        """Return the library as it is now, as the same object while nothing changes, filled in for `user`.

        Without `check_disk` the directories are not read, so manual edits there go unnoticed.
        """
        asked = self._looks
        with self._lock:
            # Otherwise another thread has begun and completed a refresh while this one waited for the lock.
            if self._last_look[look] < asked:
                number, self._looks = self._looks, self._looks + 1
                self._catch_up(look=look)
                # A refresh that checked the directories also answers callers that didn't ask for that.
                self._last_look |= {False: number, look: number}
            return self.last.for_reader(user or self._reader)

    def _catch_up(self, *, look: bool) -> None:
        with self._reading():
            mark = self._newest()
            if mark != self._mark:
                self._compose(mark[0])
                self._mark = mark
        # A list, not any(): every store must check its directory, not only the first changed one.
        if look and [layer for layer in self.layers if layer.store.look()]:
            with self._reading():
                self._compose(mark[0])

    def _compose(self, trust: Hashable) -> None:
        contents = [(layer, layer.store.contents(look=False)) for layer in self.layers]
        revision = (trust, *(content.revision for _, content in contents))
        if revision == self.last.revision:
            return
        shown = [(layer, content) for layer, content in contents if layer.is_listed]
        # With the changed names known, only those are composed again; None means that everything may have changed.
        names = changed_names(self.last.revision, revision, [content for _, content in contents])
        reclaimed = self._outside.look(names)
        names = None if names is None else names | reclaimed
        items = compose_listing(shown, self._outside, self._gates, self._fill, only=names)
        if names is None:
            self.last = Snapshot(revision=revision, entries=by_name(items))
        else:
            self.last = self.last.after(revision, names, items)

    def listing(self) -> list[Listed]:
        """Return every skill once, from its highest layer, broken ones included, sorted by name."""
        return list(self.snapshot().listing)

    def find(self, address: str, *, at: Snapshot | None = None) -> Listed:
        """Return the entry for `name` or `name@layer`; raise `NotFound` with the closest name if there is none."""
        wanted = names.parse_address(address)
        seen = at or self.snapshot()
        if wanted.layer is None:
            item = seen.by_name.get(wanted.name)
            if item is None:
                raise self._unknown(address, list(seen.by_name))
            return item
        layer = self.layer(wanted.layer)
        contents = layer.store.contents(look=at is None)
        summary = contents.summaries.get(wanted.name)
        if summary is not None:
            fill = {**self._fill, "USER": self._reader}
            return list_skill(layer, contents, summary, None, self._outside, self._gates, fill)
        for item in seen.entries.get(wanted.name, ()):
            if item.layer == layer.name:
                return item
        raise self._unknown(address, [f"{name}@{layer.name}" for name in contents.summaries])

    def load(self, address: str, *, at: Snapshot | None = None, user: str = "", own: Tree | None = None) -> Skill:
        """Return the skill with its body as the model reads it: layers merged, placeholders filled.

        With a snapshot, load the skill as of then, without a database query. `user` is the reader; `own_files` are
        the files of the highest copy, if already read.
        """
        item = self.find(address, at=at)
        if item.summary is None:
            raise Invalid(f"'{item.name}' is broken: {item.diagnostics[-1]}", hint="")
        wanted = names.parse_address(address)
        fill = {**self._fill, "USER": user or self._reader}
        return self._load_layered(item, only_layer=wanted.layer is not None, look=at is None, fill=fill, own=own)

    def _load_layered(
        self,
        item: Listed,
        *,
        only_layer: bool = False,
        look: bool = False,
        fill: Mapping[str, str] | None = None,
        own: Tree | None = None,
    ) -> Skill:
        """Merge the copies of a skill; without `fill` the placeholders stay."""
        counting = copies.counting(item, self.layer, self._outside, only_layer=only_layer, look=look, own=own)
        skill = copies.one_skill(counting, fill)
        if skill is None:
            raise NotFound(f"'{item.name}' was removed a moment ago.", hint="See 'habitus skills restore --list'.")
        return skill

    def files(self, item: Listed) -> SkillFiles:
        """Return the skill's current files, and which of them are unreviewed."""
        return copies.one_folder(copies.counting(item, self.layer, self._outside), self._outside)

    def unreviewed_origin(self, item: Listed) -> str:
        """Describe the origin of a skill that no person has reviewed; empty for the others."""
        layer = self.layer(item.layer)
        if origin := self._outside.origin(layer, item.name, item.tree_hash):
            return f"it was imported from {origin}"
        versions = layer.store.history(item.name, look=False)
        return "an agent wrote it" if versions and versions[-1].author.is_automatic else ""

    def untrusted_notice(self, item: Listed) -> str:
        """Explain that the skill's claims have no effect yet; empty if it is trusted."""
        is_trusted = self._outside.is_trusted(self.layer(item.layer), item.name, item.tree_hash)
        return "" if is_trusted else "nobody trusts it as it is"

    def directory(self, address: str) -> Path | None:
        """Return the directory of the skill's files, or None if it isn't stored on disk."""
        item = self.find(address)
        return self.layer(item.layer).store.directory(item.name)

    def is_taken(self, name: str) -> bool:
        """Whether a listed layer has a skill of this name."""
        return any(layer.store.is_taken(name) for layer in self._listed_layers())

    def closest_match(self, name: str, *, cutoff: float = names.CUTOFF) -> str | None:
        """Return the skill name closest to a misspelt one, or None."""
        return names.closest_match(name, self.snapshot().hashes, cutoff=cutoff)

    # Changing

    def create(self, skill: Skill, author: Author, *, layer: str | None = None, files: Tree | None = None) -> Skill:
        """Create a skill, with further files beside its text; raise an error if the layer already has the name."""
        self._allow(author)
        place = self._writable(layer)
        if files:
            place.store.save_tree(skill.name, trees.with_skill(files, skill), author, expected_version=0)
        made = place.store.save(skill, author, expected_version=None if files else 0)
        self._outside.forget(place, made.name)
        return made

    def write_tree(
        self, layer: str, name: str, tree: Tree, author: Author, *, expected_version: int | None = None
    ) -> int:
        """Replace all files of a skill in one layer; return the new version."""
        self._allow(author)
        return self._writable(layer).store.save_tree(name, tree, author, expected_version=expected_version).version

    def write_trees(
        self, layer: str, wanted: Mapping[str, Tree], author: Author, *, facts: Mapping[str, Facts] | None = None
    ) -> dict[str, int]:
        """Write many skills at once, as `write_tree` does; `facts` are the versions and dates of imported ones."""
        self._allow(author)
        return self._writable(layer).store.save_many(wanted, author, facts=facts)

    def edit(
        self,
        address: str,
        edit: Edit,
        author: Author,
        *,
        fields: Fields = NO_FIELDS,
        expected_version: int | None = None,
        at: Snapshot | None = None,
    ) -> Written:
        """Edit a skill's body and fields; a read-only skill gets an override in the user's layer."""
        self._allow(author)
        item = self.find(address, at=at)
        layer = self.layer(item.layer)
        change = self.changing(item, edit, fields)
        if layer.can_write:
            return layer.store.change(item.name, change, author, expected_version=expected_version)
        _, tree, skill = self.own_copy(item)
        refuse_stale(item.name, 0 if item.summary is None else item.summary.version, expected_version)
        return self._override(names.parse_address(address), layer, trees.with_skill(tree, change(skill)), author)

    def changing(self, item: Listed | None, edit: Edit, fields: Fields) -> Callable[[Skill], Skill]:
        """Return a function that applies the edit to an editable copy, starting from the text that the reader
        sees.
        """
        shown = self.text_above(item) if item is not None else ""

        def change(skill: Skill) -> Skill:
            # A copy that extends another may have no body of its own; editing must then start from the inherited
            # text.
            is_borrowed = skill.manifest.extends and "body" not in skill.stated
            before = shown if is_borrowed else skill.body
            after = edits.apply(before, edit)
            if skill.manifest.extends and before and not after.strip():
                raise Invalid(
                    f"Without any text '{skill.name}' would show the text below it again.",
                    hint="Leave a line in it, or remove 'extends' from its file.",
                )
            return fields.apply_to(skill if after == before else replace(skill, body=after))

        return change

    def text_above(self, item: Listed) -> str:
        """Return the merged text of a skill that hides copies in lower layers; empty if it hides none."""
        return self._load_layered(item).body if item.summary is not None and item.hidden else ""

    def own_copy(self, item: Listed) -> tuple[str, Tree, Skill]:
        """Return the layer that an edit of this skill goes to, with the files and skill it starts from; a strict copy
        if the skill is read-only.
        """
        layer = self.layer(item.layer)
        tree = layer.store.tree(item.name, look=False) or {}
        if not layer.can_write and item.summary is not None:
            tree = _strict_copy(layer, item.name, tree, description=self._load_layered(item).description)
        skill = trees.parse(item.name, tree).skill
        if skill is None:
            raise Invalid(f"'{item.name}' is broken in the layer '{layer.name}'.", hint="See 'habitus skills lint'.")
        return (layer.name if layer.can_write else USER), tree, skill

    def edit_file(
        self, address: str, path: str, content: bytes, author: Author, *, expected_version: int | None = None
    ) -> Written:
        """Replace one file of a skill; raise `Invalid` if the skill could not be loaded with it."""
        self._allow(author)
        item = self.find(address)
        layer = self.layer(item.layer)
        old = layer.store.tree(item.name, look=False) or {}
        if path not in old and (trees.runs_unasked(path) or trees.is_left_out(path)):
            raise Refused(f"'{path}' can't be a file of a skill.", hint="Tools run it unasked, or no history keeps it.")
        is_executable = path in old and old[path].executable
        tree = {**old, checked_path(path): file_of(content, executable=is_executable)}
        parsed = trees.parse(item.name, tree)
        if parsed.skill is None:
            raise Invalid(str(parsed.diagnostics[-1]), hint="")
        if layer.can_write:
            return layer.store.save_tree(item.name, tree, author, expected_version=expected_version, is_exact=True)
        refuse_stale(item.name, 0 if item.summary is None else item.summary.version, expected_version)
        strict = _strict_copy(layer, item.name, tree, description=parsed.skill.description)
        return self._override(names.parse_address(address), layer, strict, author)

    def _override(self, address: Address, layer: Layer, tree: Tree, author: Author) -> Written:
        """Write a changed copy of a read-only skill into the user's layer."""
        if address.layer is not None:
            raise read_only(layer.name, hint=f"Edit '{address.name}' to override it.")
        author = replace(author, reason=author.reason or f"override of {address.name}@{layer.name}")
        return self._writable(None).store.save_tree(address.name, tree, author, expected_version=0)

    def remove(self, address: str, author: Author) -> Listed:
        """Archive a skill; a copy of the same name in a lower layer becomes visible again."""
        self._allow(author)
        item = self.find(address)
        layer = self.layer(item.layer)
        if not layer.can_write:
            raise Refused(f"'{item.name}' is in the read-only layer '{layer.name}'.", hint="Disable it instead.")
        layer.allow_removal(author)
        layer.store.delete(item.name, author)
        return item

    def restore(self, wanted: str, author: Author, *, new_name: str | None = None) -> tuple[str, str]:
        """Restore the newest archived skill for `name` or `name@layer`, or the one with that `#ID`; return name and
        layer.
        """
        self._allow(author)
        chosen = self.newest_archived(wanted)
        return self.layer(chosen.layer).store.restore(chosen.id, author, new_name=new_name), chosen.layer

    def set_enabled(self, address: str, enabled: bool, author: Author) -> Listed:
        """Enable or disable a skill; return its new entry."""
        self._allow(author)
        item = self.find(address)
        self.layer(item.layer).store.set_enabled(item.name, enabled, author)
        return self.find(address)

    def rollback(self, address: str, to: int, author: Author) -> Written:
        """Make an earlier version current, as a new version."""
        self._allow(author)
        item = self.find(address)
        layer = self.layer(item.layer)
        if not layer.can_write:
            raise read_only(layer.name, hint="Only its owner can change it.")
        return layer.store.rollback(item.name, to, author)

    def return_to(self, timestamp: datetime, author: Author, *, dry_run: bool = False) -> list[Step]:
        """Return all writable layers to their state at a timestamp, as new versions; return the steps taken.

        Skills that other agents or a project put into their own directories stay, even if they are newer.
        """
        self._allow(author)
        return [
            replace(step, layer=layer.name)
            for layer in self.layers
            if layer.can_write
            for step in layer.store.return_to(timestamp, author, dry_run=dry_run, keeps_found=layer.name != USER)
        ]

    # Counting

    def count_recommended(self, address: str, *, stage: Stage = Stage.STEPS, at: Snapshot | None = None) -> None:
        """Count that the skill was recommended to the model."""
        item = self.find(address, at=at or self.snapshot(look=False))
        self.layer(item.layer).store.increment_recommended(item.name, stage=stage)

    def count_use(
        self,
        *addresses: str,
        stage: Stage = Stage.STEPS,
        succeeded: bool | None = None,
        at: Snapshot | None = None,
    ) -> None:
        """Count one use of each skill; `succeeded` is None without feedback. Skills that are gone by now are
        skipped.
        """
        seen = at or self.snapshot(look=False)
        found: dict[str, list[str]] = {}
        for address in addresses:
            with suppress(NotFound):
                item = self.find(address, at=seen)
                found.setdefault(item.layer, []).append(item.name)
        for layer, wanted in found.items():
            store = self.layer(layer).store
            try:
                store.record_use(*wanted, stage=stage, succeeded=succeeded)
            except NotFound:
                # A skill was removed between the lookup and the write: count the rest.
                there = store.contents(look=False).hashes
                store.record_use(*(name for name in wanted if name in there), stage=stage, succeeded=succeeded)

    # History

    def history(self, address: str) -> list[Version]:
        """Return the versions of a skill, oldest first."""
        item = self.find(address)
        return self.layer(item.layer).store.history(item.name)

    def diff(self, address: str, a: int, b: int, *, with_examination: bool = True) -> str:
        """Return a unified diff of two versions, with or without the skill's tasks and cases."""
        item, old, new = self.find(address), self.tree(address, a), self.tree(address, b)
        if not with_examination:
            old, new = without_examination(old), without_examination(new)
        return diff_trees(old, new, f"{item.name} v{a}", f"{item.name} v{b}")

    def list_archived(self) -> list[Archived]:
        """Return the skills that can be restored, newest first."""
        found = [item for layer in self.layers if layer.can_write for item in layer.store.list_archived()]
        return sorted(found, key=lambda item: (item.archived_on, item.id), reverse=True)

    def newest_archived(self, wanted: str) -> Archived:
        """Return the newest archived skill for `name`, `name@layer`, `#ID` or `name@layer#ID`; raise `NotFound`
        otherwise.
        """
        # A bare number is an id too: a skill name made of digits alone can still be given with its layer.
        named, _, number = (f"#{wanted}" if wanted.isdecimal() else wanted).partition("#")
        address, candidates = names.parse_address(named), self.list_archived()
        for item in candidates:
            if (not named or _matches(address, item)) and (not number or str(item.id) == number):
                return item
        near = names.closest_match(wanted, {item.name for item in candidates})
        hint = f"Did you mean '{near}'?" if near else "See 'habitus skills restore --list'."
        raise NotFound(f"The archive has no skill '{wanted}'.", hint=hint)

    def counters(self, address: str, *, version: int | None = None) -> dict[Stage, Counters]:
        """Return the usage counters of a skill by stage, of one version or all."""
        item = self.find(address)
        return self.layer(item.layer).store.counters(item.name, version=version)

    def all_counters(self, *, with_told: bool = False) -> dict[tuple[str, str], dict[Stage, Counters]]:
        """Return the counters per stage by (layer, name), for skills that have any; `with_imported` adds the counts
        reported by their sources.
        """
        return {
            (layer.name, name): stages
            for layer in self.layers
            for name, stages in layer.store.all_counters(with_told=with_told).items()
        }

    def notice(self, item: Listed) -> bool:
        """Read this skill's folders again if they were edited by hand; return whether any was."""
        # A list, not a generator: every copy must be checked, not only up to the first change.
        return True in [self.layer(layer).store.notice(item.name) for layer in (*item.hidden, item.layer)]

    def tree(self, address: str, version: int | None = None) -> Tree:
        """Return the files of a skill, current or of one version; raise `NotFound` if there is no such version."""
        item = self.find(address)
        store = self.layer(item.layer).store
        tree = store.tree(item.name, version)
        if tree is None:
            raise no_version(item.name, version, [one.number for one in store.history(item.name)])
        return tree

    # Layers

    def _listed_layers(self) -> Iterator[Layer]:
        return (layer for layer in self.layers if layer.is_listed)

    def layer(self, name: str) -> Layer:
        """Return the layer of this name; raise `NotFound` with the closest name otherwise."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        known = [layer.name for layer in self.layers]
        raise NotFound(
            f"There is no layer '{name}'.", hint=did_you_mean(name, known) or f"There are: {', '.join(known)}."
        )

    def _writable(self, name: str | None) -> Layer:
        layer = self.layer(name or USER)
        if not layer.can_write:
            raise read_only(layer.name, hint="Check the permissions of its directory.")
        return layer

    def _unknown(self, address: str, known: Sequence[str]) -> NotFound:
        near = names.closest_match(address, known)
        hint = f"Did you mean '{near}'?" if near else "See 'habitus skills list'."
        return NotFound(f"No skill '{address}'.", hint=hint)


def _strict_copy(layer: Layer, name: str, tree: Tree, *, description: str) -> Tree:
    """Return the copy to put above a read-only skill; its placeholders stay active."""
    strict = fitting.strict(name, tree, description=description)
    return trees.kept_open(name, strict) if layer.fills_placeholders else strict


def _matches(address: Address, archived: Archived) -> bool:
    return archived.name == address.name and address.layer in (None, archived.layer)
