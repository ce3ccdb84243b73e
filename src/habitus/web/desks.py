"""Desks: the home as each person who is signed in works on it, so that every change names them."""

from __future__ import annotations

import threading

from fastapi import Request

from habitus.app import Habitus
from habitus.app.people import Person, settings_of
from habitus.app.talking import Talks


class Desks:
    """The owner's is given; another's is opened when they first come, and kept until `close`."""

    def __init__(self, own: Habitus) -> None:
        self.own = own
        self._opened: dict[Person, Habitus] = {}
        self._talks: dict[Habitus, Talks] = {}
        self._lock = threading.Lock()

    def of(self, person: Person | None) -> Habitus:
        """None is the owner, or whoever looks without having signed in."""
        if person is None:
            return self.own
        with self._lock:
            if person not in self._opened:
                theirs = settings_of(person, self.own.settings)
                self._opened[person] = Habitus.open(theirs, clock=self.own.clock)
            return self._opened[person]

    def talks(self, habitus: Habitus) -> Talks:
        """The conversations that whoever works at this desk has open."""
        with self._lock:
            if habitus not in self._talks:
                self._talks[habitus] = Talks(habitus)
            return self._talks[habitus]

    def close(self) -> None:
        for talks in self._talks.values():
            talks.close()
        for habitus in self._opened.values():
            habitus.close()


def habitus_of(request: Request) -> Habitus:
    """The home as whoever asks has it. Opens it where they are new, so never on the event loop."""
    desks: Desks = request.app.state.desks
    return desks.of(request.state.person)
