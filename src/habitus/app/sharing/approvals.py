"""Apply changes that were approved on another host but concern a directory of this one, exactly once.

This happens when a home is opened, before each turn of a conversation, and within seconds in a serving process, which
is notified of changes or polls.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.app.sharing import offline_copy
from habitus.errors import DatabaseAway, HabitusError, UserError
from habitus.locks import lock
from habitus.settings import CLAIMED
from habitus.skills.review import Proposal, ProposalState
from habitus.sql.notifications import Topic, news_of

if TYPE_CHECKING:
    from habitus.app.home import Home


log = logging.getLogger(__name__)

_LOCK = "carrying.lock"
_LOOK_S = 1.0
_COPY_EVERY_S = 60.0


def catch_up(home: Home) -> None:
    """Apply changes approved for this host's directories, and publish this host's proposals to the others."""
    if is_among_hosts(home):
        try:
            if home.review.left_here():
                with lock(home.settings.home / _LOCK):
                    home.review.hand_over()
            _carry_all(home, home.review.due())
        # Opening a home must never fail because of what other hosts want from it.
        except HabitusError as error:
            log.warning("What was approved for this host waits: %s", error)


def is_among_hosts(home: Home) -> bool:
    """Whether the home has a shared database that is reachable and writable."""
    return home.shared is not home.local and not home.is_read_only and not home.is_stand_in


def carry_out(home: Home, number: int) -> int | None:
    """Apply an approved change and return the version it made; None if it made none."""
    with lock(home.settings.home / _LOCK):
        # Under the lock, because two processes of one home may see the same approval.
        return where_it_is(home, home.review.get(number)).review.carry_out(number)


def where_it_is(home: Home, proposal: Proposal) -> Home:
    """Return the home as seen from the project whose directory the proposal changes."""
    # A project's skills are two levels down, in .claude/skills for example.
    place = Path(proposal.root).parent.parent
    if home.review.is_open(proposal) or not place.is_dir():
        return home
    return home.seen_from(place)


def _carry_all(home: Home, due: Sequence[Proposal]) -> None:
    for proposal in due:
        by = proposal.decided_by
        # Begun by a person here, or by a process that was killed: both may be finished without asking again.
        is_begun = proposal.state is ProposalState.CARRYING
        try:
            if is_begun or home.user(by.removesuffix(CLAIMED)).is_admin:
                carry_out(home, proposal.id)
            else:
                home.review.put_back(proposal.id, f"approved by {by}, who is not an admin here")
        except UserError as error:
            log.info("Proposal %d was not carried out: %s", proposal.id, error)


class Serving:
    """Watches for changes by other hosts, and applies what they approve for this host's directories.

    With `refreshes_snapshot` it also refreshes the offline snapshot when something has changed.
    """

    def __init__(self, home: Home, *, listens: bool = True, keeps_copy: bool = False) -> None:
        self._home = home
        self._copy_at = 0.0 if keeps_copy else float("inf")
        self._news = news_of(home.shared) if listens else None
        if self._news is not None:
            self._news.start()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="habitus-carrying", daemon=True)
        if is_among_hosts(home):
            self._thread.start()

    def close(self) -> None:
        """Stop watching, and wait for the thread to end."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._news is not None:
            self._news.close()

    def _watch(self) -> None:
        due = self._home.review.due
        ask = due if self._news is None else partial(self._news.fresh, Topic.PROPOSALS, due)
        while not self._closed.wait(_LOOK_S):
            try:
                _carry_all(self._home, ask())
                self._keep_copy()
            except DatabaseAway as error:
                # Only debug: the next command reports the outage anyway.
                log.debug("What was approved for this host waits: %s", error)
            except HabitusError as error:
                log.info("What was approved for this host waits: %s", error)

    def _keep_copy(self) -> None:
        began = time.monotonic()
        if began >= self._copy_at:
            offline_copy.keep(self._home)
            now = time.monotonic()
            # A slow copy is made less often: at most a twentieth of the time is spent copying.
            self._copy_at = now + max(_COPY_EVERY_S, 20 * (now - began))


@contextmanager
def serving(home: Home) -> Iterator[None]:
    """Watch for approvals while a worker runs."""
    # A worker has no database connection to spare for listening, so it polls.
    served = Serving(home, listens=False)
    try:
        yield
    finally:
        served.close()
