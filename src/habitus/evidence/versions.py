"""Which version of a skill a conversation gets while a change is compared in use with the version before it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from habitus.evidence.model import EffectEstimate, EvidenceItem, ItemKind, UnitRandomizer

COMPARISON_PERIOD = timedelta(days=60)


class ComparisonState(StrEnum):
    RUNNING = "running"
    KEPT = "kept"
    ROLLED_BACK = "rolled back"
    SUPERSEDED = "superseded"  # by a newer edit
    NOT_SHOWN = "kept, not shown in use"
    STOPPED = "stopped"  # by a person


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveComparison:
    """A change of a skill that is compared in use with the version before it."""

    skill: str
    layer: str
    layer_key: str  # of the layer's store, which is unique across projects
    old: int
    new: int
    share: float  # of conversations that get the old version
    changed_on: datetime  # when the new version came into force
    started_on: datetime
    is_cue_changed: bool = False  # then the text is not what makes a model load it, and every conversation counts
    exam: EffectEstimate | None = None  # of the change, with its 95 % interval
    candidate: str = ""  # of `improve`
    state: ComparisonState = ComparisonState.RUNNING
    ended_on: datetime | None = None
    proposal: int | None = None  # to roll it back

    @property
    def evidence_item(self) -> EvidenceItem:
        """The change as the item that evidence is counted for."""
        return EvidenceItem(kind=ItemKind.CHANGE, name=f"{self.skill}@{self.layer_key}", version=self.new)


class OldOrNewVersion(StrEnum):
    OLD = "old"
    NEW = "new"


@dataclass(frozen=True, kw_only=True, slots=True)
class AssignedVersion:
    """The version of a compared skill that one conversation gets."""

    comparison: LiveComparison
    assignment: OldOrNewVersion
    is_random: bool = True  # else it began before the comparison, and doesn't count

    @property
    def version(self) -> int:
        return self.comparison.old if self.assignment is OldOrNewVersion.OLD else self.comparison.new

    @property
    def reason(self) -> str:
        """Why the conversation has this version, in words."""
        one = self.comparison
        if not self.is_random:
            return f"version {self.version}, as when the conversation began; later ones compare {one.old} and {one.new}"
        other = one.new if self.version == one.old else one.old
        return f"version {self.version}, drawn to be compared with version {other}"


def assign_conversation_version(
    comparison: LiveComparison, lots: UnitRandomizer, began_on: datetime
) -> AssignedVersion | None:
    """Return the version for a conversation: it keeps what it began with, and what it once drew.

    None if it began after the comparison had ended.
    """
    if comparison.ended_on is not None and began_on >= comparison.ended_on:
        return None
    if began_on < comparison.started_on:
        is_old = began_on < comparison.changed_on
        return AssignedVersion(
            comparison=comparison,
            assignment=OldOrNewVersion.OLD if is_old else OldOrNewVersion.NEW,
            is_random=False,
        )
    gets_new = lots.gets_changed_version(comparison.evidence_item, comparison.share)
    return AssignedVersion(comparison=comparison, assignment=OldOrNewVersion.NEW if gets_new else OldOrNewVersion.OLD)
