"""Which skills a request gets, which others may fit it, and which of them are new to a user."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from habitus.agent import prompt
from habitus.events import OutcomeKind
from habitus.journal.journal import Journal, effective, loaded_or_ruled
from habitus.journal.model import Turn
from habitus.search.model import Hit, Results
from habitus.skills import fingerprint
from habitus.skills.fingerprint import News
from habitus.skills.gates import GateContext
from habitus.skills.layers import Layer
from habitus.skills.listing import Snapshot
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
