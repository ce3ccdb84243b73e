"""New content, as a person should see it first: what a scan finds in it, and which skills say much the same."""

from __future__ import annotations

from collections.abc import Iterable

from habitus.files import Tree
from habitus.screening.policy import Policy
from habitus.skills import trees
from habitus.skills.finding import Finder
from habitus.skills.lint import DUPLICATE

_NEAR = "near-duplicate of"


def high_findings(tree: Tree, policy: Policy) -> list[str]:
    """What a person must see before foreign content is used, one line a kind; a rule in brackets can be silenced."""
    from habitus.screening.findings import Risk, by_kind
    from habitus.screening.scanner import scan  # patterns and a parser, for those who look at content

    return list(map(str, by_kind(one for one in scan(tree, policy) if one.severity is Risk.HIGH)))


def near_duplicates(finder: Finder, name: str, tree: Tree) -> list[str]:
    """Which skills of the library say much the same as these files."""
    skill = trees.parse(name, tree).skill
    if skill is None:
        return []
    near = finder.similar_to(skill, skill.body)
    return [f"{_NEAR} {hit.id} ({hit.score:.2f})" for hit in near if hit.score >= DUPLICATE]


def said_to_be_near(reasons: Iterable[str]) -> tuple[str, ...]:
    """The skills that a proposal waits for because it says much the same."""
    return tuple(reason.split()[2] for reason in reasons if reason.startswith(f"{_NEAR} "))
