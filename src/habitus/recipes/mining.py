"""Mining: repeated sequences of calls become recipes, each checked on every turn it came from.

Also groups occurrences of one procedure, and requests that ask for much the same.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from habitus.recipes.alignment import AlignedRecipe, align_occurrences_into_recipe, can_recipe_replay_calls
from habitus.recipes.execution import format_value_as_text_or_json
from habitus.recipes.sequences import (
    MIN_TURNS,
    ComparableToolCall,
    Label,
    ObservedTurn,
    Path,
    PatternMatch,
    compute_log_poisson_tail_probability,
    count_pattern_placements_in_turn,
    find_frequent_patterns,
    is_frequent_enough_for_habit,
)
from habitus.search.texts.embedding import Embedder
from habitus.skills.formats.recipes_md import Recipe, list_referenced_variable_names

# Calls of a turn that are considered.
MAX_TURN_CALLS = 400
# Recipes of one mining run.
MAX_RECIPES = 50
_MAX_PATTERNS = 2_000
# Procedures with the same tools in the same order.
_MAX_GROUPS = 3
# Accepted share of findings that shuffled calls would give as well.
_FALSE_DISCOVERY_RATE = 0.001
_MAX_PARAMETERS = 8
# Characters; a longer value is the work itself, which no recipe knows.
_MAX_PARAMETER_CHARACTERS = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeOccurrence:
    """Where a recipe was found: the positions of its calls in the turn, and its parameter values."""

    session: str
    turn: str
    places: tuple[int, ...]
    params: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class MinedRecipe:
    """A recipe that replays on all of its occurrences, one per turn; `expected` is the number expected by chance."""

    recipe: Recipe
    occurrences: tuple[RecipeOccurrence, ...]
    expected: float
    # Equal for the same procedure, whatever its literals.
    labels: tuple[Label, ...] = field(repr=False)

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(step["tool"] for step in self.recipe.steps)

    @property
    def sessions(self) -> frozenset[str]:
        return frozenset(one.session for one in self.occurrences)


def mine_recipes(turns: Sequence[ObservedTurn]) -> tuple[MinedRecipe, ...]:
    """Return the recipes found in successful turns, those that save most calls first; a call belongs to one recipe at
    most.
    """
    good = [(turn, _list_positions_of_successful_calls(turn)) for turn in turns if turn.ok]
    good = [(turn, steps) for turn, steps in good if len(steps) > 1]
    corpus = CallCorpus([[turn.calls[at] for at in steps] for turn, steps in good], [turn.session for turn, _ in good])
    found: list[tuple[float, tuple[Label, ...], OccurrenceGroup]] = []
    patterns, kinds = _find_step_patterns(corpus)
    for pattern, where in patterns:
        made, tried = find_best_occurrence_groups(corpus, pattern, where, _MAX_GROUPS)
        # The search only reaches patterns that the data favours, so all that it could have reached count as tried.
        least = math.log(_FALSE_DISCOVERY_RATE / tried) - len(pattern) * math.log(kinds)
        found += [(-float(len(pattern) * len(one.matches)), pattern, one) for one in made if one.log_chance < least]
    likely = sorted(found, key=lambda one: (*one[:2], one[2].matches[0].turn))
    return tuple(_choose_non_overlapping_recipes(corpus, good, likely))


def _list_positions_of_successful_calls(turn: ObservedTurn) -> list[int]:
    """Return the positions of the successful calls."""
    return [number for number, call in enumerate(turn.calls[:MAX_TURN_CALLS]) if call.success]


def _find_step_patterns(corpus: CallCorpus) -> tuple[list[tuple[tuple[Label, ...], list[PatternMatch]]], int]:
    """Return patterns of steps that follow each other, by tools alone and with recurring values, and the number of
    labels.
    """
    coarse = [[call.step_equivalence_key for call in calls] for calls in corpus.turns]
    fine = [
        [f"{call.step_equivalence_key}{corpus.list_recurring_values(call, MIN_TURNS)}" for call in calls]
        for calls in corpus.turns
    ]

    def is_linked(found: PatternMatch) -> bool:
        *earlier, last = corpus.get_calls_of_match(found)
        return any(not last.rare_argument_values.isdisjoint(call.rare_values_known_after_call) for call in earlier)

    patterns: dict[tuple[Label, ...], dict[PatternMatch, None]] = {}
    for labels in (coarse, fine):
        for one in find_frequent_patterns(labels, corpus.sessions, is_linked):
            first = one.matches[0]
            pattern = tuple(coarse[first.turn][place] for place in first.places)
            patterns.setdefault(pattern, {}).update(dict.fromkeys(one.matches))
    ranked = sorted(patterns.items(), key=lambda one: (-len(one[0]) * len(one[1]), one[0]))
    counts = Counter(label for labels in (coarse, fine) for turn in labels for label in set(turn))
    kinds = sum(count >= MIN_TURNS for count in counts.values())
    return [(pattern, list(where)) for pattern, where in ranked[:_MAX_PATTERNS]], kinds


def _choose_non_overlapping_recipes(
    corpus: CallCorpus,
    good: Sequence[tuple[ObservedTurn, list[int]]],
    likely: Sequence[tuple[float, tuple[Label, ...], OccurrenceGroup]],
) -> Iterator[MinedRecipe]:
    taken: set[tuple[int, int]] = set()
    count = 0
    for _, pattern, group in likely:
        free = [one for one in group.matches if not any((one.turn, place) in taken for place in one.places)]
        # A group that lost half its occurrences to better recipes is mostly a fragment of them.
        if count == MAX_RECIPES or len(free) * 2 <= len(group.matches) or len(free) < MIN_TURNS:
            continue
        made = _build_recipe_if_it_replays(corpus, free)
        if made is None:
            continue
        yield MinedRecipe(
            recipe=made.recipe,
            occurrences=tuple(
                RecipeOccurrence(
                    session=good[one.turn][0].session,
                    turn=good[one.turn][0].turn,
                    places=tuple(good[one.turn][1][place] for place in one.places),
                    params=params,
                )
                for one, params in zip(free, made.occurrence_params, strict=True)
            ),
            expected=group.expected,
            labels=pattern,
        )
        count += 1
        taken |= {(one.turn, place) for one in free for place in one.places}


def _build_recipe_if_it_replays(corpus: CallCorpus, found: Sequence[PatternMatch]) -> AlignedRecipe | None:
    """Return the recipe of these occurrences; None if it does not replay on all of them or knows too little."""
    calls = [corpus.get_calls_of_match(one) for one in found]
    made = align_occurrences_into_recipe(_make_recipe_name([call.action for call in calls[0]]), calls)
    if not _is_useful_recipe(made):
        return None
    if not all(
        can_recipe_replay_calls(made.recipe, params, each)
        for params, each in zip(made.occurrence_params, calls, strict=True)
    ):
        return None
    return made


def _is_useful_recipe(made: AlignedRecipe) -> bool:
    """Return whether the recipe knows at least as much as it asks, and asks for nothing that is the work itself."""
    steps = made.recipe.steps
    used = [list_referenced_variable_names(step.get("params", {})) for step in steps]
    has_flow = any(one & other for one, other in itertools.combinations(used, 2)) or any("save_as" in s for s in steps)
    longest = max(
        (len(format_value_as_text_or_json(value)) for params in made.occurrence_params for value in params.values()),
        default=0,
    )
    return (
        made.known_count >= made.parameter_count
        and made.parameter_count <= _MAX_PARAMETERS
        and longest <= _MAX_PARAMETER_CHARACTERS
        and len({str(step) for step in steps}) > 1
        and (has_flow or len(steps) > 2)
    )


def _make_recipe_name(doing: Sequence[str]) -> str:
    """Name a recipe after its steps, the first and the last if there are many."""
    words = list(dict.fromkeys(" ".join(re.findall(r"\w+", one.replace("_", " "))) for one in doing))
    chosen = words if len(words) < 4 else [words[0], words[-1]]
    return (" then ".join(chosen) if len(chosen) > 1 else f"{chosen[0]} again")[:60].rstrip()


def render_recipe_as_prose_steps(recipe: Recipe) -> str:
    """Render a recipe as prose, for a skill whose tools are not ours to call."""
    lines = []
    for number, step in enumerate(recipe.steps, 1):
        given = [f"  - {key}: `{format_value_as_text_or_json(value)}`" for key, value in step.get("params", {}).items()]
        saved = f", and keep its result as `{step['save_as']}`" if "save_as" in step else ""
        lines += [f"{number}. Call `{step['tool']}`{saved}{':' if given else '.'}", *given]
    asked = [
        f"- `{name}`: {means['description'] if isinstance(means, Mapping) else means}"
        for name, means in recipe.params.items()
    ]
    return "\n".join([*(["What differs every time:", "", *asked, ""] if asked else []), *lines, ""])


# Features to build groups around, and occurrences of each to compare.
_SEEDS, _PAIRED = 16, 6
# Pseudo-count for the kinds of calls that a small journal has not seen yet.
_UNSEEN = 10
# Prior for links: so many calls, of which this share agrees by chance.
_FEW, _LINKED_BY_CHANCE = 10, 0.01


@dataclass(frozen=True, slots=True)
class ArgumentValueFeature:
    """An argument of a step has this value."""

    step: int
    path: Path
    key: str


@dataclass(frozen=True, slots=True)
class ArgumentLinkFeature:
    """An argument of a step equals an earlier argument, or part of an earlier result."""

    step: int
    path: Path
    source: int
    source_path: Path
    is_result: bool


Feature = ArgumentValueFeature | ArgumentLinkFeature


@dataclass(frozen=True, kw_only=True, slots=True)
class OccurrenceGroup:
    """Occurrences of one procedure; `log_chance` is the log-probability that shuffled calls give as many."""

    # One per turn.
    matches: tuple[PatternMatch, ...]
    log_chance: float
    expected: float


class CallCorpus:
    """All calls by turn, with the frequency of each value."""

    def __init__(self, turns: Sequence[Sequence[ComparableToolCall]], sessions: Sequence[str]) -> None:
        self.turns = turns
        self.sessions = sessions
        self._labels = Counter(call.step_equivalence_key for calls in turns for call in calls)
        self.total = self._labels.total() + _UNSEEN
        self._lengths = Counter(map(len, turns))
        self._given: dict[tuple[Label, Path], Counter[str]] = {}
        self._returned: dict[tuple[Label, Path], Counter[str]] = {}
        for call in itertools.chain.from_iterable(turns):
            for path, key in call.argument_value_keys_by_path.items():
                self._given.setdefault((call.step_equivalence_key, path), Counter())[key] += 1
            for key, path in call.result_path_by_value.items():
                self._returned.setdefault((call.step_equivalence_key, path), Counter())[key] += 1

    def count_possible_pattern_positions(self, steps: int) -> int:
        """Return at how many positions a pattern of so many steps could occur."""
        return sum(count * count_pattern_placements_in_turn(length, steps) for length, count in self._lengths.items())

    def get_calls_of_match(self, match: PatternMatch) -> list[ComparableToolCall]:
        """Return the calls of a match."""
        return [self.turns[match.turn][place] for place in match.places]

    def compute_share_of_calls_with_features(self, label: Label, features: Sequence[ArgumentValueFeature]) -> float:
        """Return the share of calls with this label and these values."""
        counts = [self._given.get((label, one.path), Counter())[one.key] for one in features]
        return min([self._labels[label], *counts]) / self.total

    def compute_link_coincidence_rate(self, ref: ArgumentLinkFeature, pattern: Sequence[Label]) -> float:
        """Return how often two unrelated calls would agree like this."""
        mine = self._given.get((pattern[ref.step], ref.path), Counter())
        rest = (self._returned if ref.is_result else self._given).get((pattern[ref.source], ref.source_path), Counter())
        some, many = (mine, rest) if len(mine) < len(rest) else (rest, mine)
        same = sum(count * many[key] for key, count in some.items())
        calls = mine.total()
        agree = same / (calls * rest.total()) if calls and rest else 0.0
        return (calls * agree + _FEW * _LINKED_BY_CHANCE) / (calls + _FEW)

    def list_recurring_values(self, call: ComparableToolCall, min_count: int) -> list[tuple[Path, str]]:
        """Return the values of a call that other calls with its label share."""
        return [
            (path, key)
            for path, key in sorted(call.argument_value_keys_by_path.items())
            if len(path) == 1 and self._given[call.step_equivalence_key, path][key] >= min_count
        ]


def find_best_occurrence_groups(
    corpus: CallCorpus, pattern: Sequence[Label], matches: Sequence[PatternMatch], max_groups: int
) -> tuple[list[OccurrenceGroup], int]:
    """Return the best groups, each without the occurrences of better ones, and how many were tried."""
    features = [frozenset(_iterate_features(corpus.get_calls_of_match(one))) for one in matches]
    # Sets of occurrences as bit masks, because thousands of intersections follow.
    masks: dict[Feature, int] = {}
    for number, one in enumerate(features):
        for feature in one:
            masks[feature] = masks.get(feature, 0) | 1 << number
    frequent = {
        each: mask
        for each, mask in masks.items()
        if is_frequent_enough_for_habit(_iterate_turns_in_bit_mask(matches, mask), corpus.sessions)
    }
    tried = {frozenset[Feature]()} | set(_iterate_feature_sets(features, frequent, corpus, pattern))
    everything = (1 << len(matches)) - 1
    made: list[OccurrenceGroup] = []
    left = everything
    while len(made) < max_groups:
        best: tuple[OccurrenceGroup, int] | None = None
        for common in tried:
            mask = left
            for feature in common:
                mask &= frequent[feature]
            if not is_frequent_enough_for_habit(_iterate_turns_in_bit_mask(matches, mask), corpus.sessions):
                continue
            group = _build_occurrence_group(corpus, pattern, matches, mask, common)
            if best is None or group.log_chance < best[0].log_chance:
                best = group, mask
        if best is None:
            break
        made.append(best[0])
        left &= ~best[1]
    return made, len(tried)


def _iterate_features(calls: Sequence[ComparableToolCall]) -> Iterator[Feature]:
    for step, call in enumerate(calls):
        for path, key in call.argument_value_keys_by_path.items():
            yield ArgumentValueFeature(step, path, key)
            for source in range(step + 1):
                earlier = calls[source]
                of = earlier.argument_path_by_value.get(key)
                if of is not None and (source < step or of != path):
                    yield ArgumentLinkFeature(step, path, source, of, False)
                if source < step and (of := earlier.result_path_by_value.get(key)) is not None:
                    yield ArgumentLinkFeature(step, path, source, of, True)


def _iterate_turns_in_bit_mask(found: Sequence[PatternMatch], mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield found[lowest.bit_length() - 1].turn
        mask ^= lowest


def _iterate_feature_sets(
    features: Sequence[frozenset[Feature]],
    frequent: Mapping[Feature, int],
    corpus: CallCorpus,
    pattern: Sequence[Label],
) -> Iterator[frozenset[Feature]]:
    """Yield sets of features that two occurrences share, around the least likely features."""

    def surprise(feature: Feature) -> float:
        if isinstance(feature, ArgumentLinkFeature):
            return corpus.compute_link_coincidence_rate(feature, pattern) * corpus.compute_share_of_calls_with_features(
                pattern[feature.step], ()
            )
        return corpus.compute_share_of_calls_with_features(pattern[feature.step], (feature,))

    shared = frozenset(frequent)
    for seed in sorted(frequent, key=lambda one: (surprise(one), repr(one)))[:_SEEDS]:
        members = [number for number in range(len(features)) if frequent[seed] >> number & 1]
        some = members[:: max(1, len(members) // _PAIRED)][:_PAIRED]
        for one, other in itertools.combinations(some, 2):
            yield features[one] & features[other] & shared


def _build_occurrence_group(
    corpus: CallCorpus, pattern: Sequence[Label], found: Sequence[PatternMatch], mask: int, common: frozenset[Feature]
) -> OccurrenceGroup:
    one_a_turn: dict[int, PatternMatch] = {}
    for number, each in enumerate(found):
        if mask >> number & 1:
            one_a_turn.setdefault(each.turn, each)
    members = tuple(one_a_turn.values())
    odds = float(corpus.count_possible_pattern_positions(len(pattern)))
    for step, label in enumerate(pattern):
        odds *= corpus.compute_share_of_calls_with_features(
            label, [one for one in common if isinstance(one, ArgumentValueFeature) and one.step == step]
        )
    fixed = {(one.step, one.path) for one in common if isinstance(one, ArgumentValueFeature)}
    linked: dict[tuple[int, str], float] = {}
    for link in common:
        if isinstance(link, ArgumentLinkFeature) and (link.step, link.path) not in fixed:
            place = (link.step, link.path[0])
            linked[place] = min(linked.get(place, 1.0), corpus.compute_link_coincidence_rate(link, pattern))
    odds *= math.prod(linked.values())
    return OccurrenceGroup(
        matches=members, log_chance=compute_log_poisson_tail_probability(len(members), odds), expected=odds
    )


# Paraphrases of one request are more similar than this; other requests about the same things are not.
SIMILARITY_THRESHOLD = 0.55
# The work grows with the square of the requests, so only the latest are compared.
_MAX_COMPARED_REQUESTS = 2_000


def find_index_groups_of_similar_requests(requests: Sequence[str], encoder: Embedder) -> list[list[int]]:
    """Return groups of at least two similar requests, largest first, each around its most central one.

    Empty without an encoder.
    """
    if not encoder.width or not requests:
        return []
    vectors = encoder.embed(requests[-_MAX_COMPARED_REQUESTS:])
    near = vectors @ vectors.T >= SIMILARITY_THRESHOLD
    first = max(len(requests) - _MAX_COMPARED_REQUESTS, 0)
    groups: list[list[int]] = []
    while True:
        counts = near.sum(axis=1)
        centre = int(counts.argmax())
        if counts[centre] < 2:
            return groups
        members = near[centre].nonzero()[0]
        groups.append([first + int(member) for member in members])
        near[members, :] = False
        near[:, members] = False
