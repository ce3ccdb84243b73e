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

from habitus.app.sharing import offline_snapshot
from habitus.errors import DatabaseUnavailable, HabitusError, UserError
from habitus.locks import hold_lock
from habitus.settings import CLAIMED_SUFFIX
from habitus.skills.review import Proposal, ProposalState
from habitus.sql.change_notifications import ChangeTopic, get_change_feed

if TYPE_CHECKING:
    from habitus.app.home import Home


log = logging.getLogger(__name__)

_LOCK = "carrying.lock"
_POLL_INTERVAL_S = 1.0
_SNAPSHOT_INTERVAL_S = 60.0


def apply_approvals_and_publish_proposals(home: Home) -> None:
    """Apply changes approved for this host's directories, and publish this host's proposals to the others."""
    if can_write_shared_database(home):
        try:
            if home.review.list_unsynced_proposals():
                with hold_lock(home.settings.home / _LOCK):
                    home.review.upload_unsynced()
            _apply_due_approvals(home, home.review.list_approved_unapplied())
        # Opening a home must never fail because of what other hosts want from it.
        except HabitusError as error:
            log.warning("Changes approved for this host are not applied yet: %s", error)


def can_write_shared_database(home: Home) -> bool:
    """Whether the home has a shared database that is reachable and writable."""
    return home.shared is not home.local and not home.is_read_only and not home.is_offline


def apply_approved_change(home: Home, number: int) -> int | None:
    """Apply an approved change and return the version it made; None if it made none."""
    with hold_lock(home.settings.home / _LOCK):
        # Under the lock, because two processes of one home may see the same approval.
        return open_home_for_proposal_project(home, home.review.get(number)).review.apply_approved_proposal(number)


def open_home_for_proposal_project(home: Home, proposal: Proposal) -> Home:
    """Return the home as seen from the project whose directory the proposal changes."""
    # A project's skills are two levels down, in .claude/skills for example.
    place = Path(proposal.root).parent.parent
    if home.review.is_proposal_directory_open_here(proposal) or not place.is_dir():
        return home
    return home.with_cwd(place)


def _apply_due_approvals(home: Home, due: Sequence[Proposal]) -> None:
    for proposal in due:
        by = proposal.decided_by
        # Begun by a person here, or by a process that was killed: both may be finished without asking again.
        is_begun = proposal.state is ProposalState.APPLYING
        try:
            if is_begun or home.get_user(by.removesuffix(CLAIMED_SUFFIX)).is_admin:
                apply_approved_change(home, proposal.id)
            else:
                home.review.return_to_pending(proposal.id, f"approved by {by}, who is not an admin here")
        except UserError as error:
            log.info("Proposal %d was not applied: %s", proposal.id, error)


class ApprovalWatcher:
    """Watches for changes by other hosts, and applies what they approve for this host's directories.

    With `refreshes_snapshot` it also refreshes the offline snapshot when something has changed.
    """

    def __init__(self, home: Home, *, listens: bool = True, refreshes_snapshot: bool = False) -> None:
        self._home = home
        self._copy_at = 0.0 if refreshes_snapshot else float("inf")
        self._news = get_change_feed(home.shared) if listens else None
        if self._news is not None:
            self._news.start()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._poll_and_apply_approvals, name="habitus-carrying", daemon=True)
        if can_write_shared_database(home):
            self._thread.start()

    def close(self) -> None:
        """Stop watching, and wait for the thread to end."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._news is not None:
            self._news.close()

    def _poll_and_apply_approvals(self) -> None:
        due = self._home.review.list_approved_unapplied
        # The feed is shared by every home of this process on that database, and each has other proposals to apply.
        key = ("due", self._home.settings.home)
        ask = due if self._news is None else partial(self._news.fetch_cached, ChangeTopic.PROPOSALS, due, key=key)
        while not self._closed.wait(_POLL_INTERVAL_S):
            try:
                _apply_due_approvals(self._home, ask())
                self._refresh_snapshot_if_due()
            except DatabaseUnavailable as error:
                # Only debug: the next command reports the outage anyway.
                log.debug("Changes approved for this host are not applied yet: %s", error)
            except HabitusError as error:
                log.info("Changes approved for this host are not applied yet: %s", error)

    def _refresh_snapshot_if_due(self) -> None:
        began = time.monotonic()
        if began >= self._copy_at:
            offline_snapshot.refresh_snapshot(self._home)
            now = time.monotonic()
            # A slow copy is made less often: at most a twentieth of the time is spent copying.
            self._copy_at = now + max(_SNAPSHOT_INTERVAL_S, 20 * (now - began))


@contextmanager
def watch_and_apply_approvals(home: Home) -> Iterator[None]:
    """Watch for approvals while a worker runs."""
    # A worker has no database connection to spare for listening, so it polls.
    served = ApprovalWatcher(home, listens=False)
    try:
        yield
    finally:
        served.close()
