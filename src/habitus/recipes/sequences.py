"""Frequent sequences: which steps follow each other in turn after turn, more often than shuffled calls would.

Patterns grow a step at a time, over at most `GAP` other calls. One grows on only where its next step is there more
often than chance puts it there, or is given what an earlier step had or returned; so the work is about the number of
calls times `GAP`, and `MOST_LOOKS` ends it in any case.
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

from habitus.events import CallRecord
from habitus.recipes.execution import value_of
from habitus.redact import MARKER

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


def frequent(
    turns: Sequence[Sequence[Label]], sessions: Sequence[str], is_linked: Callable[[Found], bool]
) -> list[Frequent]:
    """Patterns of two steps and more. `is_linked` says whether the last step was given what an earlier one had."""
    counts = Counter(label for turn in turns for label in turn)
    total = counts.total() + _UNSEEN
    waiting = _single(turns, sessions)
    labels = {label for one in waiting for label in one.pattern}
    grown: list[Frequent] = []
    looks = 0
    for one in waiting:  # which grows meanwhile
        if looks >= MOST_LOOKS:
            break
        longer, slots = _extend(one, turns, labels)
        looks += slots
        for label, found in sorted(longer.items()):
            if kept := _keep_promising(found, sessions, is_linked, slots * counts[label] / total):
                grown.append(Frequent(pattern=(*one.pattern, label), found=kept))
                waiting += grown[-1:] if len(one.pattern) + 1 < LONGEST else []
    return grown


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


Path = tuple[str, ...]
_MOST_NODES = 300  # of one value that are looked at
_LONGEST_KEY = 80
_COMMANDS = ("command", "cmd")
_NUMBERED = re.compile(r"(?<!\d)\d[\w.:-]{3,60}(?<=\w)")  # a date, a version, an id


@dataclass(frozen=True, kw_only=True)
class ObservedCall(CallRecord):
    """`kind` is what two calls of a name must share besides to be the same step: of a command line its program, which
    is what it is when nothing is said."""

    success: bool | None = True
    kind: str = ""

    @cached_property
    def label(self) -> str:
        """Calls with the same label may be one step of a recipe."""
        return json.dumps([self.name, self.doing, sorted(self.arguments)], ensure_ascii=False)

    @cached_property
    def doing(self) -> str:
        return self.kind or program(self.arguments) or self.name

    @cached_property
    def leaves(self) -> Mapping[Path, str]:
        """The values it was given, part by part, as keys that can be compared."""
        return {path: key for path, value in nodes(self.arguments) if path and (key := key_of(value)) is not None}

    @cached_property
    def given_paths(self) -> Mapping[str, Path]:
        return _first_paths(self.leaves)

    @cached_property
    def returned_paths(self) -> Mapping[str, Path]:
        """The values it returned, each with the shortest way to it."""
        found = ((path, key_of(value)) for path, value in nodes(value_of(self.result)) if all(map(_is_word, path)))
        return _first_paths({path: key for path, key in found if key is not None})

    @cached_property
    def rare_inputs(self) -> frozenset[str]:
        """Inputs that hardly two calls have in common by chance: long values, and numbers within texts."""
        return _telling(self.given_paths)

    @cached_property
    def rare_results(self) -> frozenset[str]:
        """The same of all that was known after it."""
        return self.rare_inputs | _telling(self.returned_paths)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedTurn:
    """One request, and the calls that were made for it. `ok` says whether it went well."""

    session: str
    turn: str
    calls: Sequence[ObservedCall] = field(default_factory=tuple)
    ok: bool = True


def program(arguments: Mapping[str, Any]) -> str:
    """The program of a command line, with what it is to do: `git commit`."""
    line = next((value for key in _COMMANDS if isinstance(value := arguments.get(key), str)), "")
    words = line.split()[:2]
    return " ".join(word for number, word in enumerate(words) if not number or word.isalpha())


def nodes(value: Any) -> Iterator[tuple[Path, Any]]:
    """A value and everything in it, the nearer ones first."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    for at in range(_MOST_NODES):
        if at >= len(waiting):
            return
        path, item = waiting[at]
        yield path, item
        if isinstance(item, Mapping):
            waiting += [((*path, str(key)), below) for key, below in item.items()]
        elif isinstance(item, list | tuple):
            waiting += [((*path, str(number)), below) for number, below in enumerate(item)]


def key_of(value: Any) -> str | None:
    """The same text for the same value; none for what says nothing, and for what a secret was taken out of."""
    if value is None or isinstance(value, bool) or value in ("", [], {}):
        return None
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    if MARKER.search(text):
        return None
    key = ("=" if isinstance(value, str) else "#") + text
    return key if len(key) <= _LONGEST_KEY else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def _telling(keys: Iterable[str]) -> frozenset[str]:
    long = {key for key in keys if len(key) >= 7 or (key.startswith("#") and len(key) >= 5)}
    return frozenset(long.union(*(_NUMBERED.findall(key) for key in keys)))


def _first_paths(found: Mapping[Path, str]) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for path, key in found.items():
        paths.setdefault(key, path)
    return paths


def _is_word(part: str) -> bool:
    """Whether a reference can name it."""
    return part.isascii() and part.replace("_", "a").isalnum()
