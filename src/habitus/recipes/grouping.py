"""Groups of occurrences that are one procedure: what they have in common is no coincidence.

The same tools follow each other for many reasons. Occurrences that share values and links between their steps are taken
together where so many of them would not have come about had all calls been shuffled.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from habitus.recipes.sequences import Found, Label, ObservedCall, Path, is_enough, log_chance, ways_in

_SEEDS, _PAIRED = 16, 6  # features that groups are made around, and occurrences of each that are compared
_UNSEEN = 10  # calls of other kinds that a small journal would have, were it larger
_FEW, _BY_CHANCE = 10, 0.01  # what is believed of links before so many calls were seen


@dataclass(frozen=True, slots=True)
class Is:
    """An argument of a step has this value."""

    step: int
    path: Path
    key: str


@dataclass(frozen=True, slots=True)
class Link:
    """An argument of a step has the value of an earlier argument, or of something that an earlier step returned."""

    step: int
    path: Path
    source: int
    of: Path
    is_result: bool


Feature = Is | Link


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """`log_chance` is the logarithm of how likely shuffled calls had given as many."""

    found: tuple[Found, ...]  # one a turn
    log_chance: float
    expected: float


class Corpus:
    """All calls, by turn, and how common each value is."""

    def __init__(self, turns: Sequence[Sequence[ObservedCall]], sessions: Sequence[str]) -> None:
        self.turns = turns
        self.sessions = sessions
        self._labels = Counter(call.label for calls in turns for call in calls)
        self.total = self._labels.total() + _UNSEEN
        self._lengths = Counter(map(len, turns))
        self._given: dict[tuple[Label, Path], Counter[str]] = {}
        self._returned: dict[tuple[Label, Path], Counter[str]] = {}
        for call in itertools.chain.from_iterable(turns):
            for path, key in call.leaves.items():
                self._given.setdefault((call.label, path), Counter())[key] += 1
            for key, path in call.returned_paths.items():
                self._returned.setdefault((call.label, path), Counter())[key] += 1

    def ways(self, steps: int) -> int:
        """In how many places a pattern of so many steps could stand."""
        return sum(count * ways_in(length, steps) for length, count in self._lengths.items())

    def calls(self, found: Found) -> list[ObservedCall]:
        return [self.turns[found.turn][place] for place in found.places]

    def rate(self, label: Label, wanted: Sequence[Is]) -> float:
        """How often a call is one of this step, with these values."""
        counts = [self._given.get((label, one.path), Counter())[one.key] for one in wanted]
        return min([self._labels[label], *counts]) / self.total

    def coincidence(self, link: Link, pattern: Sequence[Label]) -> float:
        """How often two calls would agree so, had neither to do with the other."""
        mine = self._given.get((pattern[link.step], link.path), Counter())
        others = (self._returned if link.is_result else self._given).get((pattern[link.source], link.of), Counter())
        some, many = (mine, others) if len(mine) < len(others) else (others, mine)
        same = sum(count * many[key] for key, count in some.items())
        calls = mine.total()
        agree = same / (calls * others.total()) if calls and others else 0.0
        return (calls * agree + _FEW * _BY_CHANCE) / (calls + _FEW)

    def recurring(self, call: ObservedCall, least: int) -> list[tuple[Path, str]]:
        """The values of a call that others of its label have, too."""
        return [
            (path, key)
            for path, key in sorted(call.leaves.items())
            if len(path) == 1 and self._given[call.label, path][key] >= least
        ]


def groups(corpus: Corpus, pattern: Sequence[Label], found: Sequence[Found], most: int) -> tuple[list[Group], int]:
    """The best groups, each of occurrences that no better one has; and how many were tried."""
    features = [frozenset(_features(corpus.calls(one))) for one in found]
    masks: dict[Feature, int] = {}
    for number, one in enumerate(features):
        for feature in one:
            masks[feature] = masks.get(feature, 0) | 1 << number
    frequent = {each: mask for each, mask in masks.items() if is_enough(_turns(found, mask), corpus.sessions)}
    tried = {frozenset[Feature]()} | set(_candidates(features, frequent, corpus, pattern))
    everything = (1 << len(found)) - 1
    made: list[Group] = []
    left = everything
    while len(made) < most:
        best: tuple[Group, int] | None = None
        for common in tried:
            mask = left
            for feature in common:
                mask &= frequent[feature]
            if not is_enough(_turns(found, mask), corpus.sessions):
                continue
            group = _group(corpus, pattern, found, mask, common)
            if best is None or group.log_chance < best[0].log_chance:
                best = group, mask
        if best is None:
            break
        made.append(best[0])
        left &= ~best[1]
    return made, len(tried)


def _features(calls: Sequence[ObservedCall]) -> Iterator[Feature]:
    for step, call in enumerate(calls):
        for path, key in call.leaves.items():
            yield Is(step, path, key)
            for source in range(step + 1):
                earlier = calls[source]
                of = earlier.given_paths.get(key)
                if of is not None and (source < step or of != path):
                    yield Link(step, path, source, of, False)
                if source < step and (of := earlier.returned_paths.get(key)) is not None:
                    yield Link(step, path, source, of, True)


def _turns(found: Sequence[Found], mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield found[lowest.bit_length() - 1].turn
        mask ^= lowest


def _candidates(
    features: Sequence[frozenset[Feature]],
    frequent: Mapping[Feature, int],
    corpus: Corpus,
    pattern: Sequence[Label],
) -> Iterator[frozenset[Feature]]:
    """What two occurrences have in common, around the features that are the least likely."""

    def surprise(feature: Feature) -> float:
        if isinstance(feature, Link):
            return corpus.coincidence(feature, pattern) * corpus.rate(pattern[feature.step], ())
        return corpus.rate(pattern[feature.step], (feature,))

    shared = frozenset(frequent)
    for seed in sorted(frequent, key=lambda one: (surprise(one), repr(one)))[:_SEEDS]:
        members = [number for number in range(len(features)) if frequent[seed] >> number & 1]
        some = members[:: max(1, len(members) // _PAIRED)][:_PAIRED]
        for one, other in itertools.combinations(some, 2):
            yield features[one] & features[other] & shared


def _group(
    corpus: Corpus, pattern: Sequence[Label], found: Sequence[Found], mask: int, common: frozenset[Feature]
) -> Group:
    one_a_turn: dict[int, Found] = {}
    for number, each in enumerate(found):
        if mask >> number & 1:
            one_a_turn.setdefault(each.turn, each)
    members = tuple(one_a_turn.values())
    expected = float(corpus.ways(len(pattern)))
    for step, label in enumerate(pattern):
        expected *= corpus.rate(label, [one for one in common if isinstance(one, Is) and one.step == step])
    fixed = {(one.step, one.path) for one in common if isinstance(one, Is)}
    linked: dict[tuple[int, str], float] = {}
    for link in common:
        if isinstance(link, Link) and (link.step, link.path) not in fixed:
            place = (link.step, link.path[0])
            linked[place] = min(linked.get(place, 1.0), corpus.coincidence(link, pattern))
    expected *= math.prod(linked.values())
    return Group(found=members, log_chance=log_chance(len(members), expected), expected=expected)
