"""Why a skill did, or did not, reach the prompt: the rule, the rank, the budget, the gate, the copy in front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from habitus.search import Results
from habitus.skills.listing import Listed
from habitus.skills.menu import Menu
from habitus.skills.selection import Selection


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """`place` is eager, menu, cut or left_out."""

    name: str
    layer: str
    place: str
    reason: str
    rank: int | None = None  # among what fits the request; None when it does not match at all
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    fits: bool = False  # whether anything fits the request well enough to be named beside it
    menu_tokens: int = 0
    menu_budget: int = 0
    hides: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """The same in plain words."""
        said = {
            "eager": f"{self.name} is in the prompt in full: {self.reason}.",
            "menu": f"{self.name} is on the menu, one line; the model loads it when it needs it.",
            "cut": f"{self.name} is eligible, but the menu is full; search_skills finds it.",
            "left_out": f"{self.name} is left out: {self.reason}.",
        }[self.place]
        lines = [said]
        if self.menu_budget:
            lines.append(f"The menu takes {self.menu_tokens} of {self.menu_budget} tokens.")
        if self.rank is not None and self.score is not None:
            lines.append(f"For this request it ranks {self.rank}, score {self.score:.2f}{self._made_of()}.")
            if not self.fits:
                lines.append("Nothing fits this request well enough to be named beside it.")
        elif self.place in ("menu", "cut"):
            lines.append("Nothing in it matches this request.")
        if self.hides:
            lines.append(f"It stands in front of {', '.join(f'{self.name}@{layer}' for layer in self.hides)}.")
        return lines

    def _made_of(self) -> str:
        parts = [f"{name} {value:+.2f}" for name, value in list(self.parts.items())[:4]]
        return f" ({', '.join(parts)})" if parts else ""


def explain(item: Listed, selection: Selection, menu: Menu, results: Results) -> Why:
    """Put together what selection, menu and search say about one skill."""
    place, reason = _place(item, selection, menu)
    ranked = {found.id: (rank, found) for rank, found in enumerate(results.hits, 1)}
    rank, hit = ranked.get(item.name, (None, None))
    return Why(
        name=item.name,
        layer=item.layer,
        place=place,
        reason=reason,
        rank=rank,
        score=None if hit is None else hit.score,
        parts={} if hit is None else hit.parts,
        fits=results.fits,
        menu_tokens=menu.tokens,
        menu_budget=menu.budget,
        hides=item.hidden,
    )


def _place(item: Listed, selection: Selection, menu: Menu) -> tuple[str, str]:
    for choice in selection.eager:
        if choice.name == item.name:
            return "eager", choice.reason
    if item.name in menu.cut:
        return "cut", f"the menu has {menu.budget} tokens and {len(menu.cut)} lines did not fit"
    if item.name in menu.shown:
        return "menu", "eligible, and no rule puts it into the prompt"
    return "left_out", selection.left_out.get(item.name, f"{item.state.value}: {item.reason}")
