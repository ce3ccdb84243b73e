"""The layers as one listing: each name once, from its highest layer, with its state and the reason; and the entries,
pages and JSON made from it.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from habitus.files import Tree
from habitus.plain_data import plain
from habitus.skills import lifecycle, trees
from habitus.skills.layers.by_name import ByName
from habitus.skills.layers.layer import Layer, merge_summaries
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import PLAIN_MANIFEST, Counters, Diagnostic, Manifest, Skill, Stage, State, Summary
from habitus.skills.stores.base import NO_CHANGES, Changes, Contents
from habitus.skills.trees import AnySkill

if TYPE_CHECKING:
    from habitus.skills.sources.trust import OutsideContent  # imports the database only where a listing is composed


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """One entry of a listing: a skill, or a directory that can't be loaded as one, with its state and the reason."""

    name: str
    layer: str
    state: State
    reason: str = ""
    summary: Summary | None = None
    tree_hash: str = ""  # over all files
    diagnostics: tuple[Diagnostic, ...] = ()
    hidden: tuple[str, ...] = ()  # lower layers with a copy of the same name
    waiting: tuple[str, ...] = ()  # higher layers with an untrusted copy that would take its place
    fills: bool = False  # whether its placeholders are filled in
    inert: tuple[str, ...] = ()  # its claims, which have no effect until a person trusts it


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """An immutable view of the library, sorted by name, broken skills included. Reading it needs no database or
    disk.
    """

    revision: tuple[Hashable, ...]
    entries: ByName[tuple[Listed, ...]]  # the skill first, then broken directories of its name
    changes: Changes = NO_CHANGES  # how it differs from earlier snapshots

    @functools.cached_property
    def listing(self) -> tuple[Listed, ...]:
        """All entries, sorted by name."""
        return tuple(chain.from_iterable(self.entries.in_order()))

    @functools.cached_property
    def by_name(self) -> ByName[Listed]:
        """The effective entry of each name."""
        return ByName((name, some[0]) for name, some in self.entries.items())

    @functools.cached_property
    def with_code(self) -> tuple[Listed, ...]:
        """The entries with a code stage."""
        return tuple(item for item in self.listing if _has(item, Stage.CODE))

    @functools.cached_property
    def with_recipes(self) -> tuple[Listed, ...]:
        """The entries with recipes."""
        return tuple(item for item in self.listing if _has(item, Stage.CHUNKS))

    @functools.cached_property
    def tags(self) -> Mapping[str, int]:
        """The number of skills per tag, most frequent first."""
        return dict(_tags(self.listing).most_common())

    @functools.cached_property
    def hashes(self) -> ByName[str]:
        """The hash over all files of every loadable skill, by name."""
        return ByName((name, item.tree_hash) for name, item in self.by_name.items() if item.summary is not None)

    def for_reader(self, user: str) -> Snapshot:
        """Return the snapshot with `{USER}` filled in; the same object for the same user."""
        if user not in self._readers:
            listing = tuple(for_reader(item, user) for item in self.listing)
            is_same = all(mine is item for mine, item in zip(listing, self.listing, strict=True))
            # Few skills use `{USER}`; without one, all readers share this snapshot.
            self._readers[user] = self if is_same else replace(self, entries=by_name(listing))
        return self._readers[user]

    @functools.cached_property
    def _readers(self) -> dict[str, Snapshot]:
        return {}

    def after(self, revision: tuple[Hashable, ...], names: frozenset[str], items: Sequence[Listed]) -> Snapshot:
        """Return the snapshot after only these names have changed; `items` are their current entries.

        Derived values that the change doesn't affect are carried over.
        """
        now = by_name(items)
        entries = self.entries.after(names, now)
        made = Snapshot(revision=revision, entries=entries, changes=self.changes.then(self.revision, names))
        first = {name: some[0] for name, some in now.items()}
        # Writing to __dict__ fills the cached properties of a frozen dataclass in advance.
        made.__dict__["by_name"] = self.by_name.after(names, first)
        loadable = {name: item.tree_hash for name, item in first.items() if item.summary is not None}
        made.__dict__["hashes"] = self.hashes.after(names, loadable)
        before = [item for name in names for item in self.entries.get(name, ())]
        made.__dict__.update(self._parts_to_keep(before, items))
        for user, seen in self._readers.items():
            theirs = [for_reader(item, user) for item in items]
            is_same = seen is self and all(one is item for one, item in zip(theirs, items, strict=True))
            made._readers[user] = made if is_same else seen.after(revision, names, theirs)
        return made

    def _parts_to_keep(self, before: Sequence[Listed], now: Sequence[Listed]) -> dict[str, object]:
        """Return the cached properties that stay valid; few changes concern code, recipes or tags."""
        both = (*before, *now)
        is_same = {
            "with_code": not any(_has(item, Stage.CODE) for item in both),
            "with_recipes": not any(_has(item, Stage.CHUNKS) for item in both),
            "tags": _tags(before) == _tags(now),
        }
        return {name: value for name, value in self.__dict__.items() if is_same.get(name)}


def by_name(listing: Iterable[Listed]) -> ByName[tuple[Listed, ...]]:
    """Group the entries of a sorted listing by name."""
    return ByName((name, tuple(some)) for name, some in groupby(listing, attrgetter("name")))


def _has(item: Listed, stage: Stage) -> bool:
    return item.summary is not None and stage in item.summary.stages


def _tags(items: Iterable[Listed]) -> Counter[str]:
    return Counter(tag for item in items if item.summary is not None for tag in item.summary.tags)


def compose_listing(
    layers: Iterable[tuple[Layer, Contents]],
    outside: OutsideContent,
    context: GateContext,
    fill: Mapping[str, str],
    *,
    only: Collection[str] | None = None,
) -> tuple[Listed, ...]:
    """Compose the listing of layers, given lowest first, of all names or only some.

    `fill` holds the placeholder values that are the same for every reader.
    """
    found: dict[str, Listed] = {}
    trusted: dict[str, bool] = {}
    broken: list[Listed] = []
    for layer, contents in layers:
        known: Mapping[str, Summary] = contents.summaries
        if only is not None:
            known = {name: known[name] for name in known.keys() & only}
        for name, summary in known.items():
            digest, lower = contents.hashes[name], found.get(name)
            is_trusted = outside.is_trusted(layer, name, digest)
            # An untrusted copy must not hide a trusted one, unless both have the same files.
            if lower is not None and trusted[name] and not is_trusted and lower.tree_hash != digest:
                found[name] = replace(lower, waiting=(*lower.waiting, layer.name))
            else:
                found[name] = list_skill(layer, contents, summary, lower, outside, context, fill)
                trusted[name] = is_trusted
        broken += [
            Listed(
                name=item.name,
                layer=layer.name,
                state=State.BROKEN,
                reason=item.diagnostics[-1].what if item.diagnostics else "",
                diagnostics=item.diagnostics,
            )
            for name in (contents.broken if only is None else contents.broken.keys() & only)
            for item in contents.broken[name]
        ]
    return tuple(sorted([*found.values(), *broken], key=lambda item: (item.name, item.state is State.BROKEN)))


def list_skill(
    layer: Layer,
    contents: Contents,
    summary: Summary,
    lower: Listed | None,
    outside: OutsideContent,
    context: GateContext,
    fill: Mapping[str, str],
) -> Listed:
    """Return the entry of one skill of a layer, placed over the copy in a lower layer."""
    # Copies awaiting trust in layers between the two are hidden as well.
    hidden = () if lower is None else (*lower.hidden, lower.layer, *lower.waiting)
    stated, tree_hash = summary.manifest, contents.hashes[summary.name]
    summary = outside.apply_trust(layer, with_source(summary, layer), tree_hash)
    # `apply_trust` returns the same manifest if it removed nothing, so identity is enough.
    has_force = stated is summary.manifest
    inert = (
        () if has_force else tuple(f for f in Manifest.__slots__ if getattr(stated, f) != getattr(summary.manifest, f))
    )
    base = lower if summary.manifest.extends else None
    fills = layer.fills_placeholders or summary.manifest.placeholders or (base is not None and base.fills)
    if fills:
        summary = fill_copy(layer, summary, fill)
    if base is not None and base.summary is not None:
        summary = merge_summaries(base.summary, summary)
    standing = lifecycle.standing(
        problem=None,
        distrusted_for=outside.objection(layer, summary.name, tree_hash),
        held_for="",
        disabled_by=lifecycle.disabled_by(summary, context),
        closed_gates=lifecycle.closed_gates(summary, context),
    )
    return Listed(
        name=summary.name,
        layer=layer.name,
        state=standing.state,
        reason=standing.reason,
        summary=summary,
        tree_hash=tree_hash,
        diagnostics=contents.diagnostics.get(summary.name, ()),
        hidden=hidden,
        fills=fills,
        inert=inert,
    )


def fill_copy(layer: Layer, skill: AnySkill, fill: Mapping[str, str]) -> AnySkill:
    """Return the skill with its placeholders filled, including its own directory."""
    if not trees.open_texts(skill):
        return skill
    return trees.fill_placeholders(skill, {**fill, "SKILL_DIR": str(layer.store.directory(skill.name) or "")})


def for_reader(item: Listed, user: str) -> Listed:
    """Return the entry with `{USER}` filled in."""
    if not item.fills or item.summary is None or not user:
        return item
    summary = trees.fill_placeholders(item.summary, {"USER": user})
    return item if summary is item.summary else replace(item, summary=summary)


def with_source(summary: AnySkill, layer: Layer) -> AnySkill:
    """Return the skill with its layer's source, unless its file states one."""
    if layer.source is None or "source" in summary.stated or summary.source is layer.source:
        return summary
    return replace(summary, source=layer.source)


@dataclass(frozen=True, kw_only=True)
class SkillEntry:
    """One skill of a listing with its counters; the manifest is as stated in its file, trusted or not."""

    item: Listed
    counters: Counters  # summed over its stages
    manifest: Manifest

    def as_json(self) -> dict[str, Any]:
        """Return the skill, its state and its counters as one flat object."""
        item, summary = self.item, self.item.summary
        told = {name: plain(getattr(item, name)) for name in _LISTED} | {"counters": plain(self.counters)}
        if summary is None:
            return told
        return {name: plain(getattr(summary, name)) for name in _SUMMARY} | told | {"manifest": _unusual(self.manifest)}


@dataclass(frozen=True, kw_only=True)
class SkillPage:
    """One page of a list of skills."""

    skills: Sequence[SkillEntry]
    next: str | None
    total: int


@dataclass(frozen=True, kw_only=True)
class ShownSkill(SkillEntry):
    """All details of one skill. `skill` is None if its files can't be loaded; `text` is its main file, if any."""

    skill: Skill | None
    files: tuple[str, ...]
    text: bytes | None
    told: tuple[str, ...] = ()  # the counts of its source, as text
    lacks: tuple[str, ...] = ()  # required packages that this environment lacks, as text
    known: tuple[str, ...] = ()  # the evidence about each version, as text
    origin: str = ""  # its origin according to the lockfiles
    tree: Tree = field(default_factory=dict)  # its files with contents, if they were read

    def as_json(self) -> dict[str, Any]:
        """Return the listing's object with body, files and the other details."""
        body = {"body": self.skill.body} if self.skill is not None else {}
        more = {name: list(getattr(self, name)) for name in ("files", "told", "lacks", "known")}
        return {**SkillEntry.as_json(self), **body, **more, "origin": self.origin}


def together(stages: Mapping[Stage, Counters]) -> Counters:
    """Sum the counters of all stages."""
    return functools.reduce(operator.add, stages.values(), Counters())


def words_of_source(told: Mapping[Stage, Counters]) -> tuple[str, ...]:
    """Describe the counts of another system, one text per stage."""
    return tuple(
        f"its source says of {stage}: used {counted.used}, succeeded {counted.succeeded}, failed {counted.failed}"
        for stage, counted in told.items()
    )


_LISTED = [field.name for field in fields(Listed) if field.name not in ("summary", "tree_hash", "fills")]
_SUMMARY = [field.name for field in fields(Summary) if field.name not in ("manifest", "stated")]
_MANIFEST = [field.name for field in fields(Manifest)]


def _unusual(manifest: Manifest) -> dict[str, Any]:
    """Return the manifest fields that differ from their defaults."""
    return {
        name: plain(getattr(manifest, name))
        for name in _MANIFEST
        if getattr(manifest, name) != getattr(PLAIN_MANIFEST, name)
    }
