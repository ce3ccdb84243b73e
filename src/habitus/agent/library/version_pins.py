"""Which version of a compared skill a conversation gets, decided once and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from habitus.agent.choosing.exposures import ExposureAssigner
from habitus.evidence.model import UnitRandomizer
from habitus.evidence.versions import AssignedVersion, LiveComparison, OldOrNewVersion, assign_conversation_version
from habitus.skills.layers.listing import LibrarySnapshot
from habitus.skills.library import Library
from habitus.skills.model import SkillSummary


@dataclass(kw_only=True, eq=False)
class ConversationVersionPins:
    """The versions that one conversation gets of the skills that are compared in use."""

    # Reads the comparisons that assign versions.
    load: Callable[[], Sequence[LiveComparison]]
    # Returns when the conversation began, and how it is randomised.
    open_assignment: Callable[[], tuple[datetime, UnitRandomizer]]
    offers: ExposureAssigner
    _opened: tuple[datetime, UnitRandomizer] | None = None
    _seen: LibrarySnapshot | None = None
    _pinned: LibrarySnapshot | None = None
    _assigned: dict[str, AssignedVersion] = field(default_factory=dict)

    def find_assigned_version(self, skill: SkillSummary) -> AssignedVersion | None:
        """Return the assignment of a skill that is compared; None for all others."""
        assigned = self._assigned.get(skill.name)
        return assigned if assigned is not None and assigned.version == skill.version else None

    def apply_pins_to_snapshot(self, seen: LibrarySnapshot, library: Library, user: str) -> LibrarySnapshot:
        """Return the snapshot with this conversation's versions; the same object for the same one."""
        # A comparison that begins without a new version of the skill leaves the open conversations alone.
        if self._seen is seen and self._pinned is not None:
            return self._pinned
        found = (
            self._assign_compared_version(one) for one in self.load() if _is_comparison_current(seen, library, one)
        )
        assigned = {one.comparison.skill: one for one in found if one is not None}
        self._assigned = assigned
        for one in assigned.values():
            if one.comparison.is_cue_changed:
                self.offers.record_assigned_version(one)
        old = {name: one.version for name, one in assigned.items() if one.assignment is OldOrNewVersion.OLD}
        self._seen, self._pinned = seen, library.pin_versions(seen, old, user=user) if old else seen
        return self._pinned

    def _assign_compared_version(self, comparison: LiveComparison) -> AssignedVersion | None:
        if self._opened is None:
            self._opened = self.open_assignment()
        began_on, lots = self._opened
        known = self._assigned.get(comparison.skill)
        if known is not None and known.comparison.evidence_item == comparison.evidence_item:
            return replace(known, comparison=comparison)
        return assign_conversation_version(comparison, lots, began_on)


def _is_comparison_current(seen: LibrarySnapshot, library: Library, one: LiveComparison) -> bool:
    """Whether the changed version is the current one: a later edit, or a rollback, holds for every conversation."""
    item = seen.by_name.get(one.skill)
    if item is None or item.summary is None or (item.layer, item.summary.version) != (one.layer, one.new):
        return False
    return library.get_layer(item.layer).store.key == one.layer_key
