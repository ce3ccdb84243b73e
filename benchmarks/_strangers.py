"""Four made-up worlds that the estimator was not written with; the parameters of `hard` and `users` were fixed before
it was changed for them, `teams` was written after. `menus` is what the prior of drift was chosen with, on other seeds.

`hard`: a hidden difficulty decides how likely each item is chosen, one item more so and another less; chances add up.
`users`: people of different ability, some of them far busier, ask; items are chosen for a middle band of what is
hidden, chances add up in the logarithm of the odds, each person profits more or less, and two shares are withheld.
`teams`: three items are chosen together by what is asked for, which a kind of request tells only in part; failures
multiply, the mood of a day helps or harms all of its episodes, and an episode is judged by the mean of some turns.
`menus`: six items stand in every menu, for a fifth of the episodes; with drift, all effects change at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from habitus.evidence.model import EvidenceItem, ItemKind, ItemObservation

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

COUNT, EFFECTLESS, KINDS = 30, 10, 8  # the last ten items have no effect
ITEMS = [EvidenceItem(kind=ItemKind.LESSON, name=f"item {number:02}") for number in range(COUNT)]
A_DAY = 50  # episodes
_LATELY = 0.2  # of the episodes: those that today's truth is the mean of
WORLDS = ("hard", "users", "teams", "menus")
_FEW, _SHORT = 6, 5  # items of `menus`, and its part of the episodes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Drawn:
    """Of each item whether an episode chose it and whether the draw offered it; how the episode went, and the truth."""

    is_chosen: Flags
    is_offered: Flags
    propensity: Floats  # of each item
    success: Floats
    kind: Numbers
    truth: Floats  # of each item: the mean effect of offering it where it was chosen; with drift, lately
    is_effectless: Flags
    began: Numbers  # of each item: the episode since which its lift is today's

    def observations(self) -> Iterator[ItemObservation]:
        episodes, items = np.nonzero(self.is_chosen)
        for episode, item in zip(episodes.tolist(), items.tolist(), strict=True):
            yield ItemObservation(
                unit=str(episode),
                item=ITEMS[item],
                is_offered=bool(self.is_offered[episode, item]),
                propensity=float(self.propensity[item]),
                is_used=bool(self.is_offered[episode, item]),
                success=float(self.success[episode]),
                request_kind=str(self.kind[episode]),
                tokens=300,
                age_days=(len(self.kind) - episode) / A_DAY,
            )


def draw(world: str, episodes: int, seed: int, *, drifts: bool) -> Drawn:
    random = np.random.default_rng([WORLDS.index(world), seed])
    return {"hard": _hard, "users": _users, "teams": _teams, "menus": _menus}[world](episodes, random, drifts)


def _hard(episodes: int, random: np.random.Generator, drifts: bool) -> Drawn:
    """With drift, half of the items that have an effect get another one at some moment in the middle third."""
    kind, hardness = random.integers(KINDS, size=episodes), random.normal(size=episodes)
    leaning = random.normal(scale=0.7, size=COUNT)
    is_chosen = random.random((episodes, COUNT)) < _odds(np.log(0.1 / 0.9) + np.outer(hardness, leaning))
    lifts = np.broadcast_to(_lifts(random, 0.02, 0.16), (episodes, COUNT)).copy()
    if drifts:
        timestamps = random.integers(episodes // 3, 2 * episodes // 3, size=COUNT)
        for item in np.flatnonzero(random.random(COUNT) < 0.5):
            lifts[timestamps[item] :, item] = _lifts(random, 0.02, 0.16)[item]
    base = 0.6 + random.normal(scale=0.1, size=KINDS)[kind] - 0.18 * hardness
    propensity = np.full(COUNT, 0.9)
    return _drawn(is_chosen, propensity, kind, base, lifts, _clipped, random, drifts)


def _users(episodes: int, random: np.random.Generator, drifts: bool) -> Drawn:
    """With drift, every lift wanders: a little with each episode."""
    people = 200
    busy = 1 / (np.arange(people) + 5.0)
    who = random.choice(people, size=episodes, p=busy / busy.sum())
    ability, kind = random.normal(size=people), random.integers(KINDS, size=episodes)
    hidden = 0.7 * random.normal(size=episodes) + 0.7 * random.normal(size=people)[who]
    middles = random.normal(size=COUNT)
    scores = random.gumbel(size=(episodes, COUNT)) - 0.8 * (hidden[:, None] - middles) ** 2
    is_chosen = scores >= np.partition(scores, -5, axis=1)[:, -5:-4]
    lifts = np.broadcast_to(_lifts(random, 0.1, 0.8), (episodes, COUNT)).copy()
    if drifts:
        steps = random.normal(scale=0.5 / np.sqrt(episodes), size=(episodes, COUNT)).cumsum(0)
        lifts += np.where(lifts[-1] != 0, steps, 0)
    lifts *= 1 + 0.5 * random.normal(size=(people, COUNT))[who]
    base = 0.3 + random.normal(scale=0.4, size=KINDS)[kind] + 0.8 * ability[who] - 0.7 * hidden
    propensity = np.where(np.arange(COUNT) % 2, 0.9, 0.8)
    return _drawn(is_chosen, propensity, kind, base, lifts, _odds, random, drifts)


def _teams(episodes: int, random: np.random.Generator, drifts: bool) -> Drawn:
    """With drift, the items of half of the teams fade to nothing in the course of time."""
    teams = np.arange(COUNT) % 10
    subject = random.integers(10, size=episodes)
    kind = np.where(random.random(episodes) < 0.6, subject % KINDS, random.integers(KINDS, size=episodes))
    is_chosen = (teams == subject[:, None]) | (random.random((episodes, COUNT)) < 0.05)
    lifts = np.broadcast_to(_lifts(random, 0.1, 0.5), (episodes, COUNT)).copy()
    if drifts:
        lifts *= np.where(random.random(10)[teams] < 0.5, np.linspace(1, 0, episodes)[:, None], 1)
    mood = random.normal(scale=0.3, size=episodes // A_DAY + 1)[np.arange(episodes) // A_DAY]
    base = 0.8 + random.normal(scale=0.4, size=10)[subject] + mood
    propensity = np.full(COUNT, 0.85)
    return _drawn(is_chosen, propensity, kind, base, lifts, _survival, random, drifts, turns=3)


def _menus(episodes: int, random: np.random.Generator, drifts: bool) -> Drawn:
    """Two of the items have no effect. With drift, the others get another one half-way."""
    episodes //= _SHORT
    is_chosen = np.broadcast_to(np.isin(np.arange(COUNT), np.arange(_FEW) + COUNT - EFFECTLESS - 4), (episodes, COUNT))
    lifts = np.broadcast_to(_lifts(random, 0.02, 0.15), (episodes, COUNT)).copy()
    if drifts:
        lifts[episodes // 2 :] = _lifts(random, 0.02, 0.15)
    kind = random.integers(KINDS, size=episodes)
    base = 0.5 + random.normal(scale=0.1, size=KINDS)[kind] - 0.15 * random.normal(size=episodes)
    return _drawn(is_chosen, np.full(COUNT, 0.9), kind, base, lifts, _clipped, random, drifts)


def _drawn(
    is_chosen: Flags,
    propensity: Floats,
    kind: Numbers,
    base: Floats,
    lifts: Floats,
    chance: Callable[[Floats], Floats],
    random: np.random.Generator,
    drifts: bool,
    turns: int = 1,
) -> Drawn:
    is_offered = is_chosen & (random.random(is_chosen.shape) < propensity)
    level = base + (lifts * is_offered).sum(1)
    without = level[:, None] - lifts * is_offered
    since = round(len(kind) * (1 - _LATELY)) if drifts else 0
    is_today = np.asarray((lifts == lifts[-1])[::-1].cumprod(0))
    effects = np.where(is_chosen, chance(without + lifts) - chance(without), 0)[since:]
    return Drawn(
        is_chosen=is_chosen,
        is_offered=is_offered,
        propensity=propensity,
        success=random.binomial(turns, chance(level)) / turns,
        kind=kind,
        truth=effects.sum(0) / np.maximum(is_chosen[since:].sum(0), 1),
        is_effectless=np.arange(COUNT) >= COUNT - EFFECTLESS,
        began=len(kind) - is_today.sum(0),
    )


def _lifts(random: np.random.Generator, middle: float, spread: float) -> Floats:
    return np.concatenate([random.normal(middle, spread, COUNT - EFFECTLESS), np.zeros(EFFECTLESS)])


def _clipped(level: Floats) -> Floats:
    return np.clip(level, 0.02, 0.98)


def _survival(level: Floats) -> Floats:
    """A hazard of failing, which each point of the level divides by e."""
    return np.asarray(np.exp(-np.exp(-level)), dtype=np.float64)


def _odds(level: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-level)), dtype=np.float64)
