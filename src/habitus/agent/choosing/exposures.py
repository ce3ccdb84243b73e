"""Assigns the exposures of a conversation: what it is shown and what is withheld at random, each decided once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from habitus.agent.prompts.prompt import CUE
from habitus.evidence.model import EvidenceItem, ItemKind, ItemOfferAssignment, UnitRandomizer
from habitus.evidence.versions import AssignedVersion, OldOrNewVersion
from habitus.journal.model import ExposureAssignment
from habitus.memory.recall import RecalledLesson, RecallResult
from habitus.skills.choosing.menu import SkillMenu, format_menu_line
from habitus.skills.choosing.selection import EagerSkill, SkillSelection
from habitus.skills.layers.layer import format_skill_address
from habitus.skills.model import Skill, SkillSummary
from habitus.text import estimate_tokens


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
            make_skill_evidence_item(summary), tokens=size, is_steady=is_steady, is_sure=is_sure, at_edge=at_edge
        )

    def assign_whether_to_show_skill_text(self, skill: Skill) -> bool:
        """Assign a skill shown in full; whether it was used shows in the trace it leaves."""
        return self.assign_whether_to_show_item(
            make_skill_evidence_item(skill), tokens=estimate_tokens(skill.body), is_sure=skill.manifest.always_include
        )

    def record_assigned_version(self, assigned: AssignedVersion) -> None:
        """Record which version of a compared skill the conversation was given."""
        self._versions[assigned.comparison.skill, assigned.comparison.layer] = assigned
        if assigned.is_random:
            item = assigned.comparison.evidence_item
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
            selection,
            eager=tuple(choice for choice in selection.eager if self._keep_eager_skill_or_record_withholding(choice)),
        )

    def _keep_eager_skill_or_record_withholding(self, choice: EagerSkill) -> bool:
        if not self.is_withheld(
            make_skill_evidence_item(choice.summary), is_sure=choice.summary.manifest.always_include
        ):
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
        if self.lots.is_last_place_given_to_second(
            make_skill_evidence_item(known[last]), make_skill_evidence_item(known[left])
        ):
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


def make_skill_evidence_item(skill: SkillSummary) -> EvidenceItem:
    """Return the evidence item of a skill in its layer and version."""
    return EvidenceItem(kind=ItemKind.SKILL, name=format_skill_address(skill.name, skill.layer), version=skill.version)


def make_lesson_evidence_item(note: RecalledLesson) -> EvidenceItem:
    """Return the evidence item of a lesson."""
    return EvidenceItem(kind=ItemKind.LESSON, name=note.id, version=note.engram.version)
