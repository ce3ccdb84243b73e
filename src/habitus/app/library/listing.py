"""Listing skills: which there are and from where, which wait, what one is made of, and how they have fared."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from habitus.app.home import Home
from habitus.app.library.layers import open_library
from habitus.errors import NotFound, did_you_mean
from habitus.files import content_of
from habitus.journal.journal import Journal
from habitus.skills import gates, names, trees
from habitus.skills.gates import Packages
from habitus.skills.layers import OWN, USER, Layer, address
from habitus.skills.library import Library
from habitus.skills.lifecycle import is_judged, reliability
from habitus.skills.listing import Listed
from habitus.skills.model import Archived, Counters, History, Manifest, Skill, Stage, State
from habitus.skills.review import Action, Review
from habitus.skills.stores.base import TOLD

if TYPE_CHECKING:
    from habitus.app.growth.evidence import Evidence  # its arithmetic takes longer to import than a list to make


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownSkill:
    """One skill whole. `skill` is None where its files can't be read as one; `text` is its main file, if it has one."""

    item: Listed
    skill: Skill | None
    files: tuple[str, ...]
    text: bytes | None
    counters: Counters  # of all its stages together
    told: tuple[str, ...] = ()  # what its source says it has counted, in words
    lacks: tuple[str, ...] = ()  # packages that it needs and this environment does not have, in words
    known: tuple[str, ...] = ()  # what evidence says of each version, in words


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStats:
    """How one stage of a skill has fared."""

    name: str
    layer: str
    stage: Stage
    recommended: int
    used: int
    succeeded: int
    failed: int
    last_used: datetime | None
    reliability: float | None  # none where nobody could say how a use went


class Whose(StrEnum):
    """Whose word the skills of a place are."""

    YOURS = "yours"
    TRUSTED = "trusted"
    MUST_BE_TRUSTED = "must be trusted"
    ELSEWHERE = "from elsewhere"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A layer that skills are seen from, and how many."""

    name: str
    skills: int
    whose: Whose


def listing(
    skills: Library, review: Review, *, tag: str | None = None, state: str | None = None, layer: str | None = None
) -> tuple[Listed, ...]:
    """Every skill, with those that wait for a person, that fits the filters."""
    if layer is not None:
        skills.layer(layer)  # an unknown one is said
    return tuple(
        item
        for item in (*skills.listing(), *_held(review))
        if (tag is None or (item.summary is not None and tag in item.summary.tags))
        and (state is None or item.state == state)
        and (layer is None or item.layer == layer)
    )


def places(skills: Library) -> tuple[Place, ...]:
    """Where skills come from, the strongest first."""
    counted = Counter(item.layer for item in skills.listing())
    layers = [layer for layer in reversed(skills.layers) if layer.is_listed and counted[layer.name]]
    return tuple(Place(name=layer.name, skills=counted[layer.name], whose=_whose(layer)) for layer in layers)


def _whose(layer: Layer) -> Whose:
    if layer.name == USER:
        return Whose.YOURS
    if layer.name in OWN:
        return Whose.TRUSTED
    return Whose.MUST_BE_TRUSTED if layer.trust_root else Whose.ELSEWHERE


Counted = Mapping[tuple[str, str], Counters]  # (layer, name) → all stages together


def used(skills: Library, items: Sequence[Listed]) -> Counted:
    """How those of these skills have fared that were ever shown or used."""
    layers = [skills.layer(name) for name in dict.fromkeys(item.layer for item in items)]
    return {
        (layer.name, name): _together(stages) for layer in layers for name, stages in layer.store.all_counters().items()
    }


def _together(stages: Mapping[Stage, Counters]) -> Counters:
    return functools.reduce(operator.add, stages.values(), Counters())


def stated_manifest(skills: Library, item: Listed) -> Manifest:
    """The manifest as the file states it, whatever force it has."""
    if item.summary is not None and not (item.inert or item.hidden or item.fills):
        return item.summary.manifest  # nothing was taken from it or added to it
    own = skills.layer(item.layer).store.summary(item.name)
    found = own or item.summary
    return found.manifest if found is not None else Manifest()


def shown(home: Home, name: str, version: int | None = None) -> ShownSkill:
    """A skill as a model reads it, or one of its versions as it is kept."""
    skills = _library_of(home, name)
    item = skills.find(name)
    tree = skills.tree(name, version)
    if version is not None:
        skill = trees.parse(item.name, tree).skill
    else:
        skill = skills.load(name) if item.summary is not None else None
    main = trees.main_file(tree)
    text = None if main is None else tree[main].content
    told = skills.counters(name, version=TOLD)
    return ShownSkill(
        item=item,
        skill=skill,
        files=tuple(sorted(tree)),
        text=text,
        counters=_together(skills.counters(name)),
        told=tuple(
            f"its source says of {stage}: used {counted.used}, succeeded {counted.succeeded}, failed {counted.failed}"
            for stage, counted in told.items()
        ),
        lacks=() if skill is None else gates.missing_packages(skill.manifest, Packages()),
        known=_known(home.journal, home.evidence, item),
    )


def _known(journal: Journal, evidence: Evidence, item: Listed) -> tuple[str, ...]:
    """What evidence says of each version; its arithmetic is loaded where somebody has judged one."""
    if not any(one.said for one in journal.exposures([address(item.name, item.layer)])):
        return ()
    return tuple(f"version {one.item.version}: {one.sentence}" for one in evidence.of_skill(item))


def file_of(skills: Library, name: str, path: str, version: int | None = None) -> bytes:
    """One of its files, whole."""
    tree = skills.tree(name, version)
    if path not in tree:
        near = did_you_mean(path, tree) or f"It has: {', '.join(sorted(tree)[:20])}."
        raise NotFound(f"'{name}' has no file '{path}'.", mend=near)
    try:
        return content_of(path, tree[path], skills.directory(name))
    except OSError as error:
        raise NotFound(f"'{path}' can't be read: {error.strerror or error}.", mend="") from None


def history(skills: Library, name: str) -> tuple[str, str, History]:
    """The name and the layer of a skill, of one in the archive too, and everything that was done to it."""
    item: Listed | Archived
    try:
        item = skills.find(name)
    except NotFound as unknown:
        try:
            item = skills.newest_archived(name)
        except NotFound:
            raise unknown from None
    return item.name, item.layer, skills.layer(item.layer).store.whole_history(item.name)


def _library_of(home: Home, name: str) -> Library:
    """A library that knows this skill alone, whatever the size of the whole; the whole where it does not know it."""
    wanted = names.parse_address(name).name
    if not names.is_legal(wanted) or home.skills.last.listing:  # a server knows the whole already
        return home.skills
    skills = open_library(home, only=wanted)
    return skills if skills.snapshot().listing else home.skills


def stats(skills: Library, name: str | None = None) -> tuple[StageStats, ...]:
    """The counters of one skill, or of all that have any."""
    if name is not None:
        item = skills.find(name)
        found = {(item.layer, item.name): skills.counters(name)}
    else:
        found = skills.all_counters()
    return tuple(
        StageStats(
            name=skill,
            layer=layer,
            stage=stage,
            reliability=round(reliability(counters), 3) if is_judged(counters) else None,
            **asdict(counters),
        )
        for (layer, skill), stages in sorted(found.items())
        for stage, counters in stages.items()
    )


def _held(review: Review) -> list[Listed]:
    """Skills that wait for a person before they are there at all."""
    waiting = review.list(with_contents=False) if review.waiting_count() else []
    return [
        Listed(
            name=proposal.change.name,
            layer=proposal.change.layer,
            state=State.HELD,
            reason=f"{proposal.reasons[0]}; see 'habitus review show {proposal.id}'",
        )
        for proposal in waiting
        if proposal.change.action is Action.WRITE and not proposal.base_hash
    ]
