"""The layers as one listing: every name once, as the highest layer has it, with the state it is in and why."""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from habitus.skills import gates, lifecycle, placeholders
from habitus.skills.gates import GateContext
from habitus.skills.layers import Layer, merge_summaries
from habitus.skills.model import Diagnostic, Manifest, Stage, State, Summary
from habitus.skills.placeholders import AnySkill
from habitus.skills.stores.base import NO_CHANGES, Changes, Contents

if TYPE_CHECKING:
    from habitus.skills.outside import OutsideContent  # the database, for those who compose one

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """One line of a listing: a skill, or a directory that should be one, with the state it is in and why."""

    name: str
    layer: str
    state: State
    reason: str = ""
    summary: Summary | None = None
    tree_hash: str = ""  # over all its files
    diagnostics: tuple[Diagnostic, ...] = ()
    hidden: tuple[str, ...] = ()  # the lower layers that have a copy of the same name
    waiting: tuple[str, ...] = ()  # higher layers whose copy would take its place, and is not trusted
    fills: bool = False  # whether names that its texts leave open are filled in
    inert: tuple[str, ...] = ()  # what it asks for and does not get before a person trusts it


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The library at one moment, sorted by name, broken ones included. Reading it asks no database and no disk."""

    revision: tuple[Hashable, ...]
    listing: tuple[Listed, ...]
    changes: Changes = NO_CHANGES  # how it came from the snapshots before it

    @functools.cached_property
    def by_name(self) -> Mapping[str, Listed]:
        found: dict[str, Listed] = {}
        for item in self.listing:
            found.setdefault(item.name, item)
        return found

    @functools.cached_property
    def with_code(self) -> tuple[Listed, ...]:
        """Those that have a code stage."""
        return tuple(item for item in self.listing if item.summary is not None and Stage.CODE in item.summary.stages)

    @functools.cached_property
    def with_recipes(self) -> tuple[Listed, ...]:
        return tuple(item for item in self.listing if item.summary is not None and Stage.CHUNKS in item.summary.stages)

    @functools.cached_property
    def tags(self) -> Mapping[str, int]:
        """How many have each, the most first."""
        counted = Counter(tag for item in self.listing if item.summary is not None for tag in item.summary.tags)
        return dict(counted.most_common())

    @functools.cached_property
    def hashes(self) -> Mapping[str, str]:
        """Name → hash over all files, of every skill that is in view and can be loaded."""
        return {item.name: item.tree_hash for item in self.listing if item.summary is not None}

    def for_reader(self, user: str) -> Snapshot:
        """The same where `{USER}` is somebody; the same object for the same name."""
        if user not in self._readers:
            listing = tuple(for_reader(item, user) for item in self.listing)
            is_same = all(mine is item for mine, item in zip(listing, self.listing, strict=True))
            self._readers[user] = self if is_same else replace(self, listing=listing)
        return self._readers[user]

    @functools.cached_property
    def _readers(self) -> dict[str, Snapshot]:
        return {}

    def after(self, revision: tuple[Hashable, ...], names: frozenset[str], items: Sequence[Listed]) -> Snapshot:
        """The library when only skills of these names have changed, `items` being all there are of them now.

        What has been made of the whole is not made anew.
        """
        kept = list(self.listing)
        for name in names:
            at = bisect_left(kept, name, key=_name)
            kept[at : bisect_right(kept, name, key=_name)] = [item for item in items if item.name == name]
        made = Snapshot(revision=revision, listing=tuple(kept), changes=self.changes.then(self.revision, names))
        made.__dict__["by_name"] = _without(self.by_name, names) | {item.name: item for item in reversed(items)}
        loadable = {item.name: item.tree_hash for item in items if item.summary is not None}
        made.__dict__["hashes"] = _without(self.hashes, names) | loadable
        for user, seen in self._readers.items():
            theirs = [for_reader(item, user) for item in items]
            is_same = seen is self and all(one is item for one, item in zip(theirs, items, strict=True))
            made._readers[user] = made if is_same else seen.after(revision, names, theirs)
        return made


def _name(item: Listed) -> str:
    return item.name


def _without(known: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    left = dict(known)
    for name in names:
        left.pop(name, None)
    return left


def compose_listing(
    layers: Iterable[tuple[Layer, Contents]],
    outside: OutsideContent,
    context: GateContext,
    fill: Mapping[str, str],
    *,
    only: Collection[str] | None = None,
) -> tuple[Listed, ...]:
    """The listing of layers, lowest first, as they are, or what they have of only some names.

    `fill` is what placeholders become for every reader.
    """
    found: dict[str, Listed] = {}
    trusted: dict[str, bool] = {}
    broken: list[Listed] = []
    for layer, contents in layers:
        for summary in contents.summaries if only is None else filter(None, map(contents.summary, only)):
            name, digest, lower = summary.name, contents.hashes[summary.name], found.get(summary.name)
            is_trusted = outside.is_trusted(layer, name, digest)
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
            for item in contents.broken
            if only is None or item.name in only
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
    """One skill of a layer, over the copy that a lower layer has of it."""
    hidden = () if lower is None else (*lower.hidden, lower.layer, *lower.waiting)
    stated, tree_hash = summary.manifest, contents.hashes[summary.name]
    summary = outside.apply_trust(layer, with_source(summary, layer), tree_hash)
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
        disabled_by=gates.disabled_by(summary, context),
        closed_gates=gates.closed_gates(summary, context),
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
    """A copy of a skill with its placeholders filled, that of its own directory too."""
    if not placeholders.open_texts(skill):
        return skill
    return placeholders.fill_placeholders(skill, {**fill, "SKILL_DIR": str(layer.store.directory(skill.name) or "")})


def for_reader(item: Listed, user: str) -> Listed:
    """The entry as somebody reads it."""
    if not item.fills or item.summary is None or not user:
        return item
    summary = placeholders.fill_placeholders(item.summary, {"USER": user})
    return item if summary is item.summary else replace(item, summary=summary)


def with_source(summary: AnySkill, layer: Layer) -> AnySkill:
    if layer.source is None or "source" in summary.stated or summary.source is layer.source:
        return summary
    return replace(summary, source=layer.source)
