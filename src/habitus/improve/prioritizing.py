"""Which skill the next candidate is tried on: expected gain × frequency of use, for the price of its rollouts.

A rule by Thompson sampling: a skill's headroom and the share of candidates that its gate accepts are drawn from what is
known of them, so that a skill of which little is known gets its turn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

HORIZON_DAYS = 90.0  # over which a change pays: texts and models change
_ACCEPTED, _TRIED = 1.0, 5.0  # as if so many candidates had been tried, before any was
_LEAST_HEADROOM = 0.01
_ROUNDS = 3.0  # that a candidate's gate takes on average; most are stopped early


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillProspect:
    """What is known of a skill that could be improved, and what one more candidate would be worth."""

    skill: str
    uses_a_day: float
    passed: int  # recent rollouts with today's version
    failed: int
    tried: int  # candidates that its gate has judged
    accepted: int
    smallest_effect: float  # that its gate can show
    rollouts: float  # that one candidate takes
    cents: float = 0.0  # that these cost; 0 if unknown
    gain: float = 0.0  # expected successes more in the horizon, by one candidate

    @property
    def headroom(self) -> float:
        """The expected share of requests that fail today."""
        return (self.failed + 1) / (self.passed + self.failed + 2)

    @property
    def acceptance(self) -> float:
        """The expected share of its candidates that are better."""
        return (self.accepted + _ACCEPTED) / (self.tried + _TRIED)

    @property
    def reason(self) -> str:
        """Why it stands where it does, in words."""
        return (
            f"used {self.uses_a_day:.1f} times a day, {100 * self.headroom:.0f} of 100 tries fail, "
            f"{self.accepted} of {self.tried} candidates were better: about {self.gain:.1f} more successes in "
            f"{HORIZON_DAYS:.0f} days for {self.rollouts:.0f} rollouts"
        )


def estimate_rollouts_per_candidate(gate_tasks: int, exam_tasks: int, rounds: int) -> float:
    """Return how many rollouts one candidate takes, most of which end at the gate."""
    return 2 * (_ROUNDS * gate_tasks + exam_tasks * rounds * _ACCEPTED / _TRIED)


def estimate_expected_successes_gained(prospect: SkillProspect, headroom: float, acceptance: float) -> float:
    """Return the expected successes more by one candidate, if a better one gains any part of the headroom alike."""
    least = prospect.smallest_effect
    if headroom <= least:
        return 0.0
    # The chance that its gain is large enough to be shown, times the mean of such gains.
    gain = (1 - least / headroom) * (headroom + least) / 2
    return acceptance * gain * prospect.uses_a_day * HORIZON_DAYS


def rank_prospects(prospects: Sequence[SkillProspect], draw: random.Random | None = None) -> list[SkillProspect]:
    """Return the prospects with their expected gain, the best for its rollouts first.

    `draw` samples what is not known (for a night's choice); without it, the expectations are compared.
    """
    ranked = []
    for one in prospects:
        gain = estimate_expected_successes_gained(one, one.headroom, one.acceptance)
        chosen_by = gain
        if draw is not None:
            headroom = max(draw.betavariate(one.failed + 1, one.passed + 1), _LEAST_HEADROOM)
            acceptance = draw.betavariate(one.accepted + _ACCEPTED, one.tried - one.accepted + _TRIED - _ACCEPTED)
            chosen_by = estimate_expected_successes_gained(one, headroom, acceptance)
        ranked.append((chosen_by / max(one.rollouts, 1.0), replace(one, gain=gain)))
    return [one for _, one in sorted(ranked, key=lambda each: (-each[0], each[1].skill))]


def is_candidate_worth_its_price(prospect: SkillProspect, success_cents: float) -> bool:
    """Whether a candidate is expected to be worth more than its rollouts cost; always if no worth is set."""
    return not success_cents or prospect.gain * success_cents >= prospect.cents
