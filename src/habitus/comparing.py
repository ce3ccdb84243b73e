"""Comparing lines or words in bounded time: a text may be a stranger's, and difflib takes time by the square of what
repeats in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import Match, SequenceMatcher

# One comparison of the search takes about 0.2 µs.
_MOST_STEPS = 4_000_000


class ComparisonStepBudget:
    """The steps that several comparisons may take together."""

    def __init__(self, steps: int = _MOST_STEPS) -> None:
        self._left = steps

    def spend_steps_if_left(self, steps: int) -> bool:
        """Return whether so many steps were left; they are then taken."""
        is_enough = steps <= self._left
        self._left -= steps if is_enough else 0
        return is_enough


class BoundedSequenceMatcher(SequenceMatcher[str]):
    """A `SequenceMatcher` within a budget: what it no longer looks at counts as replaced."""

    def __init__(self, before: Sequence[str], after: Sequence[str], budget: ComparisonStepBudget | None = None) -> None:
        # Without autojunk, which takes frequent lines of a long text for noise and gives poor merges.
        super().__init__(None, before, after, autojunk=False)
        self.before, self.after = before, after
        self._budget = budget or ComparisonStepBudget()

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Return the longest match; an empty one if the search would take more steps than are left."""
        places = self.b2j  # type: ignore[attr-defined]  # typeshed leaves it out
        if not self._budget.spend_steps_if_left(sum(1 + len(places.get(one, ())) for one in self.before[alo:ahi])):
            return Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)
