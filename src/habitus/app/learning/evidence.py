"""The evidence of a home: exposures from the journal and what they prove about each item (see `habitus.evidence`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from habitus import sql
from habitus.errors import HabitusError, NotFound, did_you_mean
from habitus.evidence.findings import NO_SUMS, EvidenceFindings, ItemFinding, add_observations, collect_findings
from habitus.evidence.model import EvidenceItem, ItemKind, Observation
from habitus.evidence.sums import EvidenceSums, pack_sums, unpack_sums
from habitus.journal.evidence_records import SETTLING_PERIOD
from habitus.journal.journal import Journal
from habitus.journal.model import CachedEvidenceSums, RecordedExposure, TurnOrigin
from habitus.skills.layers.layer import format_address
from habitus.skills.layers.listing import ListedSkill

# The share that a plan assumes while nothing is withheld.
ASSUMED_SHARE = 0.1
# In days.
_MAX_SUMS_AGE_DAYS = 7.0
# Seconds to wait for a busy database: cached sums are not worth a longer wait.
_WRITE_PATIENCE_S = 1.0
# An item by its kind and name, without a version.
ItemKey = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceService:
    """Computes findings from the exposures in the journal.

    Findings take every later outcome into account: cached sums of older conversations are dropped when one of those
    changes.
    """

    journal: Journal
    clock: Callable[[], datetime]
    # The share of offers that is withheld at random; 0 turns trials off.
    share: float
    # Raises if nothing can be stored here.
    refuse_changes: Callable[[], None]
    # The number of settled conversations from which on sums are cached.
    cache_threshold: int = 64

    def list_exposures(self) -> list[RecordedExposure]:
        """Return all stored exposures, oldest first."""
        return self.journal.load_exposures()

    def compute_findings(self) -> EvidenceFindings:
        """Return the findings about every skill version, lesson, recipe and tool that was offered or withheld."""
        return self.compute_findings_and_chosen()[0]

    def compute_findings_and_chosen(self) -> tuple[EvidenceFindings, frozenset[tuple[str, str]]]:
        """Return the findings, and the items that were ever chosen for a request."""
        rows, kept = self.journal.load_exposures_and_sums()
        now = self.clock()
        settled = _CachedSums.unpack_from(kept, now)
        by_request = settled.chosen | list_chosen_items(rows)
        # An item first chosen now must be counted differently in old conversations, so the cached sums no longer hold.
        if kept.sums and not settled.is_valid_for(by_request):
            rows, settled = self.list_exposures(), _CachedSums()
            by_request = list_chosen_items(rows)
        rest = [one for one in rows if one.unit not in settled.late]
        old = frozenset(one.unit for one in rest if one.at <= now - SETTLING_PERIOD and _is_counted(one, by_request))
        if len(old) >= self.cache_threshold:
            settled = settled.extend(rows, old, by_request, now)
            rest = [one for one in rest if one.unit not in old]
            self._store_sums(
                CachedEvidenceSums(changes=kept.changes, until=now - SETTLING_PERIOD, sums=settled.pack(now))
            )
        young = make_observations(rest, by_request, now)
        found = collect_findings(
            young, withhold=self.share or ASSUMED_SHARE, settled=settled.sums, today=_count_days_since_epoch(now)
        )
        return found, by_request

    def _store_sums(self, sums: CachedEvidenceSums) -> None:
        """Cache the sums; on failure, the next query caches them."""
        with suppress(HabitusError), sql.limit_busy_wait(_WRITE_PATIENCE_S):
            self.refuse_changes()
            self.journal.save_sums(sums)

    def find_item(self, name: str) -> tuple[ItemFinding, ...]:
        """Return the findings about each version of an item.

        `name` is a skill's name, a lesson's id, or the name of a recipe or tool.
        """
        found = self.compute_findings().items
        mine = tuple(one for one in found if name in (one.item.name, one.item.name.partition("@")[0]))
        if not mine:
            near = did_you_mean(name, sorted({one.item.name for one in found}))
            raise NotFound(f"There is no evidence about '{name}' yet.", hint=near or "It was never offered.")
        return mine

    def find_skill(self, item: ListedSkill) -> tuple[ItemFinding, ...]:
        """Return the findings about each version of a skill, newest first."""
        name = format_address(item.name, item.layer)
        skills = [one for one in self.compute_findings().items if one.item.kind is ItemKind.SKILL]
        return tuple(sorted((one for one in skills if one.item.name == name), key=lambda one: -one.item.version))

    def erase_user(self, user: str) -> int:
        """Erase the exposures and outcomes of a user's conversations; return the number of erased entries."""
        self.refuse_changes()
        return self.journal.erase_user_evidence(user)


@dataclass(frozen=True, kw_only=True, slots=True)
class _CachedSums:
    """Sums over older conversations, with the conditions under which they are valid."""

    sums: EvidenceSums = NO_SUMS
    # Items chosen for a request in these conversations.
    chosen: frozenset[ItemKey] = frozenset()
    # Items in a steady part of their prompts.
    steady: frozenset[ItemKey] = frozenset()
    # Steady items that are not counted there because they were chosen elsewhere.
    apart: frozenset[ItemKey] = frozenset()
    # Conversations among them that had further offers later.
    late: frozenset[str] = frozenset()

    @classmethod
    def unpack_from(cls, kept: CachedEvidenceSums, now: datetime) -> _CachedSums:
        """Unpack the cached sums; empty if there are none or they are older than a week."""
        found = unpack_sums(kept.sums) if kept.sums else None
        # Rebuilt every week, because an older release may have changed a row without noting the change.
        if found is None or not 0 <= _count_days_since_epoch(now) - found[1]["made"] <= _MAX_SUMS_AGE_DAYS:
            return cls()
        sums, words = found
        named = {name: frozenset((kind, item) for kind, item in words[name]) for name in ("chosen", "steady", "apart")}
        return cls(sums=sums, late=frozenset(words["late"]), **named)

    def is_valid_for(self, by_request: frozenset[ItemKey]) -> bool:
        return self.sums is not NO_SUMS and self.steady & by_request == self.apart

    def extend(
        self, rows: Sequence[RecordedExposure], old: Set[str], by_request: frozenset[ItemKey], now: datetime
    ) -> _CachedSums:
        """Return the sums extended by the `old` conversations; `rows` are all exposures since the last extension."""
        until, units = now - SETTLING_PERIOD, self.late | old
        added = [one for one in rows if one.at <= until or one.unit in units]
        steady = self.steady | {_make_item_key(one) for one in added if one.exposure.is_steady}
        counted = make_observations([one for one in rows if one.unit in old], by_request, now)
        return _CachedSums(
            sums=add_observations(counted, settled=self.sums, today=_count_days_since_epoch(now)),
            chosen=self.chosen | list_chosen_items(added),
            steady=steady,
            apart=steady & by_request,
            late=frozenset(one.unit for one in rows if one.unit in units and one.at > until),
        )

    def pack(self, now: datetime) -> bytes:
        words = {name: sorted(getattr(self, name)) for name in ("chosen", "steady", "apart", "late")}
        return pack_sums(self.sums, {"made": _count_days_since_epoch(now), **words})


def _count_days_since_epoch(now: datetime) -> float:
    return now.timestamp() / 86_400


def list_chosen_items(kept: Iterable[RecordedExposure]) -> frozenset[ItemKey]:
    """Return the items that were ever chosen for a request; all others only stood in a steady part of prompts."""
    return frozenset(_make_item_key(one) for one in kept if not one.exposure.is_steady)


def _make_item_key(kept: RecordedExposure) -> ItemKey:
    return kept.exposure.kind, kept.exposure.item


def make_observations(kept: Iterable[RecordedExposure], by_request: Set[ItemKey], now: datetime) -> list[Observation]:
    """Return the exposures as observations for the estimates: one per unit, in order of time.

    An item that was ever chosen for a request is judged by the conversations in which it was chosen: its line on the
    menu of all others would only dilute the effect. Items that only stood in a steady part are judged by those
    sessions.
    """
    items: dict[tuple[str, str, int], EvidenceItem] = {}
    return [_make_observation(one, now, items) for one in kept if _is_counted(one, by_request)]


def _is_counted(kept: RecordedExposure, by_request: Set[ItemKey]) -> bool:
    return kept.exposure.is_steady is not (_make_item_key(kept) in by_request)


def _make_observation(
    kept: RecordedExposure, now: datetime, items: dict[tuple[str, str, int], EvidenceItem]
) -> Observation:
    exposure, went = kept.exposure, kept.explicit_scores or kept.inferred_scores
    key = (exposure.kind, exposure.item, exposure.version)
    if key not in items:
        items[key] = EvidenceItem(kind=ItemKind(exposure.kind), name=exposure.item, version=exposure.version)
    return Observation(
        unit=kept.unit,
        item=items[key],
        is_offered=exposure.is_offered,
        propensity=exposure.propensity,
        is_used=exposure.is_used,
        has_trace=not exposure.is_ignored if exposure.is_used else None,
        success=sum(went) / len(went) if went else None,
        is_explicit=bool(kept.explicit_scores) or not went,
        request_kind=exposure.request_kind,
        tokens=exposure.tokens,
        is_trial=kept.origin is TurnOrigin.TRIAL,
        # Never negative, even if the clock was set back.
        age_days=max((now - kept.at).total_seconds() / 86_400, 0.0),
    )
