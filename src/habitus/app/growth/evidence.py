"""Evidence (`habitus.evidence`): what was offered or withheld and how it went, and what that proves of each item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from habitus.errors import NotFound, did_you_mean
from habitus.evidence.findings import Finding, Findings, findings
from habitus.evidence.model import Item, ItemKind, Observation
from habitus.journal.journal import Journal
from habitus.journal.model import KeptExposure, Origin
from habitus.skills.layers import address
from habitus.skills.listing import Listed

USUAL_SHARE = 0.1  # what a plan reckons with while nothing is withheld


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Everything is worked out anew from what is kept, so that it follows every outcome that comes later."""

    journal: Journal
    clock: Callable[[], datetime]
    share: float  # of offers that is withheld at random; 0 is off
    refuse_changes: Callable[[], None]  # where nothing can be kept

    def exposures(self) -> list[KeptExposure]:
        """All that is kept, oldest first."""
        return self.journal.exposures()

    def findings(self, kept: Sequence[KeptExposure] | None = None) -> Findings:
        """Of every skill version, lesson, recipe and tool that was offered or withheld, what is known."""
        rows = observed(self.exposures() if kept is None else kept, self.clock())
        return findings(rows, withhold=self.share or USUAL_SHARE)

    def of(self, name: str) -> tuple[Finding, ...]:
        """The same of each version of one item: a skill's name, a lesson's id, the name of a recipe or a tool."""
        found = self.findings().items
        mine = tuple(one for one in found if name in (one.item.name, one.item.name.partition("@")[0]))
        if not mine:
            near = did_you_mean(name, sorted({one.item.name for one in found}))
            raise NotFound(f"There is no evidence about '{name}' yet.", mend=near or "It was never offered.")
        return mine

    def of_skill(self, item: Listed) -> tuple[Finding, ...]:
        """Of each version of a skill that was offered or withheld, the newest first."""
        name = address(item.name, item.layer)
        skills = [one for one in self.findings().items if one.item.kind is ItemKind.SKILL]
        return tuple(sorted((one for one in skills if one.item.name == name), key=lambda one: -one.item.version))

    def forget_user(self, user: str) -> int:
        """Erase what a user's conversations were offered and how they went; how many entries went."""
        self.refuse_changes()
        return self.journal.erase_evidence(user)


def chosen(kept: Iterable[KeptExposure]) -> set[tuple[str, str]]:
    """What was ever chosen for a request, by kind and name; the rest only stood in a steady part of prompts."""
    return {(one.exposure.kind, one.exposure.item) for one in kept if not one.exposure.is_steady}


def observed(kept: Sequence[KeptExposure], now: datetime) -> list[Observation]:
    """Exposures as estimates count them: once a unit, in the order of time.

    What was ever chosen for a request is judged by the conversations in which it was: a line on the menu of all the
    others would only thin the effect out. What only ever stood in a steady part is judged by the sessions it stood in.
    """
    by_request = chosen(kept)
    return [
        _observation(one, now)
        for one in kept
        if one.exposure.is_steady is not ((one.exposure.kind, one.exposure.item) in by_request)
    ]


def _observation(kept: KeptExposure, now: datetime) -> Observation:
    exposure, went = kept.exposure, kept.said or kept.seemed
    return Observation(
        unit=kept.unit,
        item=Item(kind=ItemKind(exposure.kind), name=exposure.item, version=exposure.version),
        is_offered=exposure.is_offered,
        propensity=exposure.propensity,
        is_used=exposure.is_used,
        has_trace=not exposure.is_ignored if exposure.is_used else None,
        success=fmean(went) if went else None,
        is_explicit=bool(kept.said) or not went,
        request_kind=exposure.request_kind,
        tokens=exposure.tokens,
        is_trial=kept.origin is Origin.TRIAL,
        age_days=max((now - kept.at).total_seconds() / 86_400, 0.0),  # a clock may have been set back
    )
