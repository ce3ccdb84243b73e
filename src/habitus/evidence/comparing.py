"""Comparison in use: a share of conversations gets the version before a change, and a sequential test decides.

Only these randomised conversations count, each with one judged outcome. The exam sets the stakes and the estimate that
is shown, never the decision: with it as a prior, a change that looked good there and harms in use would be kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from habitus.evidence.bounds import ERROR, ItemBettingEvidenceSums, predict_success_of_each_exposure
from habitus.evidence.estimation import INTERVAL_WIDTH, compute_t_quantile
from habitus.evidence.findings import (
    WORTH_KNOWING,
    estimate_remaining_units_to_verdict,
    format_conversation_count,
    format_effect_range,
)
from habitus.evidence.model import EffectEstimate, ItemObservation
from habitus.evidence.regression import ObservationTable

_FEWEST_JUDGED = 10  # conversations for an interval
_UNEVEN = NormalDist().inv_cdf(1 - ERROR / 2)  # standard errors by which judged shares differ too much
_EXAM_WIDTH = NormalDist().inv_cdf(0.975)  # half of the exam's 95 % interval in standard deviations


class ComparisonVerdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    UNEVEN = "not known: one version is judged more often"
    UNKNOWN = "not known yet"


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionOutcomeCounts:
    """The randomised conversations that got one version."""

    conversations: int = 0
    judged: int = 0
    succeeded: float = 0.0  # a conversation with both outcomes counts in part

    @property
    def rate(self) -> float:
        return self.succeeded / self.judged if self.judged else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonResult:
    verdict: ComparisonVerdict
    old: VersionOutcomeCounts
    new: VersionOutcomeCounts
    estimate: EffectEstimate | None  # of the change, with its 90 % interval; includes the exam
    in_use: EffectEstimate | None  # by the conversations alone, which decide
    planned_effect: float = WORTH_KNOWING  # that would be noticed
    missing: int = 0  # judged conversations until then, both versions together

    @property
    def sentence(self) -> str:
        """What is known, in plain words."""
        counted = (
            f"{format_conversation_count(self.new.judged)} judged with the new version and "
            f"{self.old.judged:,} with the old"
        )
        if self.estimate is None:
            return f"Not known yet: {counted}."
        match self.verdict:
            case ComparisonVerdict.BETTER | ComparisonVerdict.WORSE if self.in_use is not None:
                word = "Helps" if self.verdict is ComparisonVerdict.BETTER else "Harms"
                return f"{word}: {format_effect_range(self.in_use)}, by {counted}."
            case ComparisonVerdict.UNEVEN:
                shares = (self.new.judged / self.new.conversations, self.old.judged / self.old.conversations)
                return "Not known: {:.0%} of the new version's conversations were judged, {:.0%} of the old's.".format(
                    *shares
                )
            case _:
                sources = counted if self.estimate == self.in_use else f"the exam and {counted}"
                return f"Not known yet: so far {format_effect_range(self.estimate)}, by {sources}."


def compare_versions_in_use(
    observations: Iterable[ItemObservation], *, exam: EffectEstimate | None = None
) -> ComparisonResult:
    """Decide one comparison; `observations` are its conversations, offered where they got the new version.

    Each direction is wrong in at most 5 of 100 changes, however often you look.
    """
    table = ObservationTable.from_observations(observations)
    judged = table.select_rows(table.has_outcome & table.is_explicit)
    old, new = (
        VersionOutcomeCounts(
            conversations=int((table.is_offered == is_new).sum()),
            judged=int((judged.is_offered == is_new).sum()),
            succeeded=float(judged.success[judged.is_offered == is_new].sum()),
        )
        for is_new in (False, True)
    )
    betting, likely = ItemBettingEvidenceSums.empty(), exam.value if exam else 0.0
    betting = betting.with_exposures(judged) if len(judged.unit) else betting
    verdict, enough = ComparisonVerdict.UNKNOWN, math.log(1 / ERROR)
    if is_unevenly_judged(old, new):
        verdict = ComparisonVerdict.UNEVEN
    elif not (old.judged and new.judged):
        verdict = ComparisonVerdict.UNKNOWN
    elif betting.compute_log_evidence(0, up=True, expected=likely) >= enough:
        verdict = ComparisonVerdict.BETTER
    elif betting.compute_log_evidence(0, up=False, expected=likely) >= enough:
        verdict = ComparisonVerdict.WORSE
    estimate = _estimate_effect_from_use_and_exam(old, new, exam)
    effect = max(WORTH_KNOWING, abs(estimate.value) if estimate else 0.0)
    share = 1 - float(table.propensity.mean()) if len(table.unit) else 0.0
    return ComparisonResult(
        verdict=verdict,
        old=old,
        new=new,
        estimate=estimate,
        in_use=_estimate_effect_from_use_and_exam(old, new, None),
        planned_effect=effect,
        missing=estimate_remaining_units_to_verdict(betting, effect, share) or 0,
    )


def is_unevenly_judged(old: VersionOutcomeCounts, new: VersionOutcomeCounts) -> bool:
    """Whether feedback is given more often to one version, because then outcomes say what people report."""
    if not (old.conversations and new.conversations):
        return False
    share = (old.judged + new.judged) / (old.conversations + new.conversations)
    spread = math.sqrt(share * (1 - share) * (1 / old.conversations + 1 / new.conversations))
    return abs(old.judged / old.conversations - new.judged / new.conversations) > _UNEVEN * spread


def _estimate_effect_from_use_and_exam(
    old: VersionOutcomeCounts, new: VersionOutcomeCounts, exam: EffectEstimate | None
) -> EffectEstimate | None:
    """Estimate the effect from use, joined with the exam by precision; None without either."""
    known: list[tuple[float, float]] = []  # value, variance
    if old.judged and new.judged:
        known.append((new.rate - old.rate, _compute_rate_variance(old) + _compute_rate_variance(new)))
    if exam is not None and exam.high > exam.low:
        known.append((exam.value, ((exam.high - exam.low) / (2 * _EXAM_WIDTH)) ** 2))
    if not known:
        return None
    precision = sum(1 / variance for _, variance in known)
    value = sum(value / variance for value, variance in known) / precision
    margin = INTERVAL_WIDTH / math.sqrt(precision)
    return EffectEstimate(value=value, low=max(-1.0, value - margin), high=min(1.0, value + margin))


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangesGainEstimate:
    """How many more conversations succeeded because they got changed versions, with a 90 % interval."""

    gained: float
    low: float
    high: float
    conversations: int  # that got a changed version
    judged: int  # of these and of those with the version before

    @property
    def does_interval_exclude_zero(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    @property
    def sentence(self) -> str:
        """What may be said, in words: nothing that the interval does not support."""
        low, high = round(self.low), round(self.high)
        more = f"about {abs(round(self.gained))} {'fewer' if round(self.gained) < 0 else 'more'}"
        shown = "" if self.does_interval_exclude_zero else ": not shown yet"
        of = f"{format_conversation_count(self.conversations)} succeeded ({low} to {high})"
        return f"Because of compared changes {more} of {of}{shown}."


def estimate_gain_of_changes(observations: Sequence[ItemObservation]) -> ChangesGainEstimate | None:
    """Estimate what all changes together gained in these randomised conversations; None while too few are judged.

    Every judged conversation is an unbiased estimate of its own effect, whatever is known about it: the outcome less
    what was expected before it, weighted by its assignment.
    """
    table = ObservationTable.from_observations(observations)
    judged = table.select_rows(table.has_outcome & table.is_explicit & table.is_offer_randomized)
    if len(judged.unit) < _FEWEST_JUDGED or judged.is_offered.all() or not judged.is_offered.any():
        return None
    expected, _ = predict_success_of_each_exposure(judged, ItemBettingEvidenceSums.empty().outcomes_by_kind)
    variance = judged.propensity * (1 - judged.propensity)
    effects = (judged.success - expected) * (judged.is_offered - judged.propensity) / variance
    count, got_new = len(effects), int(table.is_offered.sum())
    mean, error = float(effects.mean()), float(effects.std(ddof=1)) / math.sqrt(count)
    margin = compute_t_quantile(count - 1, 0.95) * error
    return ChangesGainEstimate(
        gained=got_new * mean,
        low=got_new * (mean - margin),
        high=got_new * (mean + margin),
        conversations=got_new,
        judged=count,
    )


def _compute_rate_variance(one: VersionOutcomeCounts) -> float:
    rate = (one.succeeded + 1) / (one.judged + 2)  # as if one more had succeeded and one had not
    return rate * (1 - rate) / one.judged
