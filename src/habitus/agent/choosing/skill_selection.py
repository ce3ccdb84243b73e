"""Selects the skills for a request, finds relevant ones on the menu, and lists what is new to a user."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from habitus.agent.prompts import prompt
from habitus.events import OutcomeKind
from habitus.journal.journal import Journal, list_chosen_non_sticky_skills_of_turn
from habitus.journal.model import Turn
from habitus.journal.usage import get_deciding_or_heaviest_outcome
from habitus.search.model import IndexHit, SearchResults
from habitus.skills.choosing import menu
from habitus.skills.choosing.menu import SkillChangesSinceLastVisit
from habitus.skills.choosing.selection import STICKY_TURNS, PriorTurn, SkillSelection, UserRequest, select_skills
from habitus.skills.layers.layer import Layer
from habitus.skills.layers.listing import LibrarySnapshot
from habitus.skills.lifecycle import GateContext


def choose_skills(seen: LibrarySnapshot, asked: UserRequest, gates: GateContext, journal: Journal) -> SkillSelection:
    """Select the skills for a request. A turn that it replies to but that is not recorded is ignored."""
    user = asked.user.name
    past = (
        journal.list_recent_turns_of_conversation(asked.conversation, limit=STICKY_TURNS, user=user)
        if asked.conversation
        else []
    )
    answered = journal.find_brief_turn(asked.reply_to, user=user) if asked.reply_to else None
    return select_skills(
        seen.listing,
        asked,
        gates,
        prior=[_to_prior_turn(turn) for turn in past],
        replied_to=None if answered is None else _to_prior_turn(answered),
    )


# Skills that a rule has selected are not on the menu but are found all the same.
_RULED = 5


def find_relevant_skills_on_menu(
    search: Callable[..., SearchResults],
    on_menu: Collection[str],
    *,
    unlisted: Collection[str] = (),
    k: int | None = None,
) -> list[IndexHit]:
    """Return the skills on the menu that search finds relevant, best first; empty if none is close enough.

    Those in `unlisted` have no line of their own: then more are named, and less sure ones too.
    """
    k = get_relevant_skill_limit(unlisted) if k is None else k
    if not on_menu:
        return []
    # Fetching a few more hits is cheaper than restricting the search to the menu.
    results = search(k=k + _RULED)
    hits = [hit for hit in results.hits if hit.id in on_menu][:k]
    if len(hits) < k and len(results.hits) == k + _RULED:
        results = search(k=k, among=on_menu)
        hits = list(results.hits)
    best = hits[0].score if hits else 0.0
    near = best * prompt.NEARLY_AS_FITTING if best >= results.min_confidence else math.inf
    possible = results.min_confidence * prompt.UNLISTED_CONFIDENCE
    return [hit for hit in hits if hit.score >= near or (hit.id in unlisted and hit.score >= possible)]


def get_relevant_skill_limit(unlisted: Collection[str]) -> int:
    """Return how many skills may be named beside a request."""
    return prompt.FITTING_UNLISTED if unlisted else prompt.FITTING


def find_library_news_for_user(
    journal: Journal,
    user: str,
    snapshot: LibrarySnapshot,
    gates: GateContext,
    layers: Sequence[Layer],
    withheld: Collection[str] = (),
) -> SkillChangesSinceLastVisit:
    """Return the skills that are new to this user."""
    visible = menu.list_visible_skill_hashes(snapshot, gates)
    now = {name: hash for name, hash in visible.items() if name not in withheld}
    return menu.find_skill_changes_since_visit(
        journal.get_hashes_of_seen_skills(user),
        now,
        hidden=snapshot.hashes.keys() - now.keys(),
        changelog=lambda: "\n".join(layer.read_changelog() for layer in layers),
    )


def _to_prior_turn(turn: Turn) -> PriorTurn:
    judged = get_deciding_or_heaviest_outcome(turn.outcomes)
    succeeded = judged is not None and judged.kind is OutcomeKind.OK
    return PriorTurn(
        id=turn.id, at=turn.started_on, succeeded=succeeded, skills=list_chosen_non_sticky_skills_of_turn(turn)
    )
