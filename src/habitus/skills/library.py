"""The library: every layer as one collection of skills, with the doors through which they are read and changed."""

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
    """Threads may share it: what it knows of the layers is replaced whole, under a lock."""

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
        self._reader = fill.get("USER", "")  # who reads, unless it is said
        self._fill = {name: value for name, value in fill.items() if name != "USER"}
        self._allow = allow
        self._newest = newest  # changes with what somebody trusts, and with any layer that a database knows of
        self._reading = reading  # one transaction for all that a snapshot asks of one database
        self._lock = threading.RLock()
        self._mark: Hashable = None
        self._looks = 0  # that were begun
        self._last_look = {False: -1, True: -1}  # the number of the last that ended; by whether it was at directories
        self.last = Snapshot(revision=(), entries=ByName())  # as it was looked at last

    # Reading

    def snapshot(self, *, look: bool = True, user: str = "") -> Snapshot:
        """The library as it is now, the same object while nothing changes; `user` is who will read it.

        Without a look the directories are not read, so what somebody changed there by hand is not noticed.
        """
        asked = self._looks
        with self._lock:
            if self._last_look[look] < asked:  # else another thread has begun and ended one while we waited
                number, self._looks = self._looks, self._looks + 1
                self._catch_up(look=look)
                self._last_look |= {False: number, look: number}
            return self.last.for_reader(user or self._reader)

    def _catch_up(self, *, look: bool) -> None:
        with self._reading():
            mark = self._newest()
            if mark != self._mark:
                self._compose(mark[0])
                self._mark = mark
        if look and [layer for layer in self.layers if layer.store.look()]:
            with self._reading():
                self._compose(mark[0])

    def _compose(self, trust: Hashable) -> None:
        contents = [(layer, layer.store.contents(look=False)) for layer in self.layers]
        revision = (trust, *(content.revision for _, content in contents))
        if revision == self.last.revision:
            return
        shown = [(layer, content) for layer, content in contents if layer.is_listed]
        names = changed_names(self.last.revision, revision, [content for _, content in contents])
        reclaimed = self._outside.look(names)
        names = None if names is None else names | reclaimed
        items = compose_listing(shown, self._outside, self._gates, self._fill, only=names)
        if names is None:
            self.last = Snapshot(revision=revision, entries=by_name(items))
        else:
            self.last = self.last.after(revision, names, items)

    def listing(self) -> list[Listed]:
        """Every name once, as the highest layer has it, broken ones included, sorted by name."""
        return list(self.snapshot().listing)

    def find(self, address: str, *, at: Snapshot | None = None) -> Listed:
        """The entry that a name, or `name@layer`, stands for; an error with the nearest name when there is none."""
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
        """The skill with its body, ready to be read by a model: layers merged, placeholders filled.

        With a snapshot, the one that stood in the library then; no database is asked. `user` is who will read it, `own`
        the files of its highest copy, where they were read already.
        """
        item = self.find(address, at=at)
        if item.summary is None:
            raise Invalid(f"'{item.name}' is broken: {item.diagnostics[-1]}", mend="")
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
        """The skill that its copies make together; without `fill` its placeholders stay open."""
        counting = copies.counting(item, self.layer, self._outside, only_layer=only_layer, look=look, own=own)
        skill = copies.one_skill(counting, fill)
        if skill is None:
            raise NotFound(f"'{item.name}' was removed a moment ago.", mend="See 'habitus skills restore --list'.")
        return skill

    def files(self, item: Listed) -> SkillFiles:
        """All its files as they are now, and which of them nobody stands behind."""
        return copies.one_folder(copies.counting(item, self.layer, self._outside), self._outside)

    def unreviewed_origin(self, item: Listed) -> str:
        """Where a skill comes from that no person has looked at, in words; nothing for the others."""
        layer = self.layer(item.layer)
        if origin := self._outside.origin(layer, item.name, item.tree_hash):
            return f"it was imported from {origin}"
        versions = layer.store.history(item.name, look=False)
        return "an agent wrote it" if versions and versions[-1].author.is_automatic else ""

    def untrusted_notice(self, item: Listed) -> str:
        """That what a skill claims for itself has no force yet, in words; nothing where it has."""
        is_trusted = self._outside.is_trusted(self.layer(item.layer), item.name, item.tree_hash)
        return "" if is_trusted else "nobody trusts it as it is"

    def directory(self, address: str) -> Path | None:
        """Where the skill's files lie, where it has a place on disk."""
        item = self.find(address)
        return self.layer(item.layer).store.directory(item.name)

    def is_taken(self, name: str) -> bool:
        return any(layer.store.is_taken(name) for layer in self._listed_layers())

    def closest_match(self, name: str, *, cutoff: float = names.CUTOFF) -> str | None:
        return names.closest_match(name, self.snapshot().hashes, cutoff=cutoff)

    # Changing

    def create(self, skill: Skill, author: Author, *, layer: str | None = None, files: Tree | None = None) -> Skill:
        """Write a new skill, with these files beside its text; a taken name in that layer is refused."""
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
        """Make a skill of one layer consist of exactly these files; returns its version."""
        self._allow(author)
        return self._writable(layer).store.save_tree(name, tree, author, expected_version=expected_version).version

    def write_trees(
        self, layer: str, wanted: Mapping[str, Tree], author: Author, *, facts: Mapping[str, Facts] | None = None
    ) -> dict[str, int]:
        """Many skills at once, as `write_tree`; `facts` are versions and dates that new ones bring along."""
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
        """Change a skill's body by one operation and its fields; a read-only skill gets an override above it."""
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
        """How an edit changes one's own copy of what is listed, if it is: the text it starts from is the one shown."""
        shown = self.text_above(item) if item is not None else ""

        def change(skill: Skill) -> Skill:
            is_borrowed = skill.manifest.extends and "body" not in skill.stated
            before = shown if is_borrowed else skill.body
            after = edits.apply(before, edit)
            if skill.manifest.extends and before and not after.strip():
                raise Invalid(
                    f"Without any text '{skill.name}' would show the text below it again.",
                    mend="Leave a line in it, or remove 'extends' from its file.",
                )
            return fields.apply_to(skill if after == before else replace(skill, body=after))

        return change

    def text_above(self, item: Listed) -> str:
        """The text that a skill shows which stands above others of its name; nothing where it stands alone."""
        return self._load_layered(item).body if item.summary is not None and item.hidden else ""

    def own_copy(self, item: Listed) -> tuple[str, Tree, Skill]:
        """The layer that a change to a skill goes to, and what it starts from; of a read-only one a strict copy."""
        layer = self.layer(item.layer)
        tree = layer.store.tree(item.name, look=False) or {}
        if not layer.can_write and item.summary is not None:
            tree = _strict_copy(layer, item.name, tree, description=self._load_layered(item).description)
        skill = trees.parse(item.name, tree).skill
        if skill is None:
            raise Invalid(f"'{item.name}' is broken in the layer '{layer.name}'.", mend="See 'habitus skills lint'.")
        return (layer.name if layer.can_write else USER), tree, skill

    def edit_file(
        self, address: str, path: str, content: bytes, author: Author, *, expected_version: int | None = None
    ) -> Written:
        """Replace one file of a skill whole; refused when the skill could not be loaded with it."""
        self._allow(author)
        item = self.find(address)
        layer = self.layer(item.layer)
        old = layer.store.tree(item.name, look=False) or {}
        if path not in old and (trees.runs_unasked(path) or trees.is_left_out(path)):
            raise Refused(f"'{path}' can't be a file of a skill.", mend="Tools run it unasked, or no history keeps it.")
        is_executable = path in old and old[path].executable
        tree = {**old, checked_path(path): file_of(content, executable=is_executable)}
        parsed = trees.parse(item.name, tree)
        if parsed.skill is None:
            raise Invalid(str(parsed.diagnostics[-1]), mend="")
        if layer.can_write:
            return layer.store.save_tree(item.name, tree, author, expected_version=expected_version, is_exact=True)
        refuse_stale(item.name, 0 if item.summary is None else item.summary.version, expected_version)
        strict = _strict_copy(layer, item.name, tree, description=parsed.skill.description)
        return self._override(names.parse_address(address), layer, strict, author)

    def _override(self, address: Address, layer: Layer, tree: Tree, author: Author) -> Written:
        """Write a changed copy of a read-only skill into the user's layer."""
        if address.layer is not None:
            raise read_only(layer.name, mend=f"Edit '{address.name}' to override it.")
        author = replace(author, reason=author.reason or f"override of {address.name}@{layer.name}")
        return self._writable(None).store.save_tree(address.name, tree, author, expected_version=0)

    def remove(self, address: str, author: Author) -> Listed:
        """Move a skill to the archive; a lower copy of the same name comes into view again."""
        self._allow(author)
        item = self.find(address)
        layer = self.layer(item.layer)
        if not layer.can_write:
            raise Refused(f"'{item.name}' is in the read-only layer '{layer.name}'.", mend="Disable it instead.")
        layer.allow_removal(author)
        layer.store.delete(item.name, author)
        return item

    def restore(self, wanted: str, author: Author, *, new_name: str | None = None) -> tuple[str, str]:
        """Bring back the newest archived skill of a name (`name`, `name@layer`), or the one with that `#ID`."""
        self._allow(author)
        chosen = self.newest_archived(wanted)
        return self.layer(chosen.layer).store.restore(chosen.id, author, new_name=new_name), chosen.layer

    def set_enabled(self, address: str, enabled: bool, author: Author) -> Listed:
        self._allow(author)
        item = self.find(address)
        self.layer(item.layer).store.set_enabled(item.name, enabled, author)
        return self.find(address)

    def rollback(self, address: str, to: int, author: Author) -> Written:
        """Make an earlier version the current one, as a new version."""
        self._allow(author)
        item = self.find(address)
        layer = self.layer(item.layer)
        if not layer.can_write:
            raise read_only(layer.name, mend="Only its owner can change it.")
        return layer.store.rollback(item.name, to, author)

    def return_to(self, moment: datetime, author: Author, *, dry_run: bool = False) -> list[Step]:
        """Make every layer that can be written what it was at a moment, as new versions; return the steps.

        What other agents or a project brought into their directories is not taken away for being new to us.
        """
        self._allow(author)
        return [
            replace(step, layer=layer.name)
            for layer in self.layers
            if layer.can_write
            for step in layer.store.return_to(moment, author, dry_run=dry_run, keeps_found=layer.name != USER)
        ]

    # Counting

    def count_recommended(self, address: str, *, stage: Stage = Stage.STEPS, at: Snapshot | None = None) -> None:
        item = self.find(address, at=at or self.snapshot(look=False))
        self.layer(item.layer).store.increment_recommended(item.name, stage=stage)

    def count_use(
        self,
        *addresses: str,
        stage: Stage = Stage.STEPS,
        succeeded: bool | None = None,
        at: Snapshot | None = None,
    ) -> None:
        """Each was used; `succeeded` is None when nobody can say. What is gone meanwhile is passed over."""
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
                there = store.contents(look=False).hashes
                store.record_use(*(name for name in wanted if name in there), stage=stage, succeeded=succeeded)

    # History

    def history(self, address: str) -> list[Version]:
        item = self.find(address)
        return self.layer(item.layer).store.history(item.name)

    def diff(self, address: str, a: int, b: int, *, with_examination: bool = True) -> str:
        """Return a unified diff of two versions, with or without the files that a skill is examined by."""
        item, old, new = self.find(address), self.tree(address, a), self.tree(address, b)
        if not with_examination:
            old, new = without_examination(old), without_examination(new)
        return diff_trees(old, new, f"{item.name} v{a}", f"{item.name} v{b}")

    def list_archived(self) -> list[Archived]:
        """Skills that can be restored, newest first."""
        found = [item for layer in self.layers if layer.can_write for item in layer.store.list_archived()]
        return sorted(found, key=lambda item: (item.archived_on, item.id), reverse=True)

    def newest_archived(self, wanted: str) -> Archived:
        """The archived skill that `name`, `name@layer` or `#ID` stands for; `name@layer#ID` is both."""
        named, _, number = (f"#{wanted}" if wanted.isdecimal() else wanted).partition("#")
        address, candidates = names.parse_address(named), self.list_archived()
        for item in candidates:
            if (not named or _matches(address, item)) and (not number or str(item.id) == number):
                return item
        near = names.closest_match(wanted, {item.name for item in candidates})
        mend = f"Did you mean '{near}'?" if near else "See 'habitus skills restore --list'."
        raise NotFound(f"The archive has no skill '{wanted}'.", mend=mend)

    def counters(self, address: str, *, version: int | None = None) -> dict[Stage, Counters]:
        item = self.find(address)
        return self.layer(item.layer).store.counters(item.name, version=version)

    def all_counters(self, *, with_told: bool = False) -> dict[tuple[str, str], dict[Stage, Counters]]:
        """(layer, name) → counters per stage, for the skills that have any; also what their sources told, if asked."""
        return {
            (layer.name, name): stages
            for layer in self.layers
            for name, stages in layer.store.all_counters(with_told=with_told).items()
        }

    def notice(self, item: Listed) -> bool:
        """Read this skill's folders if they were changed by hand since they were last looked at; whether any was."""
        return True in [self.layer(layer).store.notice(item.name) for layer in (*item.hidden, item.layer)]

    def tree(self, address: str, version: int | None = None) -> Tree:
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
        for layer in self.layers:
            if layer.name == name:
                return layer
        known = [layer.name for layer in self.layers]
        raise NotFound(
            f"There is no layer '{name}'.", mend=did_you_mean(name, known) or f"There are: {', '.join(known)}."
        )

    def _writable(self, name: str | None) -> Layer:
        layer = self.layer(name or USER)
        if not layer.can_write:
            raise read_only(layer.name, mend="Check the permissions of its directory.")
        return layer

    def _unknown(self, address: str, known: Sequence[str]) -> NotFound:
        near = names.closest_match(address, known)
        mend = f"Did you mean '{near}'?" if near else "See 'habitus skills list'."
        return NotFound(f"No skill '{address}'.", mend=mend)


def _strict_copy(layer: Layer, name: str, tree: Tree, *, description: str) -> Tree:
    """The copy that goes above a read-only skill; its placeholders go on being filled."""
    strict = fitting.strict(name, tree, description=description)
    return trees.kept_open(name, strict) if layer.fills_placeholders else strict


def _matches(address: Address, archived: Archived) -> bool:
    return archived.name == address.name and address.layer in (None, archived.layer)
