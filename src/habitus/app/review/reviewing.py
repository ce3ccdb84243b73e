"""Review put together: where proposals are kept, what they are held against, and who hears of one that waits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from habitus.app.home_directory import host_of
from habitus.app.library.content import near_duplicates
from habitus.app.sharing.carrying import carry_out
from habitus.app.whose import refuse_unless_admin
from habitus.skills.powers import brings_code
from habitus.skills.review import Proposal, Review

if TYPE_CHECKING:
    from habitus.app.home import Home


def open_review(home: Home) -> Review:
    def approved(proposal: Proposal) -> None:
        if brings_code(proposal.change.tree):
            home.tools.approved(proposal)

    is_alone = home.shared is home.local or home.is_read_only
    review = Review(
        home.skills,
        home.shared,
        local=home.local,
        host="" if is_alone else host_of(home.settings.home),
        allow_elsewhere=partial(refuse_unless_admin, home, "decide about directories of another host"),
        carry=partial(carry_out, home),
        clock=home.clock,
        auto=home.settings.review.auto,
        duplicates=partial(near_duplicates, home.finder),
        redacted=home.redacted,
        tell=home.notifier.proposal,
    )
    review.when_approved(approved)
    return review
