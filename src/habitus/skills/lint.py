"""Oddities of skills: of one, fields that nobody here follows; of a whole set, pairs that are the
same, pairs that compete, cues that match everything, what eats the prompt, and copies that hide others."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from habitus.files import Tree
from habitus.search import Hit, Results
from habitus.skills import names, trees
from habitus.skills.choosing import menu
from habitus.skills.choosing.finding import DUPLICATE
from habitus.skills.layers.listing import Listed
from habitus.skills.model import Diagnostic, Severity, State
from habitus.text import tokens

NEAR = 0.7  # of neighbours less alike than this, one in sixty comes first when the other's cue is asked for
_ASK_ALL = 300  # cues of which the whole library is asked, however many there are
_GREEDY_SHARE = 0.2
_GREEDY_FROM = 20  # with fewer skills every cue is near every other
_LONG_LINE = 0.05  # of the menu's budget
_NAMES_OTHERS = re.compile(r"companion|exclude", re.IGNORECASE)
_COMMAND = re.compile(r"(?<![\w`])!`[^`\n]+`|^\s*```!")  # what another agent would run when it loads the skill


class Search(Protocol):
    """The skills that fit a cue, of all or only among these names, best first."""

    def __call__(self, cue: str, among: Collection[str] | None) -> Results: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SetFinding:
    """One thing about the set, with the numbers and a suggestion."""

    kind: str  # duplicate, confusable, greedy, budget, shadowed
    names: tuple[str, ...]
    what: str
    mend: str
    score: float
    severity: Severity = Severity.WARNING


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """The room for skills in a prompt, in tokens, and the share of those that stand in every prompt in full."""

    menu: int
    eager: int
    taken: Mapping[str, int]


def check_one(name: str, tree: Tree, known: Collection[str]) -> Iterator[Diagnostic]:
    """Parts of a skill that have no effect: code that can't be called, commands to run while it is loaded, and names
    of skills that are not there.

    `known` are the skills that are. The skill is one that can be loaded.
    """
    main = trees.main_file(tree)
    if main is None:
        return
    if clash := trees.clash(name, tree):
        yield Diagnostic(file=f"{name}/{trees.TOOL_FILE}", what=f"{clash}.", mend="Take another name for the skill.")
    text = (tree[main].content or b"").decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines() if "!`" in text or "```!" in text else (), 1):
        if found := _COMMAND.search(line):
            yield Diagnostic(
                file=f"{name}/{main}",
                what=f"Line {number}: {found[0].strip()} is text here; no command runs while a skill is loaded.",
                mend="Write the command as a step.",
            )
    may_name = trees.TOML_FILE in tree or _NAMES_OTHERS.search(text)  # parsing takes longer than all the rest
    skill = trees.parse(name, tree).skill if may_name else None
    for field in ("companion_skills", "exclude_skills"):
        for other in getattr(skill.manifest, field) if skill is not None else ():
            if names.canonical(other) not in known:
                near = names.closest_match(other, known)
                yield Diagnostic(
                    file=f"{name}/{main}",
                    what=f"There is no skill '{other}', which {field} names.",
                    mend=f"Did you mean '{near}'?" if near else "Add that skill, or take its name out.",
                )


def check(
    listing: Sequence[Listed],
    *,
    room: Room,
    search: Search,
    neighbours: Mapping[str, Sequence[Hit]],
    progress: Callable[[int], None],
) -> Iterator[SetFinding]:
    """Everything there is to say about the loadable skills of a listing. `neighbours` are the nearest of each, at
    least NEAR.

    Cues are asked of the whole library for some skills, evenly spread; for the others, of their neighbours only.
    """
    present = [item for item in listing if item.summary is not None]
    yield from _find_shadowed(present)
    yield from _in_full(room)
    yield from _on_the_menu([item for item in present if item.state is State.OK and item.name not in room.taken], room)
    seen: set[frozenset[str]] = set()
    before: Counter[str] = Counter()
    every = -(-len(present) // _ASK_ALL) or 1
    for place, item in enumerate(present):
        progress(place + 1)
        near = neighbours.get(item.name, ())
        yield from _duplicates(item, near, seen)
        among = None if place % every == 0 else {item.name, *(hit.id for hit in near)}
        if among is None or len(among) > 1:
            rivals = _rivals(item, search, among)
            yield from _confusable(item, rivals, seen)
            if among is None:
                before.update(hit.id for hit in rivals)
    yield from _greedy(before, -(-len(present) // every))


def _duplicates(item: Listed, near: Sequence[Hit], seen: set[frozenset[str]]) -> Iterator[SetFinding]:
    for hit in near:
        pair = frozenset((item.name, hit.id))
        if hit.score >= DUPLICATE and pair not in seen:
            seen.add(pair)
            yield SetFinding(
                kind="duplicate",
                names=(item.name, hit.id),
                what=f"'{item.name}' duplicates '{hit.id}' ({hit.score:.2f}).",
                mend="Merge them, or say in each when the other one is right.",
                score=hit.score,
            )


def _rivals(item: Listed, search: Search, among: Collection[str] | None) -> list[Hit]:
    """Ask for a skill in its own words: whoever comes before it competes with it for real requests."""
    assert item.summary is not None
    hits = search(item.summary.cue, among).hits
    return list(itertools.takewhile(lambda hit: hit.id != item.name, hits))


def _confusable(item: Listed, rivals: Sequence[Hit], seen: set[frozenset[str]]) -> Iterator[SetFinding]:
    for hit in rivals:
        pair = frozenset((item.name, hit.id))
        if pair not in seen:
            seen.add(pair)
            yield SetFinding(
                kind="confusable",
                names=(item.name, hit.id),
                what=f"'{hit.id}' comes before '{item.name}' when that one's cue is asked for.",
                mend="Sharpen both cues: name what only this one is for.",
                score=hit.score,
                severity=Severity.NOTE,
            )


def _greedy(before: Counter[str], asked: int) -> Iterator[SetFinding]:
    if asked < _GREEDY_FROM:
        return
    for name, count in before.items():
        share = count / asked
        if share >= _GREEDY_SHARE:
            yield SetFinding(
                kind="greedy",
                names=(name,),
                what=f"'{name}' comes before {share:.0%} of the other skills when their cues are asked for.",
                mend="Its description matches everything; say what it is not for.",
                score=share,
            )


def _in_full(room: Room) -> Iterator[SetFinding]:
    for name, cost in room.taken.items():
        fits = cost <= room.eager
        yield SetFinding(
            kind="budget",
            names=(name,),
            what=f"'{name}' is in every prompt and takes {cost} tokens, {cost / room.eager:.1%} of the room for that.",
            mend="Let the model load it, unless every request needs it." if fits else "Shorten it: it is not shown.",
            score=cost / room.eager,
            severity=Severity.NOTE if fits else Severity.WARNING,
        )


def _on_the_menu(offered: Sequence[Listed], room: Room) -> Iterator[SetFinding]:
    budget = room.menu
    costs = {item.name: tokens(menu.line(item.summary)) for item in offered if item.summary is not None}
    total = sum(costs.values())
    over = "; cues are shortened, or lines left out" if total > budget else ""
    yield SetFinding(
        kind="budget",
        names=(),
        what=f"The menu wants {total} of {budget} tokens, {total / budget:.1%}{over}.",
        mend="Shorten cues, disable what nobody uses." if over else "There is room for more.",
        score=total / budget,
        severity=Severity.NOTE,
    )
    for name, cost in costs.items():
        if cost > budget * _LONG_LINE:
            yield SetFinding(
                kind="budget",
                names=(name,),
                what=f"The line of '{name}' takes {cost} tokens, {cost / budget:.0%} of the menu.",
                mend="Shorten its cue to one sentence.",
                score=cost / budget,
                severity=Severity.NOTE,
            )


def _find_shadowed(present: Sequence[Listed]) -> Iterator[SetFinding]:
    for item in present:
        if item.hidden:
            yield SetFinding(
                kind="shadowed",
                names=(item.name,),
                what=f"'{item.name}@{item.layer}' hides {', '.join(f'{item.name}@{lower}' for lower in item.hidden)}.",
                mend="Remove the copy you don't want, or rename one.",
                score=1.0,
                severity=Severity.NOTE,
            )
