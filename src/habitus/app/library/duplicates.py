"""Skills that say the same: what the lesser of two adds goes into the better one, and then the lesser goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from habitus.app.home import Home
from habitus.errors import Refused
from habitus.skills import trees
from habitus.skills.library import Library
from habitus.skills.lint import DUPLICATE
from habitus.skills.listing import Listed
from habitus.skills.model import Actor, Author, Counters, Source, Stage, State
from habitus.skills.review import Action, Change, Proposal, Review

_MARK = re.compile(r"^(?:[-*+]|\d+[.)])\s+")  # of a line in a list


@dataclass(frozen=True, kw_only=True, slots=True)
class Duplicate:
    """`added` are the lines that only the lesser one has."""

    better: Listed
    lesser: Listed
    likeness: float
    added: tuple[str, ...]

    @property
    def reason(self) -> str:
        return f"'{self.lesser.name}' says much the same as '{self.better.name}' ({self.likeness:.2f})."

    @property
    def change(self) -> str:
        if not self.added:
            return f"remove {self.lesser.name}, which adds nothing"
        return f"put what only {self.lesser.name} says into {self.better.name}"


def find_duplicates(home: Home) -> Iterator[Duplicate]:
    """Pairs of the person's own skills; each skill is in one pair at most, and in none while a change of it waits."""
    seen = home.skills.snapshot()
    own = {item.name: item for item in seen.listing if _is_own(home.skills, item)}
    busy = {proposal.change.name for proposal in home.review.list(with_contents=False)}
    for name, near in home.finder.neighbours(DUPLICATE, at=seen).items():
        for hit in near:
            pair = {name, hit.id}
            if pair <= own.keys() and not pair & busy:
                busy |= pair
                better, lesser = sorted((own[one] for one in pair), key=lambda item: _rank(home.skills, item))
                if lesser.summary is not None and lesser.summary.stages == {Stage.STEPS}:
                    added = _missing_lines(home.skills, better, lesser)
                    yield Duplicate(better=better, lesser=lesser, likeness=hit.score, added=added)


def _is_own(skills: Library, item: Listed) -> bool:
    is_ours = item.summary is not None and item.summary.source is not Source.IMPORTED
    return is_ours and item.state is State.OK and skills.layer(item.layer).can_write


def _rank(skills: Library, item: Listed) -> tuple[int, int, str, str]:
    """More stages first, then what served more often, then the older one."""
    assert item.summary is not None
    served = sum(skills.counters(f"{item.name}@{item.layer}").values(), Counters()).succeeded
    return -len(item.summary.stages), -served, str(item.summary.created_on), item.name


def _missing_lines(skills: Library, better: Listed, lesser: Listed) -> tuple[str, ...]:
    kept, other = (skills.load(f"{item.name}@{item.layer}").body for item in (better, lesser))
    known = {_plain(line) for line in kept.splitlines()}
    return tuple(line for line in other.splitlines() if _plain(line) not in known)


def _plain(line: str) -> str:
    return " ".join(_MARK.sub("", line.strip()).casefold().split()).rstrip(".")


def propose(skills: Library, review: Review, pair: Duplicate) -> Proposal | None:
    """Nothing where a person has turned it down."""
    author = Author(actor=Actor.JOB, name="curator", reason=pair.reason)
    item = pair.better if pair.added else pair.lesser
    change = Change(action=Action.REMOVE, name=item.name, layer=item.layer)
    if pair.added:
        _, tree, skill = skills.own_copy(item)
        body = "\n".join([skill.body.rstrip(), "", f"## From {pair.lesser.name}", "", *pair.added, ""])
        change = replace(change, action=Action.WRITE, tree=trees.with_skill(tree, replace(skill, body=body)))
    try:
        return review.propose(change, author, [pair.reason])
    except Refused:
        return None
