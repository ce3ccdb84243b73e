"""Lint checks: parts of one skill that have no effect, and problems of the whole library (duplicates, confusable and
greedy when-to-use lines, prompt costs, shadowed copies).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from habitus.files import Tree
from habitus.search.model import IndexHit, SearchResults
from habitus.skills import names, trees
from habitus.skills.choosing import menu
from habitus.skills.choosing.skill_finder import DUPLICATE_THRESHOLD
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.model import Diagnostic, Severity, SkillState
from habitus.text import estimate_tokens

# Measured: below this similarity, only one neighbour in sixty outranks a skill for its own when-to-use line.
NEIGHBOUR_THRESHOLD = 0.7
# A search over the whole library per skill is quadratic, so larger libraries are sampled.
_FULL_SEARCH_LIMIT = 300
_GREEDY_SHARE = 0.2
# In a small library every when-to-use line is close to every other.
_GREEDY_MIN_SKILLS = 20
# Share of the menu's budget above which one line is reported.
_LONG_LINE_SHARE = 0.05
_NAMES_OTHERS = re.compile(r"companion|exclude", re.IGNORECASE)
# Syntax that makes other agents run a command while they load the skill.
_LOAD_COMMAND = re.compile(r"(?<![\w`])!`[^`\n]+`|^\s*```!")


class WhenToUseSearchFunction(Protocol):
    """Search the skills by a when-to-use line, all or only those in `among`, best first."""

    def __call__(self, cue: str, among: Collection[str] | None) -> SearchResults: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryFinding:
    """One finding about the library, with its score and a hint."""

    kind: str  # duplicate, confusable, greedy, budget, shadowed
    names: tuple[str, ...]
    message: str
    hint: str
    score: float
    severity: Severity = Severity.WARNING


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptBudget:
    """The token budgets for skills in a prompt, and the cost of each skill that is in every prompt in full."""

    menu: int
    eager: int
    eager_costs: Mapping[str, int]


def lint_skill(name: str, tree: Tree, known: Collection[str]) -> Iterator[Diagnostic]:
    """Yield the parts of a loadable skill that have no effect: code with a reserved name, commands to run while
    loading, and references to unknown skills.

    `known` holds the names of all skills.
    """
    main = trees.find_main_file(tree)
    if main is None:
        return
    if clash := trees.explain_code_name_conflict(name, tree):
        yield Diagnostic(file=f"{name}/{trees.TOOL_FILE}", message=f"{clash}.", hint="Take another name for the skill.")
    text = (tree[main].content or b"").decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines() if "!`" in text or "```!" in text else (), 1):
        if found := _LOAD_COMMAND.search(line):
            yield Diagnostic(
                file=f"{name}/{main}",
                message=f"Line {number}: {found[0].strip()} is text here; no command runs while a skill is loaded.",
                hint="Write the command as a step.",
            )
    # Parsing takes longer than all the other checks, so a skill that can't name others is not parsed.
    may_name = trees.TOML_FILE in tree or _NAMES_OTHERS.search(text)
    skill = trees.parse_skill_tree(name, tree).skill if may_name else None
    for field in ("companion_skills", "exclude_skills"):
        for other in getattr(skill.manifest, field) if skill is not None else ():
            if names.canonicalize_name(other) not in known:
                near = names.find_closest_name(other, known)
                yield Diagnostic(
                    file=f"{name}/{main}",
                    message=f"There is no skill '{other}', which {field} names.",
                    hint=f"Did you mean '{near}'?" if near else "Add that skill, or take its name out.",
                )


def lint_library(
    listing: Sequence[ListedSkill],
    *,
    budget: PromptBudget,
    search: WhenToUseSearchFunction,
    neighbours: Mapping[str, Sequence[IndexHit]],
    progress: Callable[[int], None],
) -> Iterator[LibraryFinding]:
    """Yield every finding about the loadable skills of a listing. `neighbours` holds, for each skill, those with a
    similarity of at least `NEIGHBOUR_THRESHOLD`.

    A sample of skills, evenly spread, is searched against the whole library; the others only against their
    neighbours.
    """
    present = [item for item in listing if item.summary is not None]
    yield from _find_shadowed_copies(present)
    yield from _report_eager_costs(budget)
    yield from _report_menu_costs(
        [item for item in present if item.state is SkillState.OK and item.name not in budget.eager_costs], budget
    )
    seen: set[frozenset[str]] = set()
    before: Counter[str] = Counter()
    # Ceiling division: every n-th skill gets the full search, at most _FULL_SEARCH_LIMIT of them.
    every = -(-len(present) // _FULL_SEARCH_LIMIT) or 1
    for place, item in enumerate(present):
        progress(place + 1)
        near = neighbours.get(item.name, ())
        yield from _find_duplicates(item, near, seen)
        among = None if place % every == 0 else {item.name, *(hit.id for hit in near)}
        if among is None or len(among) > 1:
            rivals = _find_higher_ranked_skills(item, search, among)
            yield from _find_confusable_skills(item, rivals, seen)
            # Only full searches count for greediness; a search among neighbours would overstate it.
            if among is None:
                before.update(hit.id for hit in rivals)
    yield from _find_skills_outranking_many(before, -(-len(present) // every))


def _find_duplicates(one: ListedSkill, near: Sequence[IndexHit], seen: set[frozenset[str]]) -> Iterator[LibraryFinding]:
    for hit in near:
        pair = frozenset((one.name, hit.id))
        if hit.score >= DUPLICATE_THRESHOLD and pair not in seen:
            seen.add(pair)
            yield LibraryFinding(
                kind="duplicate",
                names=(one.name, hit.id),
                message=f"'{one.name}' duplicates '{hit.id}' ({hit.score:.2f}).",
                hint="Merge them, or state in each when to use the other.",
                score=hit.score,
            )


def _find_higher_ranked_skills(
    item: ListedSkill, search: WhenToUseSearchFunction, among: Collection[str] | None
) -> list[IndexHit]:
    """Return the skills that rank above a skill when searched by its own when-to-use line."""
    assert item.summary is not None
    hits = search(item.summary.when_to_use_line, among).hits
    return list(itertools.takewhile(lambda hit: hit.id != item.name, hits))


def _find_confusable_skills(
    one: ListedSkill, hits: Sequence[IndexHit], seen: set[frozenset[str]]
) -> Iterator[LibraryFinding]:
    for hit in hits:
        pair = frozenset((one.name, hit.id))
        if pair not in seen:
            seen.add(pair)
            yield LibraryFinding(
                kind="confusable",
                names=(one.name, hit.id),
                message=f"'{hit.id}' ranks above '{one.name}' for its own when-to-use.",
                hint="Make both when-to-use lines more specific.",
                score=hit.score,
                severity=Severity.NOTE,
            )


def _find_skills_outranking_many(before: Counter[str], asked: int) -> Iterator[LibraryFinding]:
    if asked < _GREEDY_MIN_SKILLS:
        return
    for name, count in before.items():
        share = count / asked
        if share >= _GREEDY_SHARE:
            yield LibraryFinding(
                kind="greedy",
                names=(name,),
                message=f"'{name}' ranks above {share:.0%} of the other skills for their own when-to-use.",
                hint="Its description matches everything; say what it is not for.",
                score=share,
            )


def _report_eager_costs(budget: PromptBudget) -> Iterator[LibraryFinding]:
    for name, cost in budget.eager_costs.items():
        fits = cost <= budget.eager
        # A small context rounds its share down to no tokens at all.
        share = cost / max(budget.eager, 1)
        yield LibraryFinding(
            kind="budget",
            names=(name,),
            message=f"'{name}' is in every prompt and takes {cost} tokens, {share:.1%} of that budget.",
            hint="Let the model load it, unless every request needs it." if fits else "Shorten it: it is not shown.",
            score=share,
            severity=Severity.NOTE if fits else Severity.WARNING,
        )


def _report_menu_costs(shown: Sequence[ListedSkill], room: PromptBudget) -> Iterator[LibraryFinding]:
    budget = max(room.menu, 1)
    costs = {one.name: estimate_tokens(menu.format_menu_line(one.summary)) for one in shown if one.summary is not None}
    total = sum(costs.values())
    over = "; lines are shortened, or found by search instead" if total > budget else ""
    yield LibraryFinding(
        kind="budget",
        names=(),
        message=f"The menu wants {total} of {budget} tokens, {total / budget:.1%}{over}.",
        hint="Shorten the when-to-use lines, disable unused skills." if over else "There is room for more.",
        score=total / budget,
        severity=Severity.NOTE,
    )
    for name, cost in costs.items():
        if cost > budget * _LONG_LINE_SHARE:
            yield LibraryFinding(
                kind="budget",
                names=(name,),
                message=f"The line of '{name}' takes {cost} tokens, {cost / budget:.0%} of the menu.",
                hint="Shorten its when-to-use to one sentence.",
                score=cost / budget,
                severity=Severity.NOTE,
            )


def _find_shadowed_copies(present: Sequence[ListedSkill]) -> Iterator[LibraryFinding]:
    for item in present:
        if item.hidden:
            yield LibraryFinding(
                kind="shadowed",
                names=(item.name,),
                message=f"'{item.name}@{item.layer}' hides "
                + ", ".join(f"{item.name}@{lower}" for lower in item.hidden)
                + ".",
                hint="Remove the copy you don't want, or rename one.",
                score=1.0,
                severity=Severity.NOTE,
            )
