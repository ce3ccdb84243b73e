"""Mining: the sequence of calls that was done again and again becomes a recipe, checked on every turn it came from.

Occurrences that are one procedure, and requests that ask for much the same, are found here.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from habitus.recipes.alignment import Aligned, align_occurrences, replays
from habitus.recipes.execution import as_text, references
from habitus.recipes.sequences import (
    TURNS,
    Found,
    Label,
    ObservedCall,
    ObservedTurn,
    Path,
    frequent,
    is_enough,
    log_chance,
    ways_in,
)
from habitus.search.texts.embedding import Embedder
from habitus.skills.formats.recipes_md import Recipe

LONGEST_TURN = 400  # calls that are looked at
MOST = 50  # recipes of one look
_MOST_PATTERNS = 2_000
_GROUPS = 3  # procedures with the same tools in the same order
_BY_CHANCE = 0.001  # of all that is found in shuffled calls
_MOST_PARAMS = 8
_LONGEST_PARAM = 400  # characters: what is longer is the work itself, which no recipe knows


@dataclass(frozen=True, kw_only=True, slots=True)
class Occurrence:
    """Where it was done: the places of its calls in the turn as it was given, and what its parameters were."""

    session: str
    turn: str
    places: tuple[int, ...]
    params: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mined:
    """A recipe that replays on all of its occurrences, one a turn. `expected` is how many chance would have given."""

    recipe: Recipe
    occurrences: tuple[Occurrence, ...]
    expected: float
    labels: tuple[Label, ...] = field(repr=False)  # the same for the same procedure, whatever its literals

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(step["tool"] for step in self.recipe.steps)

    @property
    def sessions(self) -> frozenset[str]:
        return frozenset(one.session for one in self.occurrences)


def mine(turns: Sequence[ObservedTurn]) -> tuple[Mined, ...]:
    """The recipes of what went well, those that save most calls first. A call belongs to one recipe at most."""
    good = [(turn, _places(turn)) for turn in turns if turn.ok]
    good = [(turn, places) for turn, places in good if len(places) > 1]
    corpus = Corpus([[turn.calls[at] for at in places] for turn, places in good], [turn.session for turn, _ in good])
    found: list[tuple[float, tuple[Label, ...], Group]] = []
    patterns, kinds = _patterns(corpus)
    for pattern, where in patterns:
        made, tried = groups(corpus, pattern, where, _GROUPS)
        # The search only arrives at patterns that the data favours, so all that it could have reached count as tried.
        least = math.log(_BY_CHANCE / tried) - len(pattern) * math.log(kinds)
        found += [(-float(len(pattern) * len(one.found)), pattern, one) for one in made if one.log_chance < least]
    likely = sorted(found, key=lambda one: (*one[:2], one[2].found[0].turn))
    return tuple(_choose(corpus, good, likely))


def _places(turn: ObservedTurn) -> list[int]:
    """The calls that went well."""
    return [number for number, call in enumerate(turn.calls[:LONGEST_TURN]) if call.success]


def _patterns(corpus: Corpus) -> tuple[list[tuple[tuple[Label, ...], list[Found]]], int]:
    """Steps that follow each other, by their tools alone and with the values that come again; and how many kinds."""
    coarse = [[call.label for call in calls] for calls in corpus.turns]
    fine = [[f"{call.label}{corpus.recurring(call, TURNS)}" for call in calls] for calls in corpus.turns]

    def is_linked(found: Found) -> bool:
        *earlier, last = corpus.calls(found)
        return any(not last.rare_inputs.isdisjoint(call.rare_results) for call in earlier)

    patterns: dict[tuple[Label, ...], dict[Found, None]] = {}
    for labels in (coarse, fine):
        for one in frequent(labels, corpus.sessions, is_linked):
            first = one.found[0]
            pattern = tuple(coarse[first.turn][place] for place in first.places)
            patterns.setdefault(pattern, {}).update(dict.fromkeys(one.found))
    ranked = sorted(patterns.items(), key=lambda one: (-len(one[0]) * len(one[1]), one[0]))
    counts = Counter(label for labels in (coarse, fine) for turn in labels for label in set(turn))
    kinds = sum(count >= TURNS for count in counts.values())
    return [(pattern, list(where)) for pattern, where in ranked[:_MOST_PATTERNS]], kinds


def _choose(
    corpus: Corpus,
    good: Sequence[tuple[ObservedTurn, list[int]]],
    likely: Sequence[tuple[float, tuple[Label, ...], Group]],
) -> Iterator[Mined]:
    taken: set[tuple[int, int]] = set()
    count = 0
    for _, pattern, group in likely:
        free = [one for one in group.found if not any((one.turn, place) in taken for place in one.places)]
        if count == MOST or len(free) * 2 <= len(group.found) or len(free) < TURNS:
            continue
        made = _recipe(corpus, free)
        if made is None:
            continue
        yield Mined(
            recipe=made.recipe,
            occurrences=tuple(
                Occurrence(
                    session=good[one.turn][0].session,
                    turn=good[one.turn][0].turn,
                    places=tuple(good[one.turn][1][place] for place in one.places),
                    params=params,
                )
                for one, params in zip(free, made.params, strict=True)
            ),
            expected=group.expected,
            labels=pattern,
        )
        count += 1
        taken |= {(one.turn, place) for one in free for place in one.places}


def _recipe(corpus: Corpus, found: Sequence[Found]) -> Aligned | None:
    """The recipe of these occurrences, where it replays on every one of them and knows enough to be worth a name."""
    calls = [corpus.calls(one) for one in found]
    made = align_occurrences(_name([call.doing for call in calls[0]]), calls)
    if not _is_useful(made):
        return None
    if not all(replays(made.recipe, params, each) for params, each in zip(made.params, calls, strict=True)):
        return None
    return made


def _is_useful(made: Aligned) -> bool:
    """Whether it knows at least as much as it asks, and asks for nothing that is the work itself."""
    steps = made.recipe.steps
    used = [references(step.get("params", {})) for step in steps]
    has_flow = any(one & other for one, other in itertools.combinations(used, 2)) or any("save_as" in s for s in steps)
    longest = max((len(as_text(value)) for params in made.params for value in params.values()), default=0)
    return (
        made.known >= made.asked
        and made.asked <= _MOST_PARAMS
        and longest <= _LONGEST_PARAM
        and len({str(step) for step in steps}) > 1
        and (has_flow or len(steps) > 2)
    )


def _name(doing: Sequence[str]) -> str:
    """After what its steps do, the first and the last where there are many."""
    words = list(dict.fromkeys(" ".join(re.findall(r"\w+", one.replace("_", " "))) for one in doing))
    chosen = words if len(words) < 4 else [words[0], words[-1]]
    return (" then ".join(chosen) if len(chosen) > 1 else f"{chosen[0]} again")[:60].rstrip()


def as_steps(recipe: Recipe) -> str:
    """The recipe in words, for a skill whose tools are not ours to call."""
    lines = []
    for number, step in enumerate(recipe.steps, 1):
        given = [f"  - {key}: `{as_text(value)}`" for key, value in step.get("params", {}).items()]
        saved = f", and keep its result as `{step['save_as']}`" if "save_as" in step else ""
        lines += [f"{number}. Call `{step['tool']}`{saved}{':' if given else '.'}", *given]
    asked = [
        f"- `{name}`: {means['description'] if isinstance(means, Mapping) else means}"
        for name, means in recipe.params.items()
    ]
    return "\n".join([*(["What differs every time:", "", *asked, ""] if asked else []), *lines, ""])


_SEEDS, _PAIRED = 16, 6  # features that groups are made around, and occurrences of each that are compared
_UNSEEN = 10  # calls of other kinds that a small journal would have, were it larger
_FEW, _LINKED_BY_CHANCE = 10, 0.01  # what is believed of links before so many calls were seen


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
        return (calls * agree + _FEW * _LINKED_BY_CHANCE) / (calls + _FEW)

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
    """Steps that two occurrences have in common, around the features that are the least likely."""

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


ALIKE = 0.55  # paraphrases of one wish are nearer than this, other wishes about the same things are not
_COMPARED = 2_000  # requests that are compared with each other


def alike(requests: Sequence[str], encoder: Embedder) -> list[list[int]]:
    """Groups of two and more, the largest first, each around the request that most others are like.

    Without an encoder there are none. The work grows with the square of the requests, which is why there is a `MOST`.
    """
    if not encoder.width or not requests:
        return []
    vectors = encoder.embed(requests[-_COMPARED:])
    near = vectors @ vectors.T >= ALIKE
    first = max(len(requests) - _COMPARED, 0)
    groups: list[list[int]] = []
    while True:
        counts = near.sum(axis=1)
        centre = int(np.argmax(counts))
        if counts[centre] < 2:
            return groups
        members = np.flatnonzero(near[centre])
        groups.append([first + int(member) for member in members])
        near[members, :] = False
        near[:, members] = False
