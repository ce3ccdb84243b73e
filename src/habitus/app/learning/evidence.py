"""The evidence of a home: exposures from the journal and what they prove about each item (see `habitus.evidence`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from habitus import sql
from habitus.errors import HabitusError, NotFound, did_you_mean
from habitus.evidence.findings import NOTHING, Finding, Findings, findings, sums_of
from habitus.evidence.model import Item, ItemKind, Observation
from habitus.evidence.running import Running, pack, unpack
from habitus.journal.facts import MOVING
from habitus.journal.journal import Journal
from habitus.journal.model import KeptExposure, KeptSums, Origin
from habitus.skills.layers.layer import address
from habitus.skills.layers.listing import Listed

# The share that a plan assumes while nothing is withheld.
USUAL_SHARE = 0.1
# In days.
_WEEK = 7.0
# Seconds to wait for a busy database: cached sums are not worth a longer wait.
_PATIENCE = 1.0
# An item by its kind and name, without a version.
Named = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
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
    worth: int = 64

    def exposures(self) -> list[KeptExposure]:
        """Return all stored exposures, oldest first."""
        return self.journal.exposures()

    def findings(self) -> Findings:
        """Return the findings about every skill version, lesson, recipe and tool that was offered or withheld."""
        return self.findings_and_chosen()[0]

    def findings_and_chosen(self) -> tuple[Findings, frozenset[tuple[str, str]]]:
        """Return the findings, and the items that were ever chosen for a request."""
        rows, kept = self.journal.exposures_and_sums()
        now = self.clock()
        settled = _Settled.read(kept, now)
        by_request = settled.chosen | chosen_items(rows)
        # An item first chosen now must be counted differently in old conversations, so the cached sums no longer hold.
        if kept.sums and not settled.fits(by_request):
            rows, settled = self.exposures(), _Settled()
            by_request = chosen_items(rows)
        rest = [one for one in rows if one.unit not in settled.late]
        old = frozenset(one.unit for one in rest if one.at <= now - MOVING and _counts(one, by_request))
        if len(old) >= self.worth:
            settled = settled.after(rows, old, by_request, now)
            rest = [one for one in rest if one.unit not in old]
            self._keep(KeptSums(changes=kept.changes, until=now - MOVING, sums=settled.pack(now)))
        young = observations(rest, by_request, now)
        found = findings(young, withhold=self.share or USUAL_SHARE, settled=settled.sums, today=_days(now))
        return found, by_request

    def _keep(self, sums: KeptSums) -> None:
        """Cache the sums; on failure, the next query caches them."""
        with suppress(HabitusError), sql.patience(_PATIENCE):
            self.refuse_changes()
            self.journal.keep_sums(sums)

    def of(self, name: str) -> tuple[Finding, ...]:
        """Return the findings about each version of an item.

        `name` is a skill's name, a lesson's id, or the name of a recipe or tool.
        """
        found = self.findings().items
        mine = tuple(one for one in found if name in (one.item.name, one.item.name.partition("@")[0]))
        if not mine:
            near = did_you_mean(name, sorted({one.item.name for one in found}))
            raise NotFound(f"There is no evidence about '{name}' yet.", hint=near or "It was never offered.")
        return mine

    def of_skill(self, item: Listed) -> tuple[Finding, ...]:
        """Return the findings about each version of a skill, newest first."""
        name = address(item.name, item.layer)
        skills = [one for one in self.findings().items if one.item.kind is ItemKind.SKILL]
        return tuple(sorted((one for one in skills if one.item.name == name), key=lambda one: -one.item.version))

    def forget_user(self, user: str) -> int:
        """Erase the exposures and outcomes of a user's conversations; return the number of erased entries."""
        self.refuse_changes()
        return self.journal.erase_evidence(user)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Settled:
    """Sums over older conversations, with the conditions under which they are valid."""

    sums: Running = NOTHING
    # Items chosen for a request in these conversations.
    chosen: frozenset[Named] = frozenset()
    # Items in a steady part of their prompts.
    steady: frozenset[Named] = frozenset()
    # Steady items that are not counted there because they were chosen elsewhere.
    apart: frozenset[Named] = frozenset()
    # Conversations among them that had further offers later.
    late: frozenset[str] = frozenset()

    @classmethod
    def read(cls, kept: KeptSums, now: datetime) -> _Settled:
        """Unpack the cached sums; empty if there are none or they are older than a week."""
        found = unpack(kept.sums) if kept.sums else None
        # Rebuilt every week, because an older release may have changed a row without noting the change.
        if found is None or not 0 <= _days(now) - found[1]["made"] <= _WEEK:
            return cls()
        sums, words = found
        named = {name: frozenset((kind, item) for kind, item in words[name]) for name in ("chosen", "steady", "apart")}
        return cls(sums=sums, late=frozenset(words["late"]), **named)

    def fits(self, by_request: frozenset[Named]) -> bool:
        return self.sums is not NOTHING and self.steady & by_request == self.apart

    def after(
        self, rows: Sequence[KeptExposure], old: Set[str], by_request: frozenset[Named], now: datetime
    ) -> _Settled:
        """Return the sums extended by the `old` conversations; `rows` are all exposures since the last extension."""
        until, units = now - MOVING, self.late | old
        added = [one for one in rows if one.at <= until or one.unit in units]
        steady = self.steady | {_item_of(one) for one in added if one.exposure.is_steady}
        counted = observations([one for one in rows if one.unit in old], by_request, now)
        return _Settled(
            sums=sums_of(counted, settled=self.sums, today=_days(now)),
            chosen=self.chosen | chosen_items(added),
            steady=steady,
            apart=steady & by_request,
            late=frozenset(one.unit for one in rows if one.unit in units and one.at > until),
        )

    def pack(self, now: datetime) -> bytes:
        words = {name: sorted(getattr(self, name)) for name in ("chosen", "steady", "apart", "late")}
        return pack(self.sums, {"made": _days(now), **words})


def _days(now: datetime) -> float:
    return now.timestamp() / 86_400


def chosen_items(kept: Iterable[KeptExposure]) -> frozenset[Named]:
    """Return the items that were ever chosen for a request; all others only stood in a steady part of prompts."""
    return frozenset(_item_of(one) for one in kept if not one.exposure.is_steady)


def _item_of(kept: KeptExposure) -> Named:
    return kept.exposure.kind, kept.exposure.item


def observations(kept: Iterable[KeptExposure], by_request: Set[Named], now: datetime) -> list[Observation]:
    """Return the exposures as observations for the estimates: one per unit, in order of time.

    An item that was ever chosen for a request is judged by the conversations in which it was chosen: its line on the
    menu of all others would only dilute the effect. Items that only stood in a steady part are judged by those
    sessions.
    """
    items: dict[tuple[str, str, int], Item] = {}
    return [_observation(one, now, items) for one in kept if _counts(one, by_request)]


def _counts(kept: KeptExposure, by_request: Set[Named]) -> bool:
    return kept.exposure.is_steady is not (_item_of(kept) in by_request)


def _observation(kept: KeptExposure, now: datetime, items: dict[tuple[str, str, int], Item]) -> Observation:
    exposure, went = kept.exposure, kept.said or kept.seemed
    key = (exposure.kind, exposure.item, exposure.version)
    if key not in items:
        items[key] = Item(kind=ItemKind(exposure.kind), name=exposure.item, version=exposure.version)
    return Observation(
        unit=kept.unit,
        item=items[key],
        is_offered=exposure.is_offered,
        propensity=exposure.propensity,
        is_used=exposure.is_used,
        has_trace=not exposure.is_ignored if exposure.is_used else None,
        success=sum(went) / len(went) if went else None,
        is_explicit=bool(kept.said) or not went,
        request_kind=exposure.request_kind,
        tokens=exposure.tokens,
        is_trial=kept.origin is Origin.TRIAL,
        # Never negative, even if the clock was set back.
        age_days=max((now - kept.at).total_seconds() / 86_400, 0.0),
    )
