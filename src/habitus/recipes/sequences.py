"""Finds frequent sequences: steps that follow each other in turn after turn, more often than in shuffled calls.

Patterns grow step by step, over at most `MAX_GAP` other calls. A pattern grows only where its next step occurs more
often than chance, or receives a value that an earlier step had or returned; so the work is about the number of calls
times `MAX_GAP`, and `MAX_LOOKS` ends it in any case.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from habitus.events import ToolCallRecord
from habitus.recipes.execution import parse_step_result
from habitus.redact import MARKER

# Other calls allowed between two steps.
MAX_GAP = 2
# Steps of a pattern.
MAX_STEPS = 8
# A sequence must occur in so many turns and sessions.
MIN_TURNS, MIN_SESSIONS = 3, 2
MAX_LOOKS = 2_000_000
# Matches of a pattern to keep per turn.
_MAX_MATCHES_PER_TURN = 6
_MAX_CHANCE = 0.05
# Pseudo-count for calls that a small journal has not seen yet; groups are judged more strictly.
_UNSEEN = 50

Label = str


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """A match of a pattern: the number of a turn, and the positions of its calls."""

    turn: int
    places: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FrequentPattern:
    """A pattern of labels with all its matches."""

    pattern: tuple[Label, ...]
    matches: tuple[PatternMatch, ...]


def find_frequent_patterns(
    turns: Sequence[Sequence[Label]], sessions: Sequence[str], is_linked: Callable[[PatternMatch], bool]
) -> list[FrequentPattern]:
    """Return patterns of two and more steps; `is_linked` tells whether the last step received an earlier step's
    value.
    """
    counts = Counter(label for turn in turns for label in turn)
    total = counts.total() + _UNSEEN
    waiting = _find_calls_that_begin_patterns(turns, sessions)
    labels = {label for one in waiting for label in one.pattern}
    grown: list[FrequentPattern] = []
    looks = 0
    # The list grows while we iterate over it.
    for one in waiting:
        if looks >= MAX_LOOKS:
            break
        longer, slots = _extend_pattern(one, turns, labels)
        looks += slots
        for label, found in sorted(longer.items()):
            if kept := _select_matches_worth_extending(found, sessions, is_linked, slots * counts[label] / total):
                grown.append(FrequentPattern(pattern=(*one.pattern, label), matches=kept))
                waiting += grown[-1:] if len(one.pattern) + 1 < MAX_STEPS else []
    return grown


def _find_calls_that_begin_patterns(turns: Sequence[Sequence[Label]], sessions: Sequence[str]) -> list[FrequentPattern]:
    """Return the single calls that a pattern can begin with."""
    found: dict[Label, list[PatternMatch]] = {}
    for number, turn in enumerate(turns):
        for place, label in enumerate(turn):
            found.setdefault(label, []).append(PatternMatch(number, (place,)))
    enough = {
        label: at
        for label, at in sorted(found.items())
        if is_frequent_enough_for_habit((one.turn for one in at), sessions)
    }
    return [FrequentPattern(pattern=(label,), matches=tuple(at)) for label, at in enough.items()]


def is_frequent_enough_for_habit(turns: Iterator[int], sessions: Sequence[str]) -> bool:
    """Return whether something occurred in enough turns and sessions to be a habit."""
    different = set(turns)
    return len(different) >= MIN_TURNS and len({sessions[turn] for turn in different}) >= MIN_SESSIONS


@functools.cache
def count_pattern_placements_in_turn(length: int, steps: int) -> int:
    """Return in how many ways a pattern of so many steps fits into a turn of this length."""
    # The number of ways that end at each position.
    ending = [1] * length
    for _ in range(steps - 1):
        ending = [sum(ending[max(0, place - MAX_GAP - 1) : place]) for place in range(length)]
    return sum(ending)


def compute_log_poisson_tail_probability(seen: int, expected: float) -> float:
    """Return the log-probability of at least `seen` events where `expected` are expected (Poisson)."""
    if expected >= seen:
        return 0.0
    if expected <= 0:
        return -math.inf
    first = seen * math.log(expected) - expected - math.lgamma(seen + 1)
    rest, term = 1.0, 1.0
    for more in range(seen + 1, seen + 60):
        term *= expected / more
        rest += term
    return min(0.0, first + math.log(rest))


def _extend_pattern(
    one: FrequentPattern, turns: Sequence[Sequence[Label]], labels: Collection[Label]
) -> tuple[dict[Label, list[PatternMatch]], int]:
    """Return the matches of longer patterns by next step, and how many positions were tried."""
    longer: dict[Label, list[PatternMatch]] = {}
    slots = 0
    for found in one.matches:
        turn, last = turns[found.turn], found.places[-1]
        for place in range(last + 1, min(last + MAX_GAP + 2, len(turn))):
            slots += 1
            if turn[place] in labels:
                longer.setdefault(turn[place], []).append(PatternMatch(found.turn, (*found.places, place)))
    return longer, slots


def _select_matches_worth_extending(
    found: Sequence[PatternMatch], sessions: Sequence[str], is_linked: Callable[[PatternMatch], bool], expected: float
) -> tuple[PatternMatch, ...]:
    """Return the matches worth extending: all of them, only the linked ones, or none."""
    if not is_frequent_enough_for_habit((each.turn for each in found), sessions):
        return ()
    if compute_log_poisson_tail_probability(len({each.turn for each in found}), expected) < math.log(_MAX_CHANCE):
        return _limit_matches_per_turn(found)
    linked = [each for each in found if is_linked(each)]
    return (
        _limit_matches_per_turn(linked)
        if is_frequent_enough_for_habit((each.turn for each in linked), sessions)
        else ()
    )


def _limit_matches_per_turn(found: Sequence[PatternMatch]) -> tuple[PatternMatch, ...]:
    taken: Counter[int] = Counter()
    kept = []
    for each in found:
        taken[each.turn] += 1
        if taken[each.turn] <= _MAX_MATCHES_PER_TURN:
            kept.append(each)
    return tuple(kept)


Path = tuple[str, ...]
# Nodes of one value to consider.
_MAX_NODES = 300
_LONGEST_KEY = 80
_COMMANDS = ("command", "cmd")
# A date, a version or an id.
_NUMBERED = re.compile(r"(?<!\d)\d[\w.:-]{3,60}(?<=\w)")


@dataclass(frozen=True, kw_only=True)
class ComparableToolCall(ToolCallRecord):
    """A call with derived keys for comparison; `kind` refines its name, and defaults to the program of a command
    line.
    """

    success: bool | None = True
    kind: str = ""

    @cached_property
    def step_equivalence_key(self) -> str:
        """Calls with the same label may be one step of a recipe."""
        return json.dumps([self.name, self.action, sorted(self.arguments)], ensure_ascii=False)

    @cached_property
    def action(self) -> str:
        return self.kind or get_program_with_subcommand(self.arguments) or self.name

    @cached_property
    def argument_value_keys_by_path(self) -> Mapping[Path, str]:
        """The values of its arguments by path, as comparable keys."""
        return {
            path: key
            for path, value in iterate_json_nodes(self.arguments)
            if path and (key := compute_comparison_key_of_value(value)) is not None
        }

    @cached_property
    def argument_path_by_value(self) -> Mapping[str, Path]:
        return _map_values_to_first_paths(self.argument_value_keys_by_path)

    @cached_property
    def result_path_by_value(self) -> Mapping[str, Path]:
        """The values it returned, each with the shortest path to it."""
        found = (
            (path, compute_comparison_key_of_value(value))
            for path, value in iterate_json_nodes(parse_step_result(self.result))
            if all(map(_is_key_usable_in_reference, path))
        )
        return _map_values_to_first_paths({path: key for path, key in found if key is not None})

    @cached_property
    def rare_argument_values(self) -> frozenset[str]:
        """Inputs that two calls hardly share by chance: long values, and numbers within texts."""
        return _select_rare_values(self.argument_path_by_value)

    @cached_property
    def rare_values_known_after_call(self) -> frozenset[str]:
        """Rare values that are known after the call."""
        return self.rare_argument_values | _select_rare_values(self.result_path_by_value)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedTurn:
    """One request and its calls; `ok` says whether it succeeded."""

    session: str
    turn: str
    calls: Sequence[ComparableToolCall] = field(default_factory=tuple)
    ok: bool = True


def get_program_with_subcommand(arguments: Mapping[str, Any]) -> str:
    """Return the program of a command line with its subcommand, such as `git commit`."""
    line = next((value for key in _COMMANDS if isinstance(value := arguments.get(key), str)), "")
    words = line.split()[:2]
    return " ".join(word for number, word in enumerate(words) if not number or word.isalpha())


def iterate_json_nodes(value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield a value and everything inside it, breadth first."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    for at in range(_MAX_NODES):
        if at >= len(waiting):
            return
        path, item = waiting[at]
        yield path, item
        if isinstance(item, Mapping):
            waiting += [((*path, str(key)), below) for key, below in item.items()]
        elif isinstance(item, list | tuple):
            waiting += [((*path, str(number)), below) for number, below in enumerate(item)]


def compute_comparison_key_of_value(value: Any) -> str | None:
    """Return equal text for equal values; None for empty values and redacted ones."""
    if value is None or isinstance(value, bool) or value in ("", [], {}):
        return None
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    if MARKER.search(text):
        return None
    key = ("=" if isinstance(value, str) else "#") + text
    return key if len(key) <= _LONGEST_KEY else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def _select_rare_values(keys: Iterable[str]) -> frozenset[str]:
    long = {key for key in keys if len(key) >= 7 or (key.startswith("#") and len(key) >= 5)}
    return frozenset(long.union(*(_NUMBERED.findall(key) for key in keys)))


def _map_values_to_first_paths(found: Mapping[Path, str]) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for path, key in found.items():
        paths.setdefault(key, path)
    return paths


def _is_key_usable_in_reference(part: str) -> bool:
    """Return whether a reference can name this part."""
    return part.isascii() and part.replace("_", "a").isalnum()
