"""Desks: the home as each person who is signed in works on it, so that every change names them."""

from __future__ import annotations

import threading

from fastapi import Request

from habitus.app import Habitus
from habitus.app.people import Person, Role
from habitus.news import news_of
from habitus.settings import UserSettings


class Desks:
    """The owner's is given; another's is opened when they first come, and kept until `close`."""

    def __init__(self, own: Habitus) -> None:
        self.own = own
        self._news = news_of(own.shared)
        self._news.start()
        self._opened: dict[Person, Habitus] = {}
        self._lock = threading.Lock()

    def of(self, person: Person | None) -> Habitus:
        """None is the owner, or whoever looks without having signed in."""
        if person is None:
            return self.own
        with self._lock:
            if person not in self._opened:
                known = self.own.settings
                users = {**known.users, person.name: UserSettings(admin=person.role is Role.ADMIN)}
                theirs = known.model_copy(update={"user": person.name, "is_claimed": False, "users": users})
                self._opened[person] = Habitus.open(theirs, clock=self.own.clock)
            return self._opened[person]

    def close(self) -> None:
        self._news.close()
        for habitus in self._opened.values():
            habitus.close()


def habitus_of(request: Request) -> Habitus:
    """The home as whoever asks has it. Opens it where they are new, so never on the event loop."""
    desks: Desks = request.app.state.desks
    return desks.of(request.state.person)
