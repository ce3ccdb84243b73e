"""What is wrong with a whole set of skills: pairs that are the same, pairs that compete, cues that match everything,
lines that eat the menu, copies that hide others, and content that is risky."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from habitus.search import Hit, Results
from habitus.skills import menu
from habitus.skills.listing import Listed
from habitus.skills.model import Severity

DUPLICATE = 0.8
_CLOSE = 0.9  # a rival whose score is this share of the best one's competes with it
_GREEDY_SHARE = 0.2
_GREEDY_FROM = 20  # with fewer skills every cue is near every other
_LONG_LINE = 0.05  # of the menu's budget

Search = Callable[[str], Results]
Similar = Callable[[str], Sequence[Hit]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SetFinding:
    """One thing about the set, with the numbers and a suggestion."""

    kind: str  # duplicate, confusable, greedy, budget, shadowed
    names: tuple[str, ...]
    what: str
    mend: str
    score: float
    severity: Severity = Severity.WARNING


def check(
    listing: Sequence[Listed], *, budget: int, search: Search, similar: Similar, progress: Callable[[int], None]
) -> Iterator[SetFinding]:
    """Everything there is to say about the loadable skills of a listing."""
    present = [item for item in listing if item.summary is not None]
    yield from _shadowed(present)
    yield from _over_budget(present, budget)
    seen: set[frozenset[str]] = set()
    near: Counter[str] = Counter()
    for done, item in enumerate(present, 1):
        progress(done)
        yield from _duplicates(item, similar, seen)
        yield from _confusable(item, search, seen, near)
    yield from _greedy(present, near)


def _duplicates(item: Listed, similar: Similar, seen: set[frozenset[str]]) -> Iterator[SetFinding]:
    for hit in similar(item.name):
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


def _confusable(item: Listed, search: Search, seen: set[frozenset[str]], near: Counter[str]) -> Iterator[SetFinding]:
    """Ask for a skill in its own words: whoever else comes as close competes with it for real requests."""
    assert item.summary is not None
    results = search(item.summary.cue)
    own = next((hit.score for hit in results.hits if hit.id == item.name), 0.0)
    near.update(hit.id for hit in results.hits[:3] if hit.id != item.name and hit.score >= max(own * _CLOSE, 0.01))
    for hit in results.hits[:3]:
        pair = frozenset((item.name, hit.id))
        if hit.id != item.name and hit.score >= own * _CLOSE and hit.score > 0 and pair not in seen:
            seen.add(pair)
            yield SetFinding(
                kind="confusable",
                names=(item.name, hit.id),
                what=f"'{hit.id}' answers to the cue of '{item.name}' ({hit.score:.2f} against {own:.2f}).",
                mend="Sharpen both cues: name what only this one is for.",
                score=hit.score,
                severity=Severity.NOTE,
            )


def _greedy(present: Sequence[Listed], near: Counter[str]) -> Iterator[SetFinding]:
    if len(present) < _GREEDY_FROM:
        return
    for name, count in near.items():
        share = count / len(present)
        if share >= _GREEDY_SHARE:
            yield SetFinding(
                kind="greedy",
                names=(name,),
                what=f"'{name}' comes up for the cues of {share:.0%} of the other skills.",
                mend="Its description matches everything; say what it is not for.",
                score=share,
            )


def _over_budget(present: Sequence[Listed], budget: int) -> Iterator[SetFinding]:
    costs = {item.name: menu.tokens(menu.line(item.summary)) for item in present if item.summary is not None}
    total = sum(costs.values())
    if total > budget:
        yield SetFinding(
            kind="budget",
            names=(),
            what=f"The menu wants {total} tokens and has {budget}; cues are shortened, or lines left out.",
            mend="Shorten cues, disable what nobody uses.",
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


def _shadowed(present: Sequence[Listed]) -> Iterator[SetFinding]:
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
