"""Which skills a request gets, which others may fit it, and why one did, or did not, reach a prompt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from habitus.agent import prompt
from habitus.events import OutcomeKind
from habitus.journal.journal import Journal, effective, loaded_or_ruled
from habitus.journal.model import Place, Turn
from habitus.search.model import Hit, Results
from habitus.skills import fingerprint
from habitus.skills.fingerprint import News
from habitus.skills.gates import GateContext
from habitus.skills.layers import Layer
from habitus.skills.listing import Listed, Snapshot
from habitus.skills.menu import Menu
from habitus.skills.selection import STICKY_TURNS, PriorTurn, Request, Selection, select


def choose(snapshot: Snapshot, request: Request, gates: GateContext, journal: Journal) -> Selection:
    """The skills for a request. A turn that it answers and that nobody kept has nothing to say."""
    user = request.user.name
    recent = journal.recent(request.conversation, limit=STICKY_TURNS, user=user) if request.conversation else []
    answered = journal.brief(request.reply_to, user=user) if request.reply_to else None
    return select(
        snapshot.listing,
        request,
        gates,
        prior=[_prior(turn) for turn in recent],
        replied_to=None if answered is None else _prior(answered),
    )


def near(search: Callable[..., Results], on_menu: Collection[str], *, k: int = prompt.FITTING) -> list[Hit]:
    """What a search for the request finds on the menu, the nearest first, while something really fits."""
    if not on_menu:
        return []
    results = search(k=k)  # telling the index which ones to look at costs more than looking twice now and then
    if any(hit.id not in on_menu for hit in results.hits):
        results = search(k=k, among=on_menu)
    if not results.fits:
        return []
    least = results.hits[0].score * prompt.NEARLY_AS_FITTING
    return [hit for hit in results.hits if hit.score >= least]


def unseen(
    journal: Journal,
    user: str,
    snapshot: Snapshot,
    gates: GateContext,
    layers: Sequence[Layer],
    withheld: Collection[str] = (),
) -> News:
    """What a user has not seen of the library, and is to see now."""
    visible = fingerprint.visible(snapshot, gates)
    now = {name: hash for name, hash in visible.items() if name not in withheld}
    return fingerprint.news(
        journal.skills_seen(user),
        now,
        hidden=snapshot.hashes.keys() - now.keys(),
        changelog=lambda: "\n".join(layer.changes() for layer in layers),
    )


def _prior(turn: Turn) -> PriorTurn:
    judged = effective(turn.outcomes)
    succeeded = judged is not None and judged.kind is OutcomeKind.OK
    return PriorTurn(id=turn.id, at=turn.started_on, succeeded=succeeded, skills=loaded_or_ruled(turn))


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """One skill and one request."""

    name: str
    layer: str
    place: Place
    reason: str
    rank: int | None = None  # among what fits the request; None when it does not match at all
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    fits: bool = False  # whether anything fits the request well enough to be named beside it
    is_asked: bool = True  # whether there was a request to hold it against
    menu_tokens: int = 0
    menu_budget: int = 0
    hides: tuple[str, ...] = ()  # lower layers
    waiting: tuple[str, ...] = ()  # higher layers whose copy nobody has trusted

    def sentences(self) -> list[str]:
        """The same in plain words."""
        said = {
            Place.EAGER: f"{self.name} is in the prompt in full: {self.reason}.",
            Place.MENU: f"{self.name} is {self._where()}; the model loads it when it needs it.",
            Place.CUT: f"{self.name} is eligible, but the menu is full; search_skills finds it.",
            Place.LEFT_OUT: f"{self.name} is left out: {self.reason}.",
            Place.WITHHELD: f"{self.name} is {self.reason}.",
        }[self.place]
        lines = [said]
        if self.menu_budget:
            lines.append(f"The menu takes {self.menu_tokens} of {self.menu_budget} tokens.")
        if self.rank is not None and self.score is not None:
            lines.append(f"For this request it ranks {self.rank}, score {self.score:.2f}{self._made_of()}.")
            if not self.fits:
                lines.append("Nothing fits this request well enough to be named beside it.")
        elif self.is_asked and self.place in (Place.MENU, Place.CUT):
            lines.append("Nothing in it matches this request.")
        if self.hides:
            lines.append(f"It hides {self._copies(self.hides)}.")
        if self.waiting:
            lines.append(f"It would be hidden by {self._copies(self.waiting)}, once somebody trusts that.")
        return lines

    def _where(self) -> str:
        return "on the menu, one line" if self.menu_budget else "found by search_skills"

    def _copies(self, layers: tuple[str, ...]) -> str:
        return ", ".join(f"{self.name}@{layer}" for layer in layers)

    def _made_of(self) -> str:
        parts = [f"{name} {value:+.2f}" for name, value in list(self.parts.items())[:4]]
        return f" ({', '.join(parts)})" if parts else ""


def explain(item: Listed, selection: Selection, menu: Menu, results: Results | None) -> Why:
    """Put together what selection, menu and search say about one skill; nothing is searched where nothing was asked."""
    place, reason = _place(item, selection, menu)
    ranked = {found.id: (rank, found) for rank, found in enumerate(results.hits if results else (), 1)}
    rank, hit = ranked.get(item.name, (None, None))
    return Why(
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
        waiting=item.waiting,
    )


def _place(item: Listed, selection: Selection, menu: Menu) -> tuple[Place, str]:
    for choice in selection.eager:
        if choice.name == item.name:
            return Place.EAGER, choice.reason
    if item.name not in selection.eligible():
        return Place.LEFT_OUT, selection.left_out.get(item.name, f"{item.state.value}: {item.reason}")
    if item.name in menu.cut:
        return Place.CUT, f"the menu has {menu.budget} tokens and {len(menu.cut)} lines did not fit"
    return Place.MENU, "eligible, and no rule puts it into the prompt"
