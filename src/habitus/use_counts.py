"""Counts of uses and their outcomes, as the journal computes them and stores of skills cache them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Self, TypeVar

from habitus.plain_data import INTERNAL

# The counts that are stored; `no_feedback` follows from them.
COUNT_NAMES = ("recommended", "used", "succeeded", "failed", "weak_failures", "ran_without_error")


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageCounts:
    """How often something was recommended and used, and what is known about its uses."""

    IN_JSON: ClassVar = ("no_feedback", "links")

    # Shown for a request, whether it was used or not.
    recommended: int = 0
    used: int = 0
    succeeded: int = 0
    failed: int = 0
    # Both are part of `no_feedback` and decide nothing.
    weak_failures: int = 0
    ran_without_error: int = 0
    last_used: datetime | None = None
    # The address that lists the uses, on the page and below the root of REST; empty if nobody set it.
    address: str = field(default="", metadata=INTERNAL, compare=False)

    @property
    def no_feedback(self) -> int:
        """The uses of which nobody said how they went."""
        return max(self.used - self.succeeded - self.failed, 0)

    @property
    def is_nonzero(self) -> bool:
        """Whether any count differs from zero."""
        return any(getattr(self, name) for name in COUNT_NAMES)

    @property
    def links(self) -> Mapping[str, str]:
        """The address of exactly the uses that each count counts."""
        return build_count_links(self.address) if self.address else {}

    def _add_or_subtract_fields(self, other: UsageCounts, sign: int) -> dict[str, Any]:
        return {name: getattr(self, name) + sign * getattr(other, name) for name in COUNT_NAMES}

    def __add__(self, other: Self) -> UsageCounts:
        last = max(filter(None, (self.last_used, other.last_used)), default=None)
        return UsageCounts(**self._add_or_subtract_fields(other, 1), last_used=last)

    def __sub__(self, other: UsageCounts) -> UsageCounts:
        """Return the difference; `last_used` stays, because a use does not unhappen."""
        return UsageCounts(**self._add_or_subtract_fields(other, -1), last_used=self.last_used)


def build_count_links(address: str) -> dict[str, str]:
    """Return the address of each count, given that of them all."""
    more = "&" if "?" in address else "?"
    outcomes = (*COUNT_NAMES[2:], "no_feedback")
    return {"used": address, "recommended": f"{address}{more}recommended=true"} | {
        name: f"{address}{more}outcome={name}" for name in outcomes
    }


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class UsageCountKey:
    """What uses are counted for: a stage of one version of a skill, and the recipe if one ran."""

    # The key of the layer's store.
    layer: str
    item: str
    version: int
    stage: str
    part: str = ""


UsageByKey = Mapping[UsageCountKey, UsageCounts]
# Of a recipe it is place, skill and name.
K = TypeVar("K", bound=UsageCountKey | tuple[str, ...])


def sum_counts_by_key(counted: Iterable[tuple[K, UsageCounts]]) -> dict[K, UsageCounts]:
    """Return the sum of the counts for each key."""
    found: dict[K, UsageCounts] = {}
    for key, counts in counted:
        found[key] = found[key] + counts if key in found else counts
    return found


def compute_count_changes(after: Mapping[K, UsageCounts], before: Mapping[K, UsageCounts]) -> dict[K, UsageCounts]:
    """Return what changed, by key and in a fixed order; two hosts that update the same rows can't deadlock."""
    none = UsageCounts()
    changes = {key: after.get(key, none) - before.get(key, none) for key in sorted({*after, *before})}
    return {key: change for key, change in changes.items() if change.is_nonzero}
