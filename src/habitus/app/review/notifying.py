"""Notify a URL when something becomes pending: names only, never texts, sent from a background thread."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from habitus.memory.model import Engram
    from habitus.skills.review import Proposal

log = logging.getLogger(__name__)

# Per attempt.
_TIMEOUT_S = 5.0
# The pause before each attempt; closing skips them.
_PAUSES_S = (0.0, 1.0, 5.0)
# How long a command that ends waits for the last notification.
_CLOSE_TIMEOUT_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingReviewNotice:
    """A notice about one pending item."""

    kind: str
    id: str
    name: str
    action: str
    by: str


class ReviewWebhookNotifier:
    """Sends a notice for each item that becomes pending. Callers never block, whether or not the URL answers."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._untold: list[PendingReviewNotice] = []
        self._lock = threading.Lock()
        self._teller: threading.Thread | None = None
        self._is_closing = threading.Event()

    def notify_proposal(self, made: Proposal) -> None:
        """Notify about a pending proposal."""
        change, by = made.change, f"{made.author.actor.value} {made.author.name}".strip()
        self._enqueue_notice(
            PendingReviewNotice(kind="skill", id=str(made.id), name=change.name, action=change.action.value, by=by)
        )

    def notify_lesson(self, engram: Engram) -> None:
        """Notify about a pending lesson, by its id."""
        # The id stands for the name, because a lesson's name is its text, which stays private.
        self._enqueue_notice(
            PendingReviewNotice(
                kind="lesson", id=engram.id, name=engram.id, action="learn", by=engram.produced_by.value
            )
        )

    def close(self) -> None:
        """Skip the pauses, and wait briefly for the last notices to be sent."""
        self._is_closing.set()
        if (teller := self._teller) is not None:
            teller.join(_CLOSE_TIMEOUT_S)

    def _enqueue_notice(self, what: PendingReviewNotice) -> None:
        if not self._url:
            return
        with self._lock:
            self._untold.append(what)
            if self._teller is None:
                self._teller = threading.Thread(target=self._send_batches, name="habitus-notifier", daemon=True)
                self._teller.start()

    def _send_batches(self) -> None:
        """Send notices until there are none left; those that arrive meanwhile go out together."""
        while True:
            with self._lock:
                batch, self._untold = self._untold, []
                if not batch:
                    self._teller = None
                    return
            self._send_batch(batch)

    def _send_batch(self, batch: list[PendingReviewNotice]) -> None:
        names = ", ".join(one.name for one in batch)
        body = {"text": f"Pending review: {names}", "pending": [asdict(one) for one in batch]}
        why = ""
        for pause in _PAUSES_S:
            self._is_closing.wait(pause)
            try:
                _post_json(self._url, json.dumps(body).encode())
                return
            except (OSError, ValueError) as error:
                why = str(error)
        # Log the host name only: the rest of the URL is often a secret.
        log.warning("%s could not be notified of pending reviews: %s", urlsplit(self._url).hostname, why)


def _post_json(url: str, body: bytes) -> None:
    # Imported here, because most homes have no URL to notify.
    import urllib.request
    from http.client import HTTPException

    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
    try:
        urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()
    except HTTPException as error:
        raise OSError(f"no HTTP: {error}") from None
