"""Which skills a request gets: selection over a snapshot, with what the journal knows of the turns before."""

from __future__ import annotations

from habitus.events import OutcomeKind
from habitus.journal.journal import Journal, effective, loaded_or_ruled
from habitus.journal.model import Turn
from habitus.skills.gates import GateContext
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


def _prior(turn: Turn) -> PriorTurn:
    judged = effective(turn.outcomes)
    succeeded = judged is not None and judged.kind is OutcomeKind.OK
    return PriorTurn(id=turn.id, at=turn.started_on, succeeded=succeeded, skills=loaded_or_ruled(turn))
