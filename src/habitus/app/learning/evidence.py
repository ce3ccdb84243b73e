"""The evidence of a home: exposures from the journal and what they prove about each item (see `habitus.evidence`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from habitus import sql
from habitus.errors import HabitusError, NotFound, did_you_mean
from habitus.evidence.findings import (
    NO_SUMS,
    EvidenceFindings,
    ItemFinding,
    add_observations_to_sums,
    collect_evidence_findings,
)
from habitus.evidence.model import EvidenceItem, ItemKind, ItemObservation
from habitus.evidence.regression import ObservationTable
from habitus.evidence.sums import (
    EvidenceCountKind,
    EvidenceSums,
    deserialize_sums,
    find_rows_of_count_kind,
    serialize_sums,
)
from habitus.journal.evidence_records import SETTLING_PERIOD, get_age_bucket_of_cached_sums
from habitus.journal.journal import Journal
from habitus.journal.model import CachedEvidenceSums, ScoredExposure, TurnOrigin
from habitus.skills.layers.layer import format_skill_address
from habitus.skills.layers.listing import ListedSkill

# The share that a plan assumes while nothing is withheld.
ASSUMED_SHARE = 0.1
# Seconds to wait for a busy database: cached sums are not worth a longer wait.
_WRITE_PATIENCE_S = 1.0
# An item by its kind and name, without a version.
ItemKey = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceService:
    """Computes findings from the exposures in the journal.

    Findings take every later outcome into account: cached sums are dropped when a conversation in them changes.
    """

    journal: Journal
    clock: Callable[[], datetime]
    # The share of offers that is withheld at random; 0 turns trials off.
    share: float
    # Raises if nothing can be stored here.
    refuse_changes: Callable[[], None]
    # The number of settled conversations from which on sums are cached.
    cache_threshold: int = 64
    # The number of conversations that are read at once.
    batch_size: int = 200

    def compute_findings(self) -> EvidenceFindings:
        """Return the findings about every skill version, lesson, recipe and tool that was offered or withheld."""
        return self.compute_findings_and_chosen_items()[0]

    def compute_findings_and_chosen_items(self) -> tuple[EvidenceFindings, frozenset[tuple[str, str]]]:
        """Return the findings, and the items that were ever chosen for a request."""
        now = self.clock()
        horizon = now - SETTLING_PERIOD
        settled, by_request, changes = self._load_cached_sums_and_chosen_items(horizon)
        sums, young = self._extend_sums_by_later_conversations(settled, horizon, by_request, changes=changes)
        found = collect_evidence_findings(
            convert_exposures_to_observations(young, by_request, now),
            withhold=self.share or ASSUMED_SHARE,
            settled=sums,
            today=_count_days_since_epoch(now),
        )
        return found, by_request

    def sum_conversations(self, until: datetime) -> tuple[EvidenceSums, Sequence[ScoredExposure], frozenset[ItemKey]]:
        """Return the sums of the conversations that began until then, the exposures of later ones, and the items ever
        chosen for a request.
        """
        settled, by_request, _ = self._load_cached_sums_and_chosen_items(until)
        sums, later = self._extend_sums_by_later_conversations(settled, until, by_request)
        return sums, later, by_request

    def _load_cached_sums_and_chosen_items(
        self, until: datetime
    ) -> tuple[_UnpackedEvidenceSums, frozenset[ItemKey], int]:
        """Return the latest valid sums of conversations that began until then, the items ever chosen for a request, and
        the count of resets.
        """
        kept = self.journal.load_latest_cached_evidence_sums(until)
        changes = kept.changes
        while kept.until is not None:
            settled = _UnpackedEvidenceSums.unpack_from(kept)
            by_request = settled.chosen | self.journal.list_items_chosen_for_requests(since=settled.until)
            # An item first chosen now must be counted differently in old conversations.
            if settled.until is not None and not settled.steady & by_request:
                return settled, by_request, changes
            kept = self.journal.load_latest_cached_evidence_sums(kept.until - timedelta.resolution)
        return _UnpackedEvidenceSums(), self.journal.list_items_chosen_for_requests(), changes

    def _extend_sums_by_later_conversations(
        self,
        settled: _UnpackedEvidenceSums,
        until: datetime,
        by_request: frozenset[ItemKey],
        *,
        changes: int | None = None,
    ) -> tuple[EvidenceSums, list[ScoredExposure]]:
        """Return the sums extended by the conversations that began until then, and the exposures of later ones.

        With the count of resets the sums are cached, also some on the way, to which a late judgement can go back.
        """
        now, sums, units, steady = self.clock(), settled.sums, settled.units, set(settled.steady)
        later: list[ScoredExposure] = []
        last_offers: dict[str, datetime] = {}

        def reach(end: datetime, late: frozenset[str] = frozenset()) -> _UnpackedEvidenceSums:
            return _UnpackedEvidenceSums(
                sums=sums,
                units=units,
                chosen=settled.chosen | self.journal.list_items_chosen_for_requests(since=settled.until, until=end),
                steady=frozenset(steady),
                late=late | {unit for unit, at in last_offers.items() if at > end},
                until=end,
            )

        cached, end = settled, settled.until
        batches = self.journal.iterate_exposure_batches(by_request, since=settled.until, size=self.batch_size)
        for batch in batches:
            is_older = end is not None and get_age_bucket_of_cached_sums(now - end) > get_age_bucket_of_cached_sums(
                now - batch.until
            )
            if end and is_older and changes is not None and units - cached.units >= self.cache_threshold:
                # Those that had further offers before stay among the late ones until all batches are read.
                cached = reach(end, settled.late)
                self._store_sums(cached, changes)
            end, rows = batch.until, batch.exposures
            new = [one for one in rows if one.unit not in settled.late and _is_exposure_counted(one, by_request)]
            old = {one.unit for one in new if one.at <= until}
            counted = [one for one in new if one.unit in old]
            sums = add_observations_to_sums(
                convert_exposures_to_observations(counted, by_request, now),
                settled=sums,
                today=_count_days_since_epoch(now),
            )
            units += len(old)
            steady |= {_make_item_key(one) for one in counted if one.exposure.is_steady}
            last_offers |= {one.unit: one.at for one in rows if one.unit in old | settled.late}
            later += [one for one in new if one.unit not in old]
        if changes is not None and units - cached.units >= self.cache_threshold:
            self._store_sums(reach(until), changes)
        return sums, later

    def _store_sums(self, sums: _UnpackedEvidenceSums, changes: int) -> None:
        """Cache the sums; on failure, the next query caches them."""
        with suppress(HabitusError), sql.limit_busy_wait(_WRITE_PATIENCE_S):
            self.refuse_changes()
            self.journal.save_evidence_sums_unless_reset(
                CachedEvidenceSums(changes=changes, until=sums.until, sums=sums.pack())
            )

    def find_item_findings(self, name: str) -> tuple[ItemFinding, ...]:
        """Return the findings about each version of an item.

        `name` is a skill's name, a lesson's id, or the name of a recipe or tool.
        """
        found = self.compute_findings().items
        mine = tuple(one for one in found if name in (one.item.name, one.item.name.partition("@")[0]))
        if not mine:
            near = did_you_mean(name, sorted({one.item.name for one in found}))
            raise NotFound(f"There is no evidence about '{name}' yet.", hint=near or "It was never offered.")
        return mine

    def find_skill_findings(self, item: ListedSkill) -> tuple[ItemFinding, ...]:
        """Return the findings about each version of a skill, newest first."""
        name = format_skill_address(item.name, item.layer)
        skills = [one for one in self.compute_findings().items if one.item.kind is ItemKind.SKILL]
        return tuple(sorted((one for one in skills if one.item.name == name), key=lambda one: -one.item.version))

    def list_counted_conversations(
        self, item: EvidenceItem, of: EvidenceCountKind, *, is_offered: bool | None = None
    ) -> list[ScoredExposure]:
        """Return the exposures of an item, one per conversation and latest first, that a count of its finding counts;
        `is_offered` None means offered or withheld.
        """
        by_request = self.journal.list_items_chosen_for_requests()
        read = self.journal.load_scored_exposures([item.name], chosen=by_request)
        mine = [one for one in read if _is_exposure_counted(one, by_request) and _make_evidence_item(one) == item]
        # As in the table, the last exposure of a conversation counts.
        units = {one.unit: one for one in mine}
        rows = ObservationTable.from_observations(convert_exposures_to_observations(mine, by_request, self.clock()))
        is_counted = find_rows_of_count_kind(rows, of)
        if is_offered is not None:
            is_counted &= rows.is_offered == is_offered
        numbered = list(units.values())
        return sorted((numbered[number] for number in rows.unit[is_counted]), key=lambda one: one.at, reverse=True)

    def erase_user(self, user: str) -> int:
        """Erase the exposures and outcomes of a user's conversations; return the number of erased entries."""
        self.refuse_changes()
        return self.journal.erase_user_evidence(user)


@dataclass(frozen=True, kw_only=True, slots=True)
class _UnpackedEvidenceSums:
    """Sums over older conversations, with the conditions under which they are valid."""

    sums: EvidenceSums = NO_SUMS
    # How many conversations.
    units: int = 0
    # Items chosen for a request until then.
    chosen: frozenset[ItemKey] = frozenset()
    # Items that are counted by having stood in a steady part of prompts.
    steady: frozenset[ItemKey] = frozenset()
    # Conversations among them that had further offers later.
    late: frozenset[str] = frozenset()
    # They count the conversations that began until then; None if there are none.
    until: datetime | None = None

    @classmethod
    def unpack_from(cls, kept: CachedEvidenceSums) -> _UnpackedEvidenceSums:
        """Unpack the cached sums; empty if there are none."""
        found = deserialize_sums(kept.sums) if kept.sums else None
        if found is None or kept.until is None:
            return cls()
        sums, words = found
        named = {name: frozenset((kind, item) for kind, item in words[name]) for name in ("chosen", "steady")}
        return cls(sums=sums, units=words["counted"], late=frozenset(words["late"]), until=kept.until, **named)

    def pack(self) -> bytes:
        words = {name: sorted(getattr(self, name)) for name in ("chosen", "steady", "late")}
        return serialize_sums(self.sums, {**words, "counted": self.units})


def _count_days_since_epoch(now: datetime) -> float:
    return now.timestamp() / 86_400


def _make_item_key(kept: ScoredExposure) -> ItemKey:
    return kept.exposure.kind, kept.exposure.item


def convert_exposures_to_observations(
    kept: Iterable[ScoredExposure], by_request: Set[ItemKey], now: datetime
) -> list[ItemObservation]:
    """Return the exposures as observations for the estimates: one per unit, in order of time.

    An item that was ever chosen for a request is judged by the conversations in which it was chosen: its line on the
    menu of all others would only dilute the effect. Items that only stood in a steady part are judged by those
    sessions.
    """
    items: dict[tuple[str, str, int], EvidenceItem] = {}
    return [_convert_exposure_to_observation(one, now, items) for one in kept if _is_exposure_counted(one, by_request)]


def _is_exposure_counted(kept: ScoredExposure, by_request: Set[ItemKey]) -> bool:
    return kept.exposure.is_steady is not (_make_item_key(kept) in by_request)


def _make_evidence_item(kept: ScoredExposure) -> EvidenceItem:
    exposure = kept.exposure
    return EvidenceItem(kind=ItemKind(exposure.kind), name=exposure.item, version=exposure.version)


def _convert_exposure_to_observation(
    kept: ScoredExposure, now: datetime, items: dict[tuple[str, str, int], EvidenceItem]
) -> ItemObservation:
    exposure, went = kept.exposure, kept.explicit_scores or kept.inferred_scores
    key = (exposure.kind, exposure.item, exposure.version)
    if key not in items:
        items[key] = _make_evidence_item(kept)
    return ItemObservation(
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
