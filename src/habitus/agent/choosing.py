"""Selects the skills for a request, finds others that are relevant, and explains the selection.

Also assigns exposures: which items a conversation is shown and which are withheld at random, each decided once and
recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar

from habitus.agent.prompts import prompt
from habitus.agent.prompts.prompt import CUE
from habitus.events import OutcomeKind
from habitus.evidence.model import Assignment, Item, ItemKind, Lots, edge
from habitus.journal.journal import Journal, effective, loaded_or_ruled
from habitus.journal.model import Exposure, Place, Turn
from habitus.memory.memory import Cortex
from habitus.memory.recall import MOST_LESSONS, Recall, Recalled, worth
from habitus.search.model import Hit, Results
from habitus.skills.choosing import menu
from habitus.skills.choosing.menu import Menu, News, line
from habitus.skills.choosing.selection import STICKY_TURNS, Choice, PriorTurn, Request, Selection, select
from habitus.skills.layers.layer import Layer, address
from habitus.skills.layers.listing import Listed, Snapshot
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Skill, Summary
from habitus.sql.outage import Outage
from habitus.text import tokens


def choose(snapshot: Snapshot, request: Request, gates: GateContext, journal: Journal) -> Selection:
    """Select the skills for a request. A turn that it replies to but that is not recorded is ignored."""
    user = request.user.name
    recent = journal.recent(request.conversation, limit=STICKY_TURNS, user=user) if request.conversation else []
    answered = journal.brief(request.reply_to, user=user) if request.reply_to else None
    return select(
        snapshot.listing,
        request,
        gates,
        prior=[_prior(turn) for turn in recent],
        replied_to=None if answered is None else _prior(answered),
    )


# Skills that a rule has selected are not on the menu but are found all the same.
_RULED = 5


def near(search: Callable[..., Results], on_menu: Collection[str], *, k: int = prompt.FITTING) -> list[Hit]:
    """Return the skills on the menu that search finds relevant, best first; empty if none is close enough."""
    if not on_menu:
        return []
    # Fetching a few more hits is cheaper than restricting the search to the menu.
    results = search(k=k + _RULED)
    hits = [hit for hit in results.hits if hit.id in on_menu][:k]
    if len(hits) < k and len(results.hits) == k + _RULED:
        results = search(k=k, among=on_menu)
        hits = list(results.hits)
    if not hits or hits[0].score < results.least:
        return []
    least = hits[0].score * prompt.NEARLY_AS_FITTING
    return [hit for hit in hits if hit.score >= least]


def unseen(
    journal: Journal,
    user: str,
    snapshot: Snapshot,
    gates: GateContext,
    layers: Sequence[Layer],
    withheld: Collection[str] = (),
) -> News:
    """Return the skills that are new to this user."""
    visible = menu.visible(snapshot, gates)
    now = {name: hash for name, hash in visible.items() if name not in withheld}
    return menu.news(
        journal.skills_seen(user),
        now,
        hidden=snapshot.hashes.keys() - now.keys(),
        changelog=lambda: "\n".join(layer.changes() for layer in layers),
    )


def _prior(turn: Turn) -> PriorTurn:
    judged = effective(turn.outcomes)
    succeeded = judged is not None and judged.kind is OutcomeKind.OK
    return PriorTurn(id=turn.id, at=turn.started_on, succeeded=succeeded, skills=loaded_or_ruled(turn))


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """Why one skill was or was not selected for one request."""

    IN_JSON: ClassVar = ("sentences",)

    name: str
    layer: str
    place: Place
    reason: str
    # None if it does not match the request at all.
    rank: int | None = None
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    # Whether any skill is relevant enough to be named beside the request.
    fits: bool = False
    # Whether there was a request to compare it with.
    is_asked: bool = True
    menu_tokens: int = 0
    menu_budget: int = 0
    # Lower layers.
    hides: tuple[str, ...] = ()
    # Higher layers whose copy is not trusted.
    waiting: tuple[str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """The explanation in plain words."""
        said = {
            Place.EAGER: f"{self.name} is in the prompt in full: {self.reason}.",
            Place.MENU: f"{self.name} is {self._where()}; the model loads it when it needs it.",
            Place.CUT: f"{self.name} is eligible, but the menu is full; search_skills finds it.",
            Place.LEFT_OUT: f"{self.name} is left out: {self.reason}.",
            Place.WITHHELD: f"{self.name} is {self.reason}.",
        }[self.place]
        lines = [said]
        if self.menu_budget:
            lines.append(f"The menu takes {self.menu_tokens} of {self.menu_budget} tokens.")
        if self.rank is not None and self.score is not None:
            lines.append(f"For this request it ranks {self.rank}, score {self.score:.2f}{self._made_of()}.")
            if not self.fits:
                lines.append("Nothing fits this request well enough to be named beside it.")
        elif self.is_asked and self.place in (Place.MENU, Place.CUT):
            lines.append("Nothing in it matches this request.")
        if self.hides:
            lines.append(f"It hides {self._copies(self.hides)}.")
        if self.waiting:
            lines.append(f"It would be hidden by {self._copies(self.waiting)}, once somebody trusts that.")
        return lines

    def _where(self) -> str:
        return "on the menu, one line" if self.menu_budget else "found by search_skills"

    def _copies(self, layers: tuple[str, ...]) -> str:
        return ", ".join(f"{self.name}@{layer}" for layer in layers)

    def _made_of(self) -> str:
        parts = [f"{name} {value:+.2f}" for name, value in list(self.parts.items())[:4]]
        return f" ({', '.join(parts)})" if parts else ""


def explain(item: Listed, selection: Selection, menu: Menu, results: Results | None) -> Why:
    """Explain a skill from the results of selection, menu and search; `results` is None without a request."""
    place, reason = _place(item, selection, menu)
    ranked = {found.id: (rank, found) for rank, found in enumerate(results.hits if results else (), 1)}
    rank, hit = ranked.get(item.name, (None, None))
    return Why(
        name=item.name,
        layer=item.layer,
        place=place,
        reason=reason,
        rank=rank,
        score=None if hit is None else hit.score,
        parts={} if hit is None else hit.parts,
        fits=results is not None and results.fits,
        is_asked=results is not None,
        menu_tokens=menu.tokens,
        menu_budget=menu.budget,
        hides=item.hidden,
        waiting=item.waiting,
    )


def _place(item: Listed, selection: Selection, menu: Menu) -> tuple[Place, str]:
    for choice in selection.eager:
        if choice.name == item.name:
            return Place.EAGER, choice.reason
    if item.name not in selection.eligible():
        return Place.LEFT_OUT, selection.left_out.get(item.name, f"{item.state.value}: {item.reason}")
    if item.name in menu.cut:
        return Place.CUT, f"the menu has {menu.budget} tokens and {len(menu.cut)} lines did not fit"
    return Place.MENU, "eligible, and no rule puts it into the prompt"


class Offers:
    """Assigns the exposures of a conversation. Shown text stays in the history, so the first assignment holds.

    Every method that begins with `assign_` says whether an item may be shown, and records the assignment either way.
    """

    def __init__(self, lots: Lots | None = None) -> None:
        self.lots = lots or Lots()
        self._noted: dict[tuple[bool, Item], Exposure] = {}
        # Exposures that the journal already has.
        self._told: set[tuple[bool, Item]] = set()

    def takes(
        self,
        item: Item,
        *,
        tokens: int,
        is_steady: bool = False,
        is_sure: bool = False,
        is_read: bool = False,
        at_edge: bool | None = None,
    ) -> bool:
        """Assign an item: True if it may be shown.

        `is_sure` items are never withheld; `is_read` items are used just by being shown. `at_edge` says whether one of
        two nearly tied items got the last place.
        """
        assigned = self.lots.assign(item, is_sure=is_sure)
        # A trial has assigned the item for this request only.
        is_steady = is_steady and not self.lots.is_fixed(item)
        if at_edge is not None:
            # Each of the two tied items had half a chance of the last place.
            assigned = Assignment(is_offered=assigned.is_offered and at_edge, propensity=assigned.propensity / 2)
        exposure = Exposure(
            kind=item.kind.value,
            item=item.name,
            version=item.version,
            is_steady=is_steady,
            is_offered=assigned.is_offered,
            propensity=assigned.propensity,
            tokens=tokens,
            is_used=is_read and assigned.is_offered,
        )
        return self._noted.setdefault((is_steady, item), exposure).is_offered

    def takes_line(
        self, summary: Summary, *, cue: int = CUE, is_steady: bool = False, at_edge: bool | None = None
    ) -> bool:
        """Assign a skill shown as one line, on the menu or beside a request."""
        size, is_sure = tokens(line(summary, cue)), summary.manifest.always_include
        return self.takes(of_skill(summary), tokens=size, is_steady=is_steady, is_sure=is_sure, at_edge=at_edge)

    def takes_text(self, skill: Skill) -> bool:
        """Assign a skill shown in full; whether it was used shows in the trace it leaves."""
        return self.takes(of_skill(skill), tokens=tokens(skill.body), is_sure=skill.manifest.always_include)

    def takes_note(self, note: Recalled, *, is_steady: bool = False, at_edge: bool | None = None) -> bool:
        """Assign a lesson or rule."""
        return self.takes(
            of_note(note),
            tokens=tokens(note.line),
            is_steady=is_steady,
            is_sure=note.is_sure,
            is_read=True,
            at_edge=at_edge,
        )

    def lessons(self, remembered: Recall) -> tuple[Recalled, ...]:
        """Return the relevant lessons that may be shown."""
        last, left = remembered.tied or (None, None)
        if left is not None:
            self.takes_note(left, at_edge=False)
        return tuple(note for note in remembered.lessons if self.takes_note(note, at_edge=(note == last) or None))

    def without_withheld(self, selection: Selection) -> Selection:
        """Return the selection without withheld skills, so they claim nothing in the prompt either."""
        return replace(selection, eager=tuple(choice for choice in selection.eager if self._may_be_eager(choice)))

    def _may_be_eager(self, choice: Choice) -> bool:
        if not self.is_withheld(of_skill(choice.summary), is_sure=choice.summary.manifest.always_include):
            return True
        return self.takes_line(choice.summary)

    def steady(self, selection: Selection, drawn: Callable[[str], Menu]) -> Menu:
        """Build the session menu without withheld skills. `drawn(name)` builds the menu that prefers this skill in a
        tie.
        """
        known = {summary.name: summary for summary in selection.menu}
        menu, tied = self._at_edge(drawn(""), drawn, known)
        return menu.without(
            {
                name
                for name in {**dict.fromkeys(menu.shown), **tied}
                if not self.takes_line(known[name], cue=menu.cue_length, is_steady=True, at_edge=tied.get(name))
            }
        )

    def _at_edge(
        self, menu: Menu, drawn: Callable[[str], Menu], known: Mapping[str, Summary]
    ) -> tuple[Menu, dict[str, bool]]:
        """Decide at random if the last line and the first one without room are tied and interchangeable."""
        if menu.edge is None or not self.lots.are_drawn:
            return menu, {}
        last, left = menu.edge
        other = drawn(left)
        if {*menu.shown} ^ {*other.shown} != {last, left}:
            return menu, {}
        if self.lots.prefers_second(of_skill(known[last]), of_skill(known[left])):
            return other, {left: True, last: False}
        return menu, {last: True, left: False}

    @property
    def withheld_skills(self) -> frozenset[str]:
        """The names of skills that would have been shown but are withheld."""
        items = [item for (_, item), noted in self._noted.items() if not noted.is_offered]
        return frozenset(item.name.partition("@")[0] for item in items if item.kind is ItemKind.SKILL)

    def is_withheld(self, item: Item, *, is_sure: bool = False) -> bool:
        """Whether an item is, or would be, withheld."""
        return not self.lots.assign(item, is_sure=is_sure).is_offered

    def of_turn(self, request_kind: str, used: Mapping[Item, bool]) -> tuple[Exposure, ...]:
        """Return the exposures that began in a turn or were used in it; `used` maps items to whether they
        were ignored.
        """
        found = []
        for (is_steady, item), noted in self._noted.items():
            is_new = (is_steady, item) not in self._told
            if is_new:
                noted = self._noted[is_steady, item] = replace(noted, request_kind=request_kind)
            if item in used:
                found.append(replace(noted, is_used=True, is_ignored=used[item]))
            elif is_new:
                found.append(noted)
        self._told.update(self._noted)
        return tuple(found)


def of_skill(skill: Summary) -> Item:
    """Return the evidence item of a skill in its layer and version."""
    return Item(kind=ItemKind.SKILL, name=address(skill.name, skill.layer), version=skill.version)


def of_note(note: Recalled) -> Item:
    """Return the evidence item of a lesson."""
    return Item(kind=ItemKind.LESSON, name=note.id, version=note.engram.version)


@dataclass(frozen=True, kw_only=True)
class SessionMemory:
    """Memory for one user and project in a session."""

    cortex: Cortex
    user: str
    project: str
    outage: Outage = field(default_factory=Outage)
    offers: Offers = field(default_factory=Offers)

    def standing(self, *, is_away: bool = False) -> Recall:
        """Return the profile and rules for the system prompt, which hold for every request.

        With `is_away`, the last ones that were read.
        """
        return self.cortex.recall("", user=self.user, project=self.project, as_read_last=is_away)

    def recall(self, request: str) -> Recall:
        """Return the lessons relevant to a request; the last place between two near-ties may be random."""
        most = MOST_LESSONS + self.offers.lots.are_drawn
        found = self.cortex.recall(request, user=self.user, project=self.project, most=most)
        drawn = edge(self.offers.lots, found.lessons, MOST_LESSONS, item=of_note, worth=worth)
        tied = (drawn.last, drawn.left) if drawn.last and drawn.left else None
        return replace(found, lessons=drawn.taken, tied=tied)

    def credit_lessons(self, request: str) -> None:
        """Credit the lessons shown for a request that succeeded."""
        self.cortex.record_helpful(request, user=self.user, project=self.project)

    def waiting(self) -> int:
        """Return the number of pending lessons."""
        return len(self.cortex.waiting(user=self.user))

    @property
    def in_scratchpad(self) -> tuple[Recalled, ...]:
        """The lessons in the scratchpad tool's description, fixed for the session."""
        return tuple(note for note in self._for_scratchpad if not self._is_withheld(note))

    @property
    def kept_from_scratchpad(self) -> tuple[Recalled, ...]:
        """The lessons withheld from that description."""
        return tuple(note for note in self._for_scratchpad if self._is_withheld(note))

    def _is_withheld(self, note: Recalled) -> bool:
        return self.offers.is_withheld(of_note(note), is_sure=note.is_sure)

    @cached_property
    def _for_scratchpad(self) -> tuple[Recalled, ...]:
        none: tuple[Recalled, ...] = ()
        lessons = partial(self.cortex.scratchpad_lessons, user=self.user, project=self.project)
        return self.outage.unless_away(lessons, none)
