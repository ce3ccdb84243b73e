"""What six months of learning are worth, by five ways to decide which changes stay, in a simulated home.

    python benchmarks/pays.py [--seeds 4] [--full] [--nights 180]

30 skills share 40 requests a day by rank (the first gets ten times as many as the tenth), 30 % of which are judged.
Each skill has a hidden headroom; a fifth lose some of their success every month. Half of all drafted candidates redraw
the pass rates of a fifth of the gate's tasks and change nothing in use, a fifth harm by 5 to 20 points, the others
gain a fifth to four fifths of the headroom. In use an effect differs from that on tasks by 3 points (one standard
deviation), but for worthless ones. A gate has 20 tasks, an exam 10; every strategy has the same rollouts a night and
the same draws of the world. The world was fixed before anything was tuned.

`kept everything` keeps each candidate that a round has been paid for, `new > old` each that does better in one round,
`gate` those that pass today's gate and exam, skill by skill in turn, `habitus` picks the skill
(`improve/prioritizing.py`) and compares accepted changes in use (`evidence/comparing.py`), `oracle` knows each
candidate's effect. `successes` are those more in six months than without any change. All decisions are the product's
own code.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

import _report
from habitus.evidence.comparing import ComparisonVerdict, compare_versions_in_use, estimate_gain_of_changes
from habitus.evidence.model import EffectEstimate, EvidenceItem, ItemKind, ItemObservation
from habitus.evidence.versions import COMPARISON_PERIOD
from habitus.improve.exam import compute_pass_rate_difference_interval, is_exam_passed
from habitus.improve.gate import MOST_ROUNDS, GateHypothesis, GateRule, GateVerdict, RolloutPairCounts
from habitus.improve.prioritizing import SkillProspect, estimate_rollouts_per_candidate, rank_prospects

SKILLS, REQUESTS, JUDGED, SHARE = 30, 40.0, 0.3, 0.2
GATE, EXAM, MONTH, FULL_SEEDS = 20, 10, 30, 12
CEILING, WORTHLESS, HARMFUL, DRIFTING = 0.95, 0.5, 0.2, 0.2
TRANSFER = 0.03  # standard deviation of the difference between the effect on tasks and in use
RECENT = 200  # rollouts with today's version that a skill's pass rate is taken from
GOALS = {"100": 1.1, "400": 1.0, "worthless": 0.05, "harmful": 0.95, "covered least": 0.87, "covered most": 0.93}


class Strategy(StrEnum):
    ALL = "kept everything"
    RISE = "new > old"
    GATE = "gate"
    HABITUS = "habitus"
    ORACLE = "oracle"


@dataclass(kw_only=True)
class Change:
    """A drafted candidate: what it does to tasks and in use, and how far its gate has come."""

    effect: float  # in use
    on_tasks: float
    is_worthless: bool
    drafted: int  # the day
    rates: Any  # of the gate's tasks, with it
    number: int = 1
    results: list[Any] = field(default_factory=list)  # a round each: passed by task, old and new
    is_in_force: bool = False

    @property
    def is_harmful(self) -> bool:
        return self.effect < 0 and not self.is_worthless


@dataclass(kw_only=True)
class Skill:
    """A skill's truth, and what a strategy knows of it."""

    frequency: float  # requests a day
    success: float
    drift: float  # a month
    rates: Any  # of the gate's tasks
    exam: Any
    tried: int = 0
    accepted: int = 0
    passed: list[bool] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)  # by day
    changes: list[Change] = field(default_factory=list)  # in force
    open: Change | None = None
    compared: Comparison | None = None


@dataclass(kw_only=True)
class Comparison:
    change: Change
    began: int
    exam: EffectEstimate
    item: EvidenceItem
    rows: list[ItemObservation] = field(default_factory=list)
    truths: list[tuple[int, float]] = field(default_factory=list)  # day and effect of each conversation with it


class World:
    """One seed: the skills, and the draws of candidates and requests. Equal for all strategies."""

    def __init__(self, seed: int, strategy: Strategy, rollouts: int) -> None:
        draw = np.random.default_rng([seed, 1])
        weights = 1 / np.arange(1, SKILLS + 1)
        headroom = draw.uniform(0.05, 0.6, SKILLS)
        is_drifting = draw.permutation(SKILLS) < DRIFTING * SKILLS
        order = draw.permutation(SKILLS)  # so that the most used is not the first in turn
        self.skills = [
            Skill(
                frequency=float(REQUESTS * weights[order[n]] / weights.sum()),
                success=CEILING - float(headroom[n]),
                drift=float(draw.uniform(0.0, 0.15)) if is_drifting[n] else 0.0,
                rates=_draw_rates(CEILING - headroom[n], GATE, draw),
                exam=_draw_rates(CEILING - headroom[n], EXAM, draw),
            )
            for n in range(SKILLS)
        ]
        self.baseline = [skill.success for skill in self.skills]
        self.strategy, self.rollouts = strategy, rollouts
        self.drafts = [np.random.default_rng([seed, 2, n]) for n in range(SKILLS)]
        self.chance = np.random.default_rng([seed, 3, rollouts, list(Strategy).index(strategy)])
        self.pick = random.Random(seed)
        self.turn = 0
        self.gained = 0.0
        self.drafted: list[Change] = []
        self.ended: list[Comparison] = []
        self.late_harm = 0
        self.skill_months = self.worthless_months = 0

    def run(self, nights: int) -> None:
        for day in range(nights):
            self._use(day)
            self._improve(day)
            self.late_harm += sum(
                one.is_harmful and one.is_in_force for one in self.drafted if one.drafted == day - MONTH
            )
            if (day + 1) % MONTH == 0:
                self.skill_months += SKILLS
                self.worthless_months += sum(any(one.is_worthless for one in skill.changes) for skill in self.skills)
            if self.strategy is Strategy.HABITUS and day % 7 == 6:
                self._curate(day)

    # A day's requests

    def _use(self, day: int) -> None:
        for n, skill in enumerate(self.skills):
            loss = skill.drift / MONTH
            self.baseline[n] = max(0.05, self.baseline[n] - loss)
            skill.success = max(0.05, skill.success - loss)
            skill.rates, skill.exam = (np.maximum(one - loss, 0.0) for one in (skill.rates, skill.exam))
            if skill.open is not None:
                skill.open.rates = np.maximum(skill.open.rates - loss, 0.0)
            asked = int(self.chance.poisson(skill.frequency))
            skill.uses.append(asked)
            if skill.compared is None:
                self.gained += skill.frequency * (skill.success - self.baseline[n])
                continue
            effect = skill.compared.change.effect
            self.gained += skill.frequency * (skill.success - SHARE * effect - self.baseline[n])
            for number in range(asked):
                is_new = bool(self.chance.random() >= SHARE)
                success = skill.success if is_new else skill.success - effect
                went = float(self.chance.random() < success) if self.chance.random() < JUDGED else None
                skill.compared.rows.append(
                    ItemObservation(
                        unit=f"{n} {day} {number}",
                        item=skill.compared.item,
                        is_offered=is_new,
                        propensity=1 - SHARE,
                        success=went,
                        age_days=float(-day),
                    )
                )
                if is_new:
                    skill.compared.truths.append((day, effect))

    def _curate(self, day: int) -> None:
        for skill in self.skills:
            if (one := skill.compared) is None:
                continue
            verdict = compare_versions_in_use(_age(one.rows, day), exam=one.exam).verdict
            if verdict is ComparisonVerdict.WORSE:
                skill.success -= one.change.effect
                skill.rates, skill.exam = (np.clip(r - one.change.on_tasks, 0, 1) for r in (skill.rates, skill.exam))
                one.change.is_in_force = False
                skill.changes.remove(one.change)
            if verdict in (ComparisonVerdict.WORSE, ComparisonVerdict.BETTER) or (
                day - one.began >= COMPARISON_PERIOD.days
            ):
                self._end_comparison(skill)

    def _end_comparison(self, skill: Skill) -> None:
        if skill.compared is not None:
            self.ended.append(skill.compared)
        skill.compared = None

    # A night's rollouts

    def _improve(self, day: int) -> None:
        left = self.rollouts
        skipped: set[int] = set()
        while left >= 2 * GATE and (n := self._choose(skipped)) is not None:
            skill = self.skills[n]
            if skill.open is None:
                skill.tried += 1
                skill.open = self._draft(n, day)
            left -= self._try_round(skill, skill.open, day)
            # One candidate of a skill a night, as in the product.
            if self.skills[n].open is None:
                skipped.add(n)

    def _choose(self, skipped: set[int]) -> int | None:
        may = [n for n, one in enumerate(self.skills) if n not in skipped and (one.open or _can_try(one))]
        if not may:
            return None
        if begun := [n for n in may if self.skills[n].open is not None]:
            return begun[0]
        if self.strategy in (Strategy.HABITUS, Strategy.ORACLE):
            by_name = {f"{n:02}": n for n in may}
            return by_name[rank_prospects([_prospect(n, self.skills[n]) for n in may], self.pick)[0].skill]
        self.turn = next(n for step in range(1, SKILLS + 1) if (n := (self.turn + step) % SKILLS) in may)
        return self.turn

    def _draft(self, n: int, day: int) -> Change:
        draw, skill = self.drafts[n], self.skills[n]
        kind, size, shift = draw.random(), draw.random(), draw.normal(0, TRANSFER)
        fresh, is_rerolled = _draw_rates(skill.success, GATE, draw), draw.random(GATE) < 0.2
        is_worthless = bool(kind < WORTHLESS)
        headroom = max(0.0, CEILING - skill.success)
        harm, help = -(0.05 + 0.15 * size), (0.2 + 0.6 * size) * headroom
        on_tasks = 0.0 if is_worthless else float(harm if kind < WORTHLESS + HARMFUL else help)
        effect = 0.0 if is_worthless else float(np.clip(on_tasks + shift, 0.02 - skill.success, headroom))
        rates = np.where(is_rerolled, fresh, skill.rates) if is_worthless else np.clip(skill.rates + on_tasks, 0, 1)
        made = Change(
            effect=effect, on_tasks=on_tasks, is_worthless=is_worthless, drafted=day, rates=rates, number=skill.tried
        )
        self.drafted.append(made)
        return made

    def _try_round(self, skill: Skill, change: Change, day: int) -> int:
        """Make one round of a candidate's gate, and decide; return the rollouts that took."""
        passed = np.stack([self.chance.random(GATE) < rates for rates in (skill.rates, change.rates)], axis=1)
        change.results.append(passed)
        skill.passed = [*skill.passed, *map(bool, passed[:, 0])][-RECENT:]
        difference, cost = float(passed[:, 1].mean() - passed[:, 0].mean()), 2 * GATE
        match self.strategy:
            case Strategy.ALL:
                self._settle(skill, change, True, day)
            case Strategy.RISE:
                self._settle(skill, change, difference > 0, day)
            case Strategy.ORACLE:
                self._settle(skill, change, change.effect > 0, day)
            case Strategy.GATE | Strategy.HABITUS:
                tally = _tally(change.results)
                verdict = GateRule(tasks=GATE, number=change.number).decide_verdict(tally)
                if verdict is GateVerdict.ACCEPTED:
                    found = self._examine(skill, change)
                    self._settle(skill, change, is_exam_passed(found.value, GateHypothesis.BETTER), day, found)
                    cost += 2 * EXAM * MOST_ROUNDS
                elif verdict is not GateVerdict.OPEN:
                    self._settle(skill, change, False, day)
        return cost

    def _examine(self, skill: Skill, change: Change) -> EffectEstimate:
        draw = self.chance
        rates = (
            np.where(draw.random(EXAM) < 0.2, _draw_rates(skill.success, EXAM, draw), skill.exam)
            if change.is_worthless
            else np.clip(skill.exam + change.on_tasks, 0, 1)
        )
        old, new = (draw.binomial(MOST_ROUNDS, one) / MOST_ROUNDS for one in (skill.exam, rates))
        interval = compute_pass_rate_difference_interval((new - old).tolist())
        return EffectEstimate(value=float((new - old).mean()), low=interval.low, high=interval.high)

    def _settle(
        self, skill: Skill, change: Change, is_accepted: bool, day: int, exam: EffectEstimate | None = None
    ) -> None:
        skill.open = None
        if not is_accepted:
            return
        skill.accepted += 1
        self._end_comparison(skill)
        change.is_in_force = True
        skill.changes.append(change)
        skill.success += change.effect
        skill.rates, skill.exam = change.rates, np.clip(skill.exam + change.on_tasks, 0, 1)
        skill.passed = []
        if self.strategy is Strategy.HABITUS and exam is not None:
            item = EvidenceItem(kind=ItemKind.CHANGE, name=f"s{self.skills.index(skill)}", version=skill.tried)
            skill.compared = Comparison(change=change, began=day, exam=exam, item=item)

    # What a month's report says, and what is true

    def report_months(self, nights: int) -> Iterator[tuple[float, float, float, float]]:
        """Yield the estimate, its interval and the truth of each month that has one."""
        every = [*self.ended, *(skill.compared for skill in self.skills if skill.compared is not None)]
        for begin in range(0, nights - MONTH + 1, MONTH):
            rows = [row for one in every for row in one.rows if begin <= -row.age_days < begin + MONTH]
            gain = estimate_gain_of_changes(_age(rows, begin + MONTH))
            if gain is not None:
                truth = sum(effect for one in every for day, effect in one.truths if begin <= day < begin + MONTH)
                yield gain.gained, gain.low, gain.high, truth


def _draw_rates(mean: float, tasks: int, draw: np.random.Generator) -> Any:
    """Tasks of one skill: some nearly always pass, some hardly ever."""
    return draw.beta(3 * mean, 3 * (1 - mean), tasks)


def _can_try(skill: Skill) -> bool:
    return bool(GateRule(tasks=GATE, number=skill.tried + 1).allowed_error)


def _prospect(n: int, skill: Skill) -> SkillProspect:
    recent = skill.uses[-MONTH:]
    return SkillProspect(
        skill=f"{n:02}",
        uses_a_day=sum(recent) / max(len(recent), 1),
        passed=sum(skill.passed),
        failed=len(skill.passed) - sum(skill.passed),
        tried=skill.tried,
        accepted=skill.accepted,
        smallest_effect=GateRule(tasks=GATE, number=skill.tried + 1).smallest_effect,
        rollouts=estimate_rollouts_per_candidate(GATE, EXAM, MOST_ROUNDS),
    )


def _tally(results: list[Any]) -> RolloutPairCounts:
    passed = np.array(results, dtype=np.int64)
    differences = passed[:, :, 1] - passed[:, :, 0]
    return RolloutPairCounts(
        better=int((differences > 0).sum()),
        same=int((differences == 0).sum()),
        worse=int((differences < 0).sum()),
        gains=[int(one) for one in differences.sum(0)],
        is_repeated=len(passed) > 1 and bool((passed[-1] == passed[-2]).all()),
    )


def _age(rows: list[ItemObservation], today: int) -> list[ItemObservation]:
    """Rows carry the day as a negative age, so only their order counts."""
    return sorted(rows, key=lambda row: -row.age_days)


def measure_power(judged: int, effect: float, runs: int, draw: np.random.Generator) -> float:
    """Return how often a comparison finds an effect by so many judged conversations."""
    item, found = EvidenceItem(kind=ItemKind.CHANGE, name="one"), 0
    for _ in range(runs):
        rows = [
            ItemObservation(
                unit=str(n),
                item=item,
                is_offered=(is_new := bool(draw.random() >= SHARE)),
                propensity=1 - SHARE,
                success=float(draw.random() < 0.6 + effect * is_new),
            )
            for n in range(judged)
        ]
        found += compare_versions_in_use(rows).verdict is ComparisonVerdict.WORSE
    return found / runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--nights", type=int, default=180)
    parser.add_argument("--full", action="store_true", help=f"{FULL_SEEDS} seeds")
    arguments = parser.parse_args()
    seeds = FULL_SEEDS if arguments.full else arguments.seeds
    found: dict[str, Any] = {}
    for rollouts in (100, 400):
        for strategy in Strategy:
            worlds = [World(seed, strategy, rollouts) for seed in range(seeds)]
            for world in worlds:
                world.run(arguments.nights)
            found[f"{strategy}, {rollouts} a night"] = summarize(worlds, arguments.nights)
            _report.progress(f"{strategy}, {rollouts}: {found[f'{strategy}, {rollouts} a night']}")
    draw = np.random.default_rng(9)
    power = {
        f"{judged} judged, {100 * effect:+.0f} points": measure_power(judged, effect, 100, draw)
        for judged in (100, 300, 1000)
        for effect in (-0.1, -0.2, -0.3)
    }
    goals = list_goals(found)
    _report.show("pays", arguments, {"habitus": {**found, "power": power, "goals": goals}})
    return int(not all(goals.values()))


def summarize(worlds: list[World], nights: int) -> dict[str, Any]:
    drafted = [one for world in worlds for one in world.drafted]
    # Only those of which thirty days have passed.
    harmful = sum(one.is_harmful and one.drafted < nights - MONTH for one in drafted)
    months = [month for world in worlds for month in world.report_months(nights)]
    result: dict[str, Any] = {
        "successes": round(sum(world.gained for world in worlds) / len(worlds)),
        "candidates": len(drafted) // len(worlds),
        "in force": round(sum(one.is_in_force for one in drafted) / len(worlds), 1),
        "worthless in force": round(sum(w.worthless_months for w in worlds) / sum(w.skill_months for w in worlds), 4),
        "harmful gone": round(1 - sum(world.late_harm for world in worlds) / max(harmful, 1), 4),
    }
    if months:
        result["months"] = len(months)
        result["covered"] = round(sum(low <= truth <= high for _, low, high, truth in months) / len(months), 3)
        result["median width"] = round(float(np.median([high - low for _, low, high, _ in months])), 1)
    return result


def list_goals(found: dict[str, Any]) -> dict[str, bool]:
    ours = {rollouts: found[f"habitus, {rollouts} a night"] for rollouts in ("100", "400")}
    ratios = {
        rollouts: ours[rollouts]["successes"] / found[f"gate, {rollouts} a night"]["successes"] for rollouts in ours
    }
    months = sum(one["months"] for one in ours.values())
    covered = sum(one["covered"] * one["months"] for one in ours.values()) / months
    least, most = GOALS["covered least"], GOALS["covered most"]
    return {
        f"successes over the gate's at 100 a night >= 1.1 ({ratios['100']:.2f})": ratios["100"] >= GOALS["100"],
        f"and at 400 >= 1.0 ({ratios['400']:.2f})": ratios["400"] >= GOALS["400"],
        "worthless in force <= 5 %": max(one["worthless in force"] for one in ours.values()) <= GOALS["worthless"],
        "harmful gone after 30 days >= 95 %": min(one["harmful gone"] for one in ours.values()) >= GOALS["harmful"],
        f"the report covers 87 to 93 % ({covered:.3f} of {months} months)": least <= covered <= most,
    }


if __name__ == "__main__":
    sys.exit(main())
