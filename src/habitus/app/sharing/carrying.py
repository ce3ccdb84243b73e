"""Carrying out what was approved for a directory of this host, whoever approved it on which host, once.

When a home is opened, and in a process that serves within seconds: it is told of changes, or asks.
"""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.app.sharing import standing_in
from habitus.errors import HabitusError, UserError
from habitus.settings import CLAIMED
from habitus.skills.review import Proposal, ProposalState
from habitus.sql.news import Topic, news_of

if TYPE_CHECKING:
    from habitus.app.habitus import Habitus

log = logging.getLogger(__name__)

_LOCK = "carrying.lock"
_LOOK_S = 1.0


def caught_up(habitus: Habitus) -> Habitus:
    """A Habitus that has done what was approved for its directories meanwhile, and whose proposals all hosts know."""
    if is_among_hosts(habitus):
        try:
            if habitus.review.left_here():
                with _alone(habitus):
                    habitus.review.hand_over()
            _carry_all(habitus, habitus.review.due())
        except HabitusError as error:  # nobody who opens a home is kept by what others want of it
            log.warning("What was approved for this host waits: %s", error)
    return habitus


def is_among_hosts(habitus: Habitus) -> bool:
    """Whether others share its database, and it can be reached and written."""
    return habitus.shared is not habitus.local and not habitus.is_read_only and not standing_in.stands_in(habitus)


def carry_out(habitus: Habitus, number: int) -> int | None:
    """The version that a change has made here, and no other process of this home makes again."""
    with _alone(habitus):
        return where_it_is(habitus, habitus.review.get(number)).review.carry_out(number)


@contextmanager
def _alone(habitus: Habitus) -> Iterator[None]:
    """No other process of this home is in this block."""
    with (habitus.settings.home / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def where_it_is(habitus: Habitus, proposal: Proposal) -> Habitus:
    """The home as seen from the project whose directory is meant: skills are in .claude/skills, say, of that."""
    place = Path(proposal.root).parent.parent
    if habitus.review.is_open(proposal) or not place.is_dir():
        return habitus
    return type(habitus)(
        habitus.settings.model_copy(update={"cwd": place}),
        local=habitus.local,
        shared=habitus.shared,
        clock=habitus.clock,
        there=habitus.there,
        has_pages=False,
    )


def _carry_all(habitus: Habitus, due: Sequence[Proposal]) -> None:
    for proposal in due:
        by = proposal.decided_by
        is_begun = proposal.state is ProposalState.CARRYING  # by a person here, or by a process that was killed
        try:
            if is_begun or habitus.user(by.removesuffix(CLAIMED)).is_admin:
                carry_out(habitus, proposal.id)
            else:
                habitus.review.put_back(proposal.id, f"approved by {by}, who is no admin here")
        except UserError as error:
            log.info("Proposal %d was not carried out: %s", proposal.id, error)


class Serving:
    """A process that serves hears what others change, and does what they approve for its directories."""

    def __init__(self, habitus: Habitus, *, listens: bool = True) -> None:
        self._habitus = habitus
        self._news = news_of(habitus.shared) if listens else None
        if self._news is not None:
            self._news.start()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="habitus-carrying", daemon=True)
        if is_among_hosts(habitus):
            self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._news is not None:
            self._news.close()

    def _watch(self) -> None:
        due = self._habitus.review.due
        ask = due if self._news is None else partial(self._news.fresh, Topic.PROPOSALS, due)
        while not self._closed.wait(_LOOK_S):
            try:
                _carry_all(self._habitus, ask())
            except HabitusError as error:
                log.info("What was approved for this host waits: %s", error)


@contextmanager
def serving(habitus: Habitus) -> Iterator[None]:
    """As a worker does, which has no connection to spare for listening."""
    served = Serving(habitus, listens=False)
    try:
        yield
    finally:
        served.close()
