"""Skills of another agent, read in place, and what is to say about them: each remark with the command that mends it."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from habitus import sql
from habitus.app.library.content import high_findings
from habitus.files import Tree
from habitus.hosts.table import Host
from habitus.screening.policy import Policy
from habitus.search import Hit, Index, Results
from habitus.skills import names, trees
from habitus.skills.finding import document_of
from habitus.skills.lint import DUPLICATE
from habitus.skills.model import Severity, Skill
from habitus.skills.stores.files import DirectoryShelf
from habitus.skills.telling_apart import spread_of, telling_words

FITTED = 3  # requests from which a skill that never fired is worth a word


class Topic(StrEnum):
    """What a finding is about, in the order in which they are shown."""

    LESSON = "lesson"  # would have helped
    FAILING = "failing"  # again and again, without a remedy so far
    RULE = "rule"  # said by the person when something was stopped
    BROKEN = "broken"
    RISKY = "risky"
    LISTING = "listing"
    SHADOWED = "shadowed"
    CONFUSABLE = "confusable"
    NEVER_FIRED = "never fired"
    UNUSED = "unused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """One line: what is to say, and the command that mends it."""

    topic: Topic
    what: str
    mend: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSkill:
    """A skill folder of another agent; without a skill where it can't be read."""

    name: str
    path: Path
    tree: Tree
    skill: Skill | None
    problems: tuple[str, ...]

    @property
    def told(self) -> str:
        return f"{self.skill.description} {self.skill.when_to_use}".strip() if self.skill else ""


def quoted(path: Path) -> str:
    return shlex.quote(str(path))


def edit(each: AgentSkill) -> str:
    return f"${{EDITOR:-vi}} {quoted(each.path / (trees.main_file(each.tree) or 'SKILL.md'))}"


def read_skills(folder: Path) -> Iterator[AgentSkill]:
    shelf = DirectoryShelf(folder, folder, can_write=False)
    for name in shelf.look({}):
        found = shelf.read(name)
        if found is None:
            continue
        parsed = trees.parse(name, found.tree)
        problems = (found.problem,) if found.problem else parsed.diagnostics
        yield AgentSkill(
            name=names.canonical(name),
            path=folder / name,
            tree=found.tree,
            skill=None if found.problem else parsed.skill,
            problems=tuple(f"{each.what} {each.mend}" for each in problems if each.severity is Severity.ERROR),
        )


def about_files(skills: Sequence[AgentSkill], policy: Policy) -> Iterator[Remark]:
    first: dict[str, Path] = {}
    for each in skills:
        for problem in each.problems:
            yield Remark(topic=Topic.BROKEN, what=f"'{each.name}' can't be loaded: {problem}", mend=edit(each))
        for risk in high_findings(each.tree, policy):
            mend = f"habitus skills scan {quoted(each.path)}"
            yield Remark(topic=Topic.RISKY, what=f"'{each.name}': {risk}.", mend=mend)
        if (winner := first.setdefault(each.name, each.path)) != each.path:
            yield Remark(
                topic=Topic.SHADOWED,
                what=f"'{each.name}' in {each.path.parent} is hidden by the one in {winner.parent}.",
                mend=f"diff -r {quoted(winner)} {quoted(each.path)}",
            )


def about_listing(agent: Host, skills: Sequence[AgentSkill], uses: Counter[str]) -> Iterator[Remark]:
    """Names stay in a listing that is too long; the descriptions of what is used least go first."""
    for each in skills:
        if agent.description_chars and len(each.told) > agent.description_chars:
            yield Remark(
                topic=Topic.LISTING,
                what=f"The description of '{each.name}' has {len(each.told):,} characters; "
                f"{agent.title} cuts it at {agent.description_chars:,}.",
                mend=edit(each),
            )
    if not agent.listing_chars:
        return
    sizes = {each.name: min(len(each.told), agent.description_chars or len(each.told)) for each in skills}
    room = agent.listing_chars - sum(len(each.name) + 4 for each in skills)
    wanted, lost = sum(sizes.values()), []
    for each in sorted(skills, key=lambda one: -uses[one.name]):
        room -= sizes[each.name]
        if room < 0:
            lost.append(each.name)
    if lost:
        shown = ", ".join(lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
        yield Remark(
            topic=Topic.LISTING,
            what=f"{agent.title} lists {agent.listing_chars:,} characters by default, and the descriptions want "
            f"{wanted:,}: those of {len(lost)} of {len(skills)} skills are lost ({shown}).",
            mend=f"habitus sync {agent.name}",
        )


def searching(skills: Sequence[AgentSkill]) -> Callable[[str], Results]:
    index = Index.open(sql.create_all_in_memory(), "agent")
    index.put(document_of(each.skill, each.skill.body) for each in skills if each.skill)
    return lambda request: index.search(request, k=4)


def confusable(skills: Sequence[AgentSkill], search: Callable[[str], Results]) -> Iterator[Remark]:
    """Asked for in its own words, another one comes first, or nearly the same."""
    by_name = {each.skill.name: each for each in skills if each.skill}
    spread = spread_of(each.told for each in skills)
    seen: set[frozenset[str]] = set()
    for name, each in by_name.items():
        hits = search(each.told).hits
        before = itertools.takewhile(partial(_is_another, name), hits)
        close = [hit for hit in hits if hit.id != name and hit.score >= DUPLICATE]
        for rival in {hit.id for hit in (*before, *close)} & by_name.keys():
            pair = frozenset((name, rival))
            if pair in seen:
                continue
            seen.add(pair)
            other = by_name[rival]
            apart = " ".join(
                f"Say {' or '.join(map(repr, words))} in '{one.name}'."
                for one, two in ((each, other), (other, each))
                if (words := telling_words(one.told, two.told, spread))
            )
            yield Remark(
                topic=Topic.CONFUSABLE,
                what=f"'{each.name}' and '{other.name}' are easily taken for each other. {apart}".strip(),
                mend=f"{edit(each)} {quoted(other.path / 'SKILL.md')}",
            )


def _is_another(name: str, hit: Hit) -> bool:
    return hit.id != name


def never_fired(
    skills: Sequence[AgentSkill], uses: Counter[str], requests: Sequence[str], search: Callable[[str], Results]
) -> Iterator[Remark]:
    """Skills without a use that would have fitted requests for which none was used."""
    by_name = {each.skill.name: each for each in skills if each.skill and not uses[each.name]}
    fitted: dict[str, list[str]] = {}
    for words in requests if by_name else ():
        found = search(words)
        if found.fits and found.hits[0].id in by_name:
            fitted.setdefault(found.hits[0].id, []).append(words)
    for name, asked in fitted.items():
        if len(asked) >= FITTED:
            example = " ".join(asked[-1].split())
            yield Remark(
                topic=Topic.NEVER_FIRED,
                what=f"'{name}' would have fitted {len(asked)} requests and never fired, such as "
                f"“{example if len(example) <= 80 else example[:79] + '…'}”. Use their words in its description.",
                mend=edit(by_name[name]),
            )
