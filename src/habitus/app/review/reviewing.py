"""Review put together: where proposals are kept, what they are held against, and who hears of one that waits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from habitus.app.home import host_of
from habitus.app.library.content import near_duplicates
from habitus.app.sharing.carrying import carry_out
from habitus.app.whose import refuse_unless_admin
from habitus.skills.powers import brings_code
from habitus.skills.review import Proposal, Review

if TYPE_CHECKING:
    from habitus.app.habitus import Habitus


def open_review(habitus: Habitus) -> Review:
    def approved(proposal: Proposal) -> None:
        if brings_code(proposal.change.tree):
            habitus.tools.approved(proposal)

    is_alone = habitus.shared is habitus.local or habitus.is_read_only
    review = Review(
        habitus.skills,
        habitus.shared,
        local=habitus.local,
        host="" if is_alone else host_of(habitus.settings.home),
        allow_elsewhere=partial(refuse_unless_admin, habitus, "decide about directories of another host"),
        carry=partial(carry_out, habitus),
        clock=habitus.clock,
        auto=habitus.settings.review.auto,
        duplicates=partial(near_duplicates, habitus.finder),
        redacted=habitus.redacted,
        tell=habitus.notifier.proposal,
    )
    review.when_approved(approved)
    return review
