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
from habitus.plain_data import convert_to_plain_json
from habitus.skills import lifecycle, trees
from habitus.skills.layers.layer import Layer, format_skill_address, merge_layered_summaries
from habitus.skills.layers.name_map import SortedNameMap
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import DEFAULT_MANIFEST, Diagnostic, Manifest, Skill, SkillState, SkillSummary, Stage
from habitus.skills.stores.base import NO_CHANGES, LayerContents, RecentChangedNames
from habitus.skills.trees import AnySkill
from habitus.use_counts import UsageCounts

if TYPE_CHECKING:
    from habitus.skills.sources.trust import (
        OutsideContentPolicy,
    )  # imports the database only where a listing is composed


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedSkill:
    """One entry of a listing: a skill, or a directory that can't be loaded as one, with its state and the reason."""

    name: str
    layer: str
    state: SkillState
    reason: str = ""
    summary: SkillSummary | None = None
    tree_hash: str = ""  # over all files
    diagnostics: tuple[Diagnostic, ...] = ()
    hidden: tuple[str, ...] = ()  # lower layers with a copy of the same name
    awaiting_trust: tuple[str, ...] = ()  # higher layers with an untrusted copy that would take its place
    fills_placeholders: bool = False  # whether its placeholders are filled in
    inert: tuple[str, ...] = ()  # its claims, which have no effect until a person trusts it
    pinned_version: int | None = None  # an earlier version that is read in place of the current files


@dataclass(frozen=True, kw_only=True)
class LibrarySnapshot:
    """An immutable view of the library, sorted by name, broken skills included. Reading it needs no database or
    disk.
    """

    revision: tuple[Hashable, ...]
    entries: SortedNameMap[tuple[ListedSkill, ...]]  # the skill first, then broken directories of its name
    changes: RecentChangedNames = NO_CHANGES  # how it differs from earlier snapshots
    current: LibrarySnapshot | None = None  # the library as it is, if some skills are pinned to earlier versions here

    @functools.cached_property
    def listing(self) -> tuple[ListedSkill, ...]:
        """All entries, sorted by name."""
        return tuple(chain.from_iterable(self.entries.iterate_values()))

    @functools.cached_property
    def by_name(self) -> SortedNameMap[ListedSkill]:
        """The effective entry of each name."""
        return SortedNameMap((name, some[0]) for name, some in self.entries.items())

    @functools.cached_property
    def skills_with_code(self) -> tuple[ListedSkill, ...]:
        """The entries with a code stage."""
        return tuple(item for item in self.listing if _has_stage(item, Stage.CODE))

    @functools.cached_property
    def skills_with_recipes(self) -> tuple[ListedSkill, ...]:
        """The entries with recipes."""
        return tuple(item for item in self.listing if _has_stage(item, Stage.CHUNKS))

    @functools.cached_property
    def tags(self) -> Mapping[str, int]:
        """The number of skills per tag, most frequent first."""
        return dict(_count_tags(self.listing).most_common())

    @functools.cached_property
    def hashes(self) -> SortedNameMap[str]:
        """The hash over all files of every loadable skill, by name."""
        return SortedNameMap((name, item.tree_hash) for name, item in self.by_name.items() if item.summary is not None)

    def with_user_placeholder_filled(self, user: str) -> LibrarySnapshot:
        """Return the snapshot with `{USER}` filled in; the same object for the same user."""
        if user not in self._snapshots_by_reader:
            listing = tuple(fill_user_placeholder(item, user) for item in self.listing)
            is_same = all(mine is item for mine, item in zip(listing, self.listing, strict=True))
            # Few skills use `{USER}`; without one, all readers share this snapshot.
            self._snapshots_by_reader[user] = self if is_same else replace(self, entries=group_by_name(listing))
        return self._snapshots_by_reader[user]

    @functools.cached_property
    def _snapshots_by_reader(self) -> dict[str, LibrarySnapshot]:
        return {}

    def with_changes(
        self, revision: tuple[Hashable, ...], names: frozenset[str], items: Sequence[ListedSkill]
    ) -> LibrarySnapshot:
        """Return the snapshot after only these names have changed; `items` are their current entries.

        Derived values that the change doesn't affect are carried over.
        """
        now = group_by_name(items)
        known = self.entries.with_changes(names, now)
        made = LibrarySnapshot(
            revision=revision, entries=known, changes=self.changes.append_change(self.revision, names)
        )
        first = {name: some[0] for name, some in now.items()}
        # Writing to __dict__ fills the cached properties of a frozen dataclass in advance.
        made.__dict__["by_name"] = self.by_name.with_changes(names, first)
        loadable = {name: item.tree_hash for name, item in first.items() if item.summary is not None}
        made.__dict__["hashes"] = self.hashes.with_changes(names, loadable)
        before = [item for name in names for item in self.entries.get(name, ())]
        made.__dict__.update(self._select_valid_caches(before, items))
        for user, seen in self._snapshots_by_reader.items():
            theirs = [fill_user_placeholder(item, user) for item in items]
            is_same = seen is self and all(one is item for one, item in zip(theirs, items, strict=True))
            made._snapshots_by_reader[user] = made if is_same else seen.with_changes(revision, names, theirs)
        return made

    def _select_valid_caches(self, before: Sequence[ListedSkill], now: Sequence[ListedSkill]) -> dict[str, object]:
        """Return the cached properties that stay valid; few changes concern code, recipes or tags."""
        both = (*before, *now)
        is_same = {
            "skills_with_code": not any(_has_stage(item, Stage.CODE) for item in both),
            "skills_with_recipes": not any(_has_stage(item, Stage.CHUNKS) for item in both),
            "tags": _count_tags(before) == _count_tags(now),
        }
        return {name: value for name, value in self.__dict__.items() if is_same.get(name)}


def group_by_name(listing: Iterable[ListedSkill]) -> SortedNameMap[tuple[ListedSkill, ...]]:
    """Group the entries of a sorted listing by name."""
    return SortedNameMap((name, tuple(some)) for name, some in groupby(listing, attrgetter("name")))


def _has_stage(item: ListedSkill, stage: Stage) -> bool:
    return item.summary is not None and stage in item.summary.stages


def _count_tags(items: Iterable[ListedSkill]) -> Counter[str]:
    return Counter(tag for item in items if item.summary is not None for tag in item.summary.tags)


def compose_listing(
    layers: Iterable[tuple[Layer, LayerContents]],
    outside: OutsideContentPolicy,
    context: GateContext,
    fill: Mapping[str, str],
    *,
    only: Collection[str] | None = None,
) -> tuple[ListedSkill, ...]:
    """Compose the listing of layers, given lowest first, of all names or only some.

    `fill` holds the placeholder values that are the same for every reader.
    """
    found: dict[str, ListedSkill] = {}
    trusted: dict[str, bool] = {}
    broken: list[ListedSkill] = []
    for layer, contents in layers:
        known: Mapping[str, SkillSummary] = contents.summaries
        if only is not None:
            known = {name: known[name] for name in known.keys() & only}
        for name, summary in known.items():
            digest, lower = contents.hashes[name], found.get(name)
            is_trusted = outside.is_trusted(layer, name, digest)
            # An untrusted copy must not hide a trusted one, unless both have the same files.
            if lower is not None and trusted[name] and not is_trusted and lower.tree_hash != digest:
                found[name] = replace(lower, awaiting_trust=(*lower.awaiting_trust, layer.name))
            else:
                found[name] = compose_listed_skill(layer, contents, summary, lower, outside, context, fill)
                trusted[name] = is_trusted
        broken += [
            ListedSkill(
                name=item.name,
                layer=layer.name,
                state=SkillState.BROKEN,
                reason=item.diagnostics[-1].message if item.diagnostics else "",
                diagnostics=item.diagnostics,
            )
            for name in (contents.broken if only is None else contents.broken.keys() & only)
            for item in contents.broken[name]
        ]
    return tuple(sorted([*found.values(), *broken], key=lambda item: (item.name, item.state is SkillState.BROKEN)))


def compose_listed_skill(
    layer: Layer,
    contents: LayerContents,
    summary: SkillSummary,
    lower: ListedSkill | None,
    outside: OutsideContentPolicy,
    context: GateContext,
    fill: Mapping[str, str],
) -> ListedSkill:
    """Return the entry of one skill of a layer, placed over the copy in a lower layer."""
    # Copies awaiting trust in layers between the two are hidden as well.
    hidden = () if lower is None else (*lower.hidden, lower.layer, *lower.awaiting_trust)
    stated, tree_hash = summary.manifest, contents.hashes[summary.name]
    summary = outside.drop_untrusted_claims(layer, apply_layer_source(summary, layer), tree_hash)
    # `drop_untrusted_claims` returns the same manifest if it removed nothing, so identity is enough.
    has_force = stated is summary.manifest
    inert = (
        () if has_force else tuple(f for f in Manifest.__slots__ if getattr(stated, f) != getattr(summary.manifest, f))
    )
    base = lower if summary.manifest.extends else None
    fills = layer.fills_placeholders or summary.manifest.placeholders or (base is not None and base.fills_placeholders)
    if fills:
        summary = fill_copy_placeholders(layer, summary, fill)
    if base is not None and base.summary is not None:
        summary = merge_layered_summaries(base.summary, summary)
    # The first reason that keeps it from use decides.
    state = SkillState.OK
    if reason := outside.explain_distrust(layer, summary.name, tree_hash):
        state = SkillState.UNTRUSTED
    elif reason := lifecycle.explain_disabled(summary, context):
        state = SkillState.DISABLED
    elif reason := "; ".join(lifecycle.list_closed_gates(summary, context)):
        state = SkillState.GATED
    return ListedSkill(
        name=summary.name,
        layer=layer.name,
        state=state,
        reason=reason,
        summary=summary,
        tree_hash=tree_hash,
        diagnostics=contents.diagnostics.get(summary.name, ()),
        hidden=hidden,
        fills_placeholders=fills,
        inert=inert,
    )


def fill_copy_placeholders(layer: Layer, skill: AnySkill, fill: Mapping[str, str]) -> AnySkill:
    """Return the skill with its placeholders filled, including its own directory."""
    if not trees.find_placeholder_texts(skill):
        return skill
    return trees.fill_placeholders(skill, {**fill, "SKILL_DIR": str(layer.store.find_directory(skill.name) or "")})


def fill_user_placeholder(item: ListedSkill, user: str) -> ListedSkill:
    """Return the entry with `{USER}` filled in."""
    if not item.fills_placeholders or item.summary is None or not user:
        return item
    summary = trees.fill_placeholders(item.summary, {"USER": user})
    return item if summary is item.summary else replace(item, summary=summary)


def apply_layer_source(summary: AnySkill, layer: Layer) -> AnySkill:
    """Return the skill with its layer's source, unless its file states one."""
    if layer.source is None or "source" in summary.stated or summary.source is layer.source:
        return summary
    return replace(summary, source=layer.source)


@dataclass(frozen=True, kw_only=True)
class SkillListItem:
    """One skill of a listing with its counters; the manifest is as stated in its file, trusted or not."""

    item: ListedSkill
    counters: UsageCounts  # summed over its stages
    manifest: Manifest

    def as_json(self) -> dict[str, Any]:
        """Return the skill, its state and its counters as one flat object."""
        item, summary = self.item, self.item.summary
        counters = replace(self.counters, address=build_skill_uses_url_path(item.layer, item.name))
        told = {name: convert_to_plain_json(getattr(item, name)) for name in _LISTED_FIELDS} | {
            "counters": convert_to_plain_json(counters)
        }
        if summary is None:
            return told
        return (
            {name: convert_to_plain_json(getattr(summary, name)) for name in _SUMMARY_FIELDS}
            | told
            | {"manifest": _select_non_default_fields(self.manifest)}
        )


@dataclass(frozen=True, kw_only=True)
class SkillListPage:
    """One page of a list of skills."""

    skills: Sequence[SkillListItem]
    next: str | None
    total: int


@dataclass(frozen=True, kw_only=True)
class SkillDetails(SkillListItem):
    """All details of one skill. `skill` is None if its files can't be loaded; `text` is its main file, if any."""

    skill: Skill | None
    files: tuple[str, ...]
    text: bytes | None
    source_counts: tuple[str, ...] = ()  # the counts of its source, as text
    missing_packages: tuple[str, ...] = ()  # required packages that this environment lacks, as text
    evidence: tuple[str, ...] = ()  # the evidence about each version, as text
    origin: str = ""  # its origin according to the lockfiles
    tree: Tree = field(default_factory=dict)  # its files with contents, if they were read

    def as_json(self) -> dict[str, Any]:
        """Return the listing's object with body, files and the other details."""
        body = {"body": self.skill.body} if self.skill is not None else {}
        more = {name: list(getattr(self, name)) for name in ("files", "source_counts", "missing_packages", "evidence")}
        return {**SkillListItem.as_json(self), **body, **more, "origin": self.origin}


def build_skill_uses_url_path(layer: str, name: str) -> str:
    """Return the address that lists the uses of a skill, on the page and below the root of REST."""
    return f"/skills/{format_skill_address(name, layer)}/uses"


def sum_counters_over_stages(stages: Mapping[Stage, UsageCounts]) -> UsageCounts:
    """Sum the counters of all stages."""
    return functools.reduce(operator.add, stages.values(), UsageCounts())


def format_imported_usage_counts(told: Mapping[Stage, UsageCounts]) -> tuple[str, ...]:
    """Describe the counts of another system, one text per stage."""
    return tuple(
        f"its source says of {stage}: used {counted.used}, succeeded {counted.succeeded}, failed {counted.failed}"
        for stage, counted in told.items()
    )


_LISTED_FIELDS = [
    field.name
    for field in fields(ListedSkill)
    if field.name not in ("summary", "tree_hash", "fills_placeholders", "pinned_version")
]
_SUMMARY_FIELDS = [field.name for field in fields(SkillSummary) if field.name not in ("manifest", "stated")]
_MANIFEST_FIELDS = [field.name for field in fields(Manifest)]


def _select_non_default_fields(manifest: Manifest) -> dict[str, Any]:
    """Return the manifest fields that differ from their defaults."""
    return {
        name: convert_to_plain_json(getattr(manifest, name))
        for name in _MANIFEST_FIELDS
        if getattr(manifest, name) != getattr(DEFAULT_MANIFEST, name)
    }
