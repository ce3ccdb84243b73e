"""Mining: the sequence of calls that was done again and again becomes a recipe, checked on every turn it came from.

`mine` takes what was observed (`observed.py`), from a journal or from any transcript. Steps that follow each other are
found (`sequences.py`), told from coincidence (`grouping.py`), and aligned (`alignment.py`).
Nothing is executed. The work grows with the number of calls; `sequences.MOST_LOOKS` bounds it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from habitus.recipes.alignment import Aligned, align_occurrences, replays
from habitus.recipes.execution import as_text
from habitus.recipes.grouping import Corpus, Group, groups
from habitus.recipes.plan import references
from habitus.recipes.sequences import TURNS, Found, Label, ObservedTurn, frequent
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
    patterns, tried = _patterns(corpus)
    for pattern, where in patterns:
        made, looked_at = groups(corpus, pattern, where, _GROUPS)
        tried += looked_at
        found += [(-float(len(pattern) * len(group.found)), pattern, group) for group in made]
    least = math.log(_BY_CHANCE / max(tried, 1))
    likely = sorted(
        (one for one in found if one[2].log_chance < least), key=lambda one: (*one[:2], one[2].found[0].turn)
    )
    return tuple(_choose(corpus, good, likely))


def _places(turn: ObservedTurn) -> list[int]:
    """The calls that went well."""
    return [number for number, call in enumerate(turn.calls[:LONGEST_TURN]) if call.success]


def _patterns(corpus: Corpus) -> tuple[list[tuple[tuple[Label, ...], list[Found]]], int]:
    """Steps that follow each other, by their tools alone and with the values that come again; how many were tried."""
    coarse = [[call.label for call in calls] for calls in corpus.turns]
    fine = [[f"{call.label}{corpus.recurring(call, TURNS)}" for call in calls] for calls in corpus.turns]

    def is_linked(found: Found) -> bool:
        *earlier, last = corpus.calls(found)
        return any(not last.rare_inputs.isdisjoint(call.rare_results) for call in earlier)

    patterns: dict[tuple[Label, ...], dict[Found, None]] = {}
    tried = 0
    for labels in (coarse, fine):
        sequences = frequent(labels, corpus.sessions, is_linked)
        tried += sequences.tried
        for one in sequences.found:
            first = one.found[0]
            pattern = tuple(coarse[first.turn][place] for place in first.places)
            patterns.setdefault(pattern, {}).update(dict.fromkeys(one.found))
    ranked = sorted(patterns.items(), key=lambda one: (-len(one[0]) * len(one[1]), one[0]))
    return [(pattern, list(where)) for pattern, where in ranked[:_MOST_PATTERNS]], tried


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
