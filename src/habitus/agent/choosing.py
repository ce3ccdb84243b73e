"""Selects the skills for a request, finds others that are relevant, and explains the selection.

Also assigns exposures: which items a conversation is shown and which are withheld at random, each decided once and
recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar

from habitus.agent.prompts import prompt
from habitus.agent.prompts.prompt import CUE
from habitus.events import OutcomeKind
from habitus.evidence.model import (
    EvidenceItem,
    ItemKind,
    ItemOfferAssignment,
    UnitRandomizer,
    select_items_drawing_last_place,
)
from habitus.evidence.versions import AssignedVersion, OldOrNewVersion
from habitus.journal.journal import Journal, list_chosen_non_sticky_skills_of_turn
from habitus.journal.model import ExposureAssignment, SkillPlacementKind, Turn
from habitus.journal.usage import get_deciding_or_heaviest_outcome
from habitus.memory.cortex import Cortex
from habitus.memory.recall import MAX_LESSONS, RecalledLesson, RecallResult, compute_recall_ordering_score
from habitus.search.model import IndexHit, SearchResults
from habitus.skills.choosing import menu
from habitus.skills.choosing.menu import NOT_LISTED, SkillChangesSinceLastVisit, SkillMenu, format_menu_line
from habitus.skills.choosing.selection import (
    STICKY_TURNS,
    EagerSkill,
    PriorTurn,
    SkillSelection,
    UserRequest,
    select_skills,
)
from habitus.skills.layers.layer import Layer, format_skill_address
from habitus.skills.layers.listing import LibrarySnapshot, ListedSkill
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Skill, SkillSummary
from habitus.sql.outage import OutageGuard
from habitus.text import estimate_tokens


def choose_skills(seen: LibrarySnapshot, asked: UserRequest, gates: GateContext, journal: Journal) -> SkillSelection:
    """Select the skills for a request. A turn that it replies to but that is not recorded is ignored."""
    user = asked.user.name
    past = (
        journal.list_recent_turns_of_conversation(asked.conversation, limit=STICKY_TURNS, user=user)
        if asked.conversation
        else []
    )
    answered = journal.find_brief_turn(asked.reply_to, user=user) if asked.reply_to else None
    return select_skills(
        seen.listing,
        asked,
        gates,
        prior=[_to_prior_turn(turn) for turn in past],
        replied_to=None if answered is None else _to_prior_turn(answered),
    )


# Skills that a rule has selected are not on the menu but are found all the same.
_RULED = 5


def find_relevant_skills_on_menu(
    search: Callable[..., SearchResults],
    on_menu: Collection[str],
    *,
    unlisted: Collection[str] = (),
    k: int | None = None,
) -> list[IndexHit]:
    """Return the skills on the menu that search finds relevant, best first; empty if none is close enough.

    Those in `unlisted` have no line of their own: then more are named, and less sure ones too.
    """
    k = get_relevant_skill_limit(unlisted) if k is None else k
    if not on_menu:
        return []
    # Fetching a few more hits is cheaper than restricting the search to the menu.
    results = search(k=k + _RULED)
    hits = [hit for hit in results.hits if hit.id in on_menu][:k]
    if len(hits) < k and len(results.hits) == k + _RULED:
        results = search(k=k, among=on_menu)
        hits = list(results.hits)
    best = hits[0].score if hits else 0.0
    near = best * prompt.NEARLY_AS_FITTING if best >= results.min_confidence else math.inf
    possible = results.min_confidence * prompt.UNLISTED_CONFIDENCE
    return [hit for hit in hits if hit.score >= near or (hit.id in unlisted and hit.score >= possible)]


def get_relevant_skill_limit(unlisted: Collection[str]) -> int:
    """Return how many skills may be named beside a request."""
    return prompt.FITTING_UNLISTED if unlisted else prompt.FITTING


def find_library_news_for_user(
    journal: Journal,
    user: str,
    snapshot: LibrarySnapshot,
    gates: GateContext,
    layers: Sequence[Layer],
    withheld: Collection[str] = (),
) -> SkillChangesSinceLastVisit:
    """Return the skills that are new to this user."""
    visible = menu.list_visible_skill_hashes(snapshot, gates)
    now = {name: hash for name, hash in visible.items() if name not in withheld}
    return menu.find_skill_changes_since_visit(
        journal.get_hashes_of_seen_skills(user),
        now,
        hidden=snapshot.hashes.keys() - now.keys(),
        changelog=lambda: "\n".join(layer.read_changelog() for layer in layers),
    )


def _to_prior_turn(turn: Turn) -> PriorTurn:
    judged = get_deciding_or_heaviest_outcome(turn.outcomes)
    succeeded = judged is not None and judged.kind is OutcomeKind.OK
    return PriorTurn(
        id=turn.id, at=turn.started_on, succeeded=succeeded, skills=list_chosen_non_sticky_skills_of_turn(turn)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillPlacementExplanation:
    """Why one skill was or was not selected for one request."""

    IN_JSON: ClassVar = ("sentences",)

    name: str
    layer: str
    place: SkillPlacementKind
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
    pending: tuple[str, ...] = ()
    # Which of its versions are compared in use, in words; empty if none are.
    compared: str = ""

    @property
    def sentences(self) -> list[str]:
        """The explanation in plain words."""
        said = {
            SkillPlacementKind.EAGER: f"{self.name} is in the prompt in full: {self.reason}.",
            SkillPlacementKind.MENU: (
                f"{self.name} is {self._describe_menu_placement()}; the model loads it when it needs it."
            ),
            SkillPlacementKind.CUT: f"{self.name} is {self.reason}.",
            SkillPlacementKind.LEFT_OUT: f"{self.name} is left out: {self.reason}.",
            SkillPlacementKind.WITHHELD: f"{self.name} is {self.reason}.",
        }[self.place]
        lines = [said]
        if self.menu_budget:
            lines.append(f"The menu takes {self.menu_tokens} of {self.menu_budget} tokens.")
        if self.rank is not None and self.score is not None:
            lines.append(f"For this request it ranks {self.rank}, score {self.score:.2f}{self._format_score_parts()}.")
            if not self.fits:
                lines.append("No skill is relevant enough to suggest for this request.")
        elif self.is_asked and self.place in (SkillPlacementKind.MENU, SkillPlacementKind.CUT):
            lines.append("Nothing in it matches this request.")
        if self.hides:
            lines.append(f"It hides {self._format_copy_addresses(self.hides)}.")
        if self.pending:
            lines.append(f"It would be hidden by {self._format_copy_addresses(self.pending)}, once it is trusted.")
        if self.compared:
            lines.append(self.compared)
        return lines

    def _describe_menu_placement(self) -> str:
        return "on the menu, one line" if self.menu_budget else "found by search_skills"

    def _format_copy_addresses(self, layers: tuple[str, ...]) -> str:
        return ", ".join(f"{self.name}@{layer}" for layer in layers)

    def _format_score_parts(self) -> str:
        parts = [f"{name} {value:+.2f}" for name, value in list(self.parts.items())[:4]]
        return f" ({', '.join(parts)})" if parts else ""


def explain_skill_placement(
    item: ListedSkill, selection: SkillSelection, menu: SkillMenu, results: SearchResults | None
) -> SkillPlacementExplanation:
    """Explain a skill from the results of selection, menu and search; `results` is None without a request."""
    place, reason = _find_skill_placement(item, selection, menu)
    ranked = {found.id: (rank, found) for rank, found in enumerate(results.hits if results else (), 1)}
    rank, hit = ranked.get(item.name, (None, None))
    return SkillPlacementExplanation(
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
        pending=item.awaiting_trust,
    )


def _find_skill_placement(
    item: ListedSkill, selection: SkillSelection, menu: SkillMenu
) -> tuple[SkillPlacementKind, str]:
    for choice in selection.eager:
        if choice.name == item.name:
            return SkillPlacementKind.EAGER, choice.reason
    if item.name not in selection.list_eligible_names():
        return SkillPlacementKind.LEFT_OUT, selection.left_out.get(item.name, f"{item.state.value}: {item.reason}")
    if item.name in menu.cut:
        return SkillPlacementKind.CUT, NOT_LISTED
    return SkillPlacementKind.MENU, "eligible, and no rule puts it into the prompt"


class ExposureAssigner:
    """Assigns the exposures of a conversation. Shown text stays in the history, so the first assignment holds.

    Every method that begins with `assign_` says whether an item may be shown, and records the assignment either way.
    """

    def __init__(self, lots: UnitRandomizer | None = None) -> None:
        self.lots = lots or UnitRandomizer()
        self._noted: dict[tuple[bool, EvidenceItem], ExposureAssignment] = {}
        # Exposures that the journal already has.
        self._told: set[tuple[bool, EvidenceItem]] = set()
        self._versions: dict[tuple[str, str], AssignedVersion] = {}

    def assign_whether_to_show_item(
        self,
        item: EvidenceItem,
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
        assigned = self.lots.assign(item, is_never_withheld=is_sure)
        # A trial has assigned the item for this request only.
        is_steady = is_steady and not self.lots.is_item_fixed_by_trial(item)
        if at_edge is not None:
            # Each of the two tied items had half a chance of the last place.
            assigned = ItemOfferAssignment(
                is_offered=assigned.is_offered and at_edge, propensity=assigned.propensity / 2
            )
        exposure = ExposureAssignment(
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

    def assign_whether_to_show_skill_line(
        self, summary: SkillSummary, *, cue: int = CUE, is_steady: bool = False, at_edge: bool | None = None
    ) -> bool:
        """Assign a skill shown as one line, on the menu or beside a request."""
        size, is_sure = estimate_tokens(format_menu_line(summary, cue)), summary.manifest.always_include
        return self.assign_whether_to_show_item(
            make_skill_item(summary), tokens=size, is_steady=is_steady, is_sure=is_sure, at_edge=at_edge
        )

    def assign_whether_to_show_skill_text(self, skill: Skill) -> bool:
        """Assign a skill shown in full; whether it was used shows in the trace it leaves."""
        return self.assign_whether_to_show_item(
            make_skill_item(skill), tokens=estimate_tokens(skill.body), is_sure=skill.manifest.always_include
        )

    def record_assigned_version(self, assigned: AssignedVersion) -> None:
        """Record which version of a compared skill the conversation was given."""
        self._versions[assigned.comparison.skill, assigned.comparison.layer] = assigned
        if assigned.is_random:
            item = assigned.comparison.item
            exposure = ExposureAssignment(
                kind=item.kind.value,
                item=item.name,
                version=item.version,
                is_offered=assigned.assignment is OldOrNewVersion.NEW,
                propensity=1 - assigned.comparison.share,
            )
            self._noted.setdefault((False, item), exposure)

    @property
    def assigned_versions(self) -> Mapping[tuple[str, str], AssignedVersion]:
        """The versions of compared skills that the conversation was given, by name and layer."""
        return self._versions

    def assign_whether_to_show_lesson(
        self, note: RecalledLesson, *, is_steady: bool = False, at_edge: bool | None = None
    ) -> bool:
        """Assign a lesson or rule."""
        return self.assign_whether_to_show_item(
            make_lesson_evidence_item(note),
            tokens=estimate_tokens(note.prompt_line),
            is_steady=is_steady,
            is_sure=note.is_confirmed_by_person,
            is_read=True,
            at_edge=at_edge,
        )

    def assign_and_filter_showable_lessons(self, remembered: RecallResult) -> tuple[RecalledLesson, ...]:
        """Return the relevant lessons that may be shown."""
        last, left = remembered.tied or (None, None)
        if left is not None:
            self.assign_whether_to_show_lesson(left, at_edge=False)
        return tuple(
            note
            for note in remembered.lessons
            if self.assign_whether_to_show_lesson(note, at_edge=(note == last) or None)
        )

    def drop_withheld_eager_skills(self, selection: SkillSelection) -> SkillSelection:
        """Return the selection without withheld skills, so they claim nothing in the prompt either."""
        return replace(
            selection, eager=tuple(choice for choice in selection.eager if self._can_show_eager_skill(choice))
        )

    def _can_show_eager_skill(self, choice: EagerSkill) -> bool:
        if not self.is_withheld(make_skill_item(choice.summary), is_sure=choice.summary.manifest.always_include):
            return True
        return self.assign_whether_to_show_skill_line(choice.summary)

    def build_session_menu(self, selection: SkillSelection, drawn: Callable[[str], SkillMenu]) -> SkillMenu:
        """Build the session menu without withheld skills. `drawn(name)` builds the menu that prefers this skill in a
        tie.
        """
        known = {summary.name: summary for summary in selection.menu}
        menu, tied = self._break_menu_tie_at_random(drawn(""), drawn, known)
        return menu.without_skills(
            {
                name
                for name in {**dict.fromkeys(menu.shown), **tied}
                if not self.assign_whether_to_show_skill_line(
                    known[name], cue=menu.max_line_length, is_steady=True, at_edge=tied.get(name)
                )
            }
        )

    def _break_menu_tie_at_random(
        self, menu: SkillMenu, drawn: Callable[[str], SkillMenu], known: Mapping[str, SkillSummary]
    ) -> tuple[SkillMenu, dict[str, bool]]:
        """Decide at random if the last line and the first one without room are tied and interchangeable."""
        if menu.tie is None or not self.lots.is_active:
            return menu, {}
        last, left = menu.tie
        other = drawn(left)
        if {*menu.shown} ^ {*other.shown} != {last, left}:
            return menu, {}
        if self.lots.is_last_place_given_to_second(make_skill_item(known[last]), make_skill_item(known[left])):
            return other, {left: True, last: False}
        return menu, {last: True, left: False}

    @property
    def withheld_skill_names(self) -> frozenset[str]:
        """The names of skills that would have been shown but are withheld."""
        items = [item for (_, item), noted in self._noted.items() if not noted.is_offered]
        return frozenset(item.name.partition("@")[0] for item in items if item.kind is ItemKind.SKILL)

    def is_withheld(self, item: EvidenceItem, *, is_sure: bool = False) -> bool:
        """Whether an item is, or would be, withheld."""
        return not self.lots.assign(item, is_never_withheld=is_sure).is_offered

    def list_turn_exposures(
        self, request_kind: str, used: Mapping[EvidenceItem, bool]
    ) -> tuple[ExposureAssignment, ...]:
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


def make_skill_item(skill: SkillSummary) -> EvidenceItem:
    """Return the evidence item of a skill in its layer and version."""
    return EvidenceItem(kind=ItemKind.SKILL, name=format_skill_address(skill.name, skill.layer), version=skill.version)


def make_lesson_evidence_item(note: RecalledLesson) -> EvidenceItem:
    """Return the evidence item of a lesson."""
    return EvidenceItem(kind=ItemKind.LESSON, name=note.id, version=note.engram.version)


@dataclass(frozen=True, kw_only=True)
class UserProjectMemory:
    """Memory for one user and project in a session."""

    cortex: Cortex
    user: str
    project: str
    outage: OutageGuard = field(default_factory=OutageGuard)
    offers: ExposureAssigner = field(default_factory=ExposureAssigner)

    def recall_profile_and_rules(self, *, is_away: bool = False) -> RecallResult:
        """Return the profile and rules for the system prompt, which hold for every request.

        With `is_away`, the last ones that were read.
        """
        return self.cortex.recall("", user=self.user, project=self.project, use_cache=is_away)

    def recall_lessons(self, request: str) -> RecallResult:
        """Return the lessons relevant to a request; the last place between two near-ties may be random."""
        most = MAX_LESSONS + self.offers.lots.is_active
        found = self.cortex.recall(request, user=self.user, project=self.project, max_lessons=most)
        drawn = select_items_drawing_last_place(
            self.offers.lots,
            found.lessons,
            MAX_LESSONS,
            item=make_lesson_evidence_item,
            score=compute_recall_ordering_score,
        )
        tied = (drawn.last, drawn.left_out) if drawn.last and drawn.left_out else None
        return replace(found, lessons=drawn.taken, tied=tied)

    def credit_lessons_for_successful_request(self, request: str) -> None:
        """Credit the lessons shown for a request that succeeded."""
        self.cortex.record_helpful(request, user=self.user, project=self.project)

    def count_pending_lessons(self) -> int:
        """Return the number of pending lessons."""
        return len(self.cortex.list_pending_lessons(user=self.user))

    @property
    def scratchpad_description_lessons(self) -> tuple[RecalledLesson, ...]:
        """The lessons in the scratchpad tool's description, fixed for the session."""
        is_withheld = self.offers.is_withheld
        return tuple(
            note
            for note in self.scratchpad_lessons_with_withheld
            if not is_withheld(make_lesson_evidence_item(note), is_sure=note.is_confirmed_by_person)
        )

    @cached_property
    def scratchpad_lessons_with_withheld(self) -> tuple[RecalledLesson, ...]:
        """The same lessons with those that are withheld."""
        lessons = partial(self.cortex.recall_scratchpad_lessons, user=self.user, project=self.project)
        return self.outage.read_or_default(lessons, ())
