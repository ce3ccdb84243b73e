"""Frequent sequences: which steps follow each other in turn after turn, more often than shuffled calls would.

Patterns grow a step at a time, over at most `GAP` other calls. One grows on only where its next step is there more
often than chance puts it there, or is given what an earlier step had or returned; so the work is about the number of
calls times `GAP`, and `MOST_LOOKS` ends it in any case.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

GAP = 2  # other calls between two steps
LONGEST = 8  # steps
TURNS, SESSIONS = 3, 2  # in which a sequence must be seen
MOST_LOOKS = 2_000_000
_MOST_PER_TURN = 6  # ways in which a pattern is found in one turn
_UNLIKELY = 0.05
_UNSEEN = 50  # calls of other kinds that a small journal would have, were it larger; groups are judged harder

Label = str


@dataclass(frozen=True, slots=True)
class Found:
    """Where a pattern is: the number of a turn, and the places of its calls."""

    turn: int
    places: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Frequent:
    pattern: tuple[Label, ...]
    found: tuple[Found, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequences:
    """What was found among so many that were tried."""

    found: tuple[Frequent, ...]
    tried: int


def frequent(
    turns: Sequence[Sequence[Label]], sessions: Sequence[str], is_linked: Callable[[Found], bool]
) -> Sequences:
    """Patterns of two steps and more. `is_linked` says whether the last step was given what an earlier one had."""
    counts = Counter(label for turn in turns for label in turn)
    total = counts.total() + _UNSEEN
    waiting = _single(turns, sessions)
    labels = {label for one in waiting for label in one.pattern}
    grown: list[Frequent] = []
    looks = tried = 0
    for one in waiting:  # which grows meanwhile
        if looks >= MOST_LOOKS:
            break
        longer, slots = _extend(one, turns, labels)
        looks += slots
        tried += len(longer)
        for label, found in sorted(longer.items()):
            if kept := _keep_promising(found, sessions, is_linked, slots * counts[label] / total):
                grown.append(Frequent(pattern=(*one.pattern, label), found=kept))
                waiting += grown[-1:] if len(one.pattern) + 1 < LONGEST else []
    return Sequences(found=tuple(grown), tried=tried)


def _single(turns: Sequence[Sequence[Label]], sessions: Sequence[str]) -> list[Frequent]:
    """The calls that a pattern can begin with."""
    found: dict[Label, list[Found]] = {}
    for number, turn in enumerate(turns):
        for place, label in enumerate(turn):
            found.setdefault(label, []).append(Found(number, (place,)))
    enough = {label: at for label, at in sorted(found.items()) if is_enough((one.turn for one in at), sessions)}
    return [Frequent(pattern=(label,), found=tuple(at)) for label, at in enough.items()]


def is_enough(turns: Iterator[int], sessions: Sequence[str]) -> bool:
    """Whether something was seen in enough turns and sessions to be a habit."""
    different = set(turns)
    return len(different) >= TURNS and len({sessions[turn] for turn in different}) >= SESSIONS


@functools.cache
def ways_in(length: int, steps: int) -> int:
    """In how many ways a pattern of so many steps fits into a turn of this length."""
    ending = [1] * length  # ways that end at each place
    for _ in range(steps - 1):
        ending = [sum(ending[max(0, place - GAP - 1) : place]) for place in range(length)]
    return sum(ending)


def log_chance(seen: int, expected: float) -> float:
    """The logarithm of how likely at least so many are, where so many are expected."""
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


def _extend(
    one: Frequent, turns: Sequence[Sequence[Label]], labels: Collection[Label]
) -> tuple[dict[Label, list[Found]], int]:
    """By the next step: where it is found; and how many places there were for it."""
    longer: dict[Label, list[Found]] = {}
    slots = 0
    for found in one.found:
        turn, last = turns[found.turn], found.places[-1]
        for place in range(last + 1, min(last + GAP + 2, len(turn))):
            slots += 1
            if turn[place] in labels:
                longer.setdefault(turn[place], []).append(Found(found.turn, (*found.places, place)))
    return longer, slots


def _keep_promising(
    found: Sequence[Found], sessions: Sequence[str], is_linked: Callable[[Found], bool], expected: float
) -> tuple[Found, ...]:
    """The places where a longer pattern is worth a look: all of them, or those that are linked; none when it is not."""
    if not is_enough((each.turn for each in found), sessions):
        return ()
    if log_chance(len({each.turn for each in found}), expected) < math.log(_UNLIKELY):
        return _few_per_turn(found)
    linked = [each for each in found if is_linked(each)]
    return _few_per_turn(linked) if is_enough((each.turn for each in linked), sessions) else ()


def _few_per_turn(found: Sequence[Found]) -> tuple[Found, ...]:
    taken: Counter[int] = Counter()
    kept = []
    for each in found:
        taken[each.turn] += 1
        if taken[each.turn] <= _MOST_PER_TURN:
            kept.append(each)
    return tuple(kept)
