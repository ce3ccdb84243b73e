"""Explains why a skill was or was not selected for a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from habitus.journal.model import SkillPlacementKind
from habitus.search.model import SearchResults
from habitus.skills.choosing.menu import NOT_LISTED, SkillMenu
from habitus.skills.choosing.selection import SkillSelection
from habitus.skills.layers.listing import ListedSkill


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillPlacementExplanation:
    """Why one skill was or was not selected for one request."""

    IN_JSON: ClassVar = ("sentences",)

    name: str
    layer: str
    place: SkillPlacementKind
    reason: str
    # None if it does not match the request at all.
    rank: int | None = None
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    # Whether any skill is relevant enough to be named beside the request.
    fits: bool = False
    # Whether there was a request to compare it with.
    is_asked: bool = True
    menu_tokens: int = 0
    menu_budget: int = 0
    # Lower layers.
    hides: tuple[str, ...] = ()
    # Higher layers whose copy is not trusted.
    pending: tuple[str, ...] = ()
    # Which of its versions are compared in use, in words; empty if none are.
    compared: str = ""

    @property
    def sentences(self) -> list[str]:
        """The explanation in plain words."""
        said = {
            SkillPlacementKind.EAGER: f"{self.name} is in the prompt in full: {self.reason}.",
            SkillPlacementKind.MENU: (
                f"{self.name} is {self._describe_menu_placement()}; the model loads it when it needs it."
            ),
            SkillPlacementKind.CUT: f"{self.name} is {self.reason}.",
            SkillPlacementKind.LEFT_OUT: f"{self.name} is left out: {self.reason}.",
            SkillPlacementKind.WITHHELD: f"{self.name} is {self.reason}.",
        }[self.place]
        lines = [said]
        if self.menu_budget:
            lines.append(f"The menu takes {self.menu_tokens} of {self.menu_budget} tokens.")
        if self.rank is not None and self.score is not None:
            lines.append(f"For this request it ranks {self.rank}, score {self.score:.2f}{self._format_score_parts()}.")
            if not self.fits:
                lines.append("No skill is relevant enough to suggest for this request.")
        elif self.is_asked and self.place in (SkillPlacementKind.MENU, SkillPlacementKind.CUT):
            lines.append("Nothing in it matches this request.")
        if self.hides:
            lines.append(f"It hides {self._format_copy_addresses(self.hides)}.")
        if self.pending:
            lines.append(f"It would be hidden by {self._format_copy_addresses(self.pending)}, once it is trusted.")
        if self.compared:
            lines.append(self.compared)
        return lines

    def _describe_menu_placement(self) -> str:
        return "on the menu, one line" if self.menu_budget else "found by search_skills"

    def _format_copy_addresses(self, layers: tuple[str, ...]) -> str:
        return ", ".join(f"{self.name}@{layer}" for layer in layers)

    def _format_score_parts(self) -> str:
        parts = [f"{name} {value:+.2f}" for name, value in list(self.parts.items())[:4]]
        return f" ({', '.join(parts)})" if parts else ""


def explain_skill_placement(
    item: ListedSkill, selection: SkillSelection, menu: SkillMenu, results: SearchResults | None
) -> SkillPlacementExplanation:
    """Explain a skill from the results of selection, menu and search; `results` is None without a request."""
    place, reason = _find_skill_placement(item, selection, menu)
    ranked = {found.id: (rank, found) for rank, found in enumerate(results.hits if results else (), 1)}
    rank, hit = ranked.get(item.name, (None, None))
    return SkillPlacementExplanation(
        name=item.name,
        layer=item.layer,
        place=place,
        reason=reason,
        rank=rank,
        score=None if hit is None else hit.score,
        parts={} if hit is None else hit.parts,
        fits=results is not None and results.fits,
        is_asked=results is not None,
        menu_tokens=menu.tokens,
        menu_budget=menu.budget,
        hides=item.hidden,
        pending=item.awaiting_trust,
    )


def _find_skill_placement(
    item: ListedSkill, selection: SkillSelection, menu: SkillMenu
) -> tuple[SkillPlacementKind, str]:
    for choice in selection.eager:
        if choice.name == item.name:
            return SkillPlacementKind.EAGER, choice.reason
    if item.name not in selection.list_eligible_names():
        return SkillPlacementKind.LEFT_OUT, selection.left_out.get(item.name, f"{item.state.value}: {item.reason}")
    if item.name in menu.cut:
        return SkillPlacementKind.CUT, NOT_LISTED
    return SkillPlacementKind.MENU, "eligible, and no rule puts it into the prompt"
