"""Desks: the home as each person who is signed in works on it, so that every change names them."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from fastapi import Request

from habitus.app import Habitus
from habitus.app.conversations.talking import Talks
from habitus.app.operation import configuring
from habitus.app.operation.configuring import Configured
from habitus.app.operation.people import Person, Role
from habitus.app.review import taking_back
from habitus.app.review.taking_back import TakenBack
from habitus.app.sharing.carrying import Serving


class Desks:
    """The owner's is given; another's is opened when they first come. What was opened here is kept until `close`."""

    def __init__(self, own: Habitus) -> None:
        self.own = own
        self._serving = Serving(own)
        self._opened: dict[Person, Habitus] = {}
        self._left: list[Habitus] = []  # what was opened with settings that have changed since
        self._talks: dict[Habitus, Talks] = {}
        self._lock = threading.Lock()

    def of(self, person: Person | None) -> Habitus:
        """None is the owner, or whoever looks without having signed in."""
        if person is None:
            return self.own
        with self._lock:
            if person not in self._opened:
                self._opened[person] = self.own.as_user(person.name, is_admin=person.role is Role.ADMIN)
            return self._opened[person]

    def put(self, habitus: Habitus, key: str, text: str | None) -> Configured:
        """Change a setting in the file, or take it out; everybody works on with it, what runs ends as it began."""
        done = configuring.put_from_afar(habitus.settings, os.environ, key, text)
        name = key.partition(".")[0]
        with self._lock:
            known = self.own.settings
            new = configuring.read_again(known, os.environ)
            self.own = Habitus.open(known.model_copy(update={name: getattr(new, name)}), clock=self.own.clock)
            self._left += [self.own, *self._opened.values()]  # each before those that use its connections
            self._opened.clear()
        return done

    def take_back(self, habitus: Habitus, words: Sequence[str]) -> TakenBack:
        """Take back a change by the words that came with it, also one of a setting."""
        match tuple(words):
            case ("config", "set", key, text):
                done = self.put(habitus, key, text)
            case ("config", "unset", key):
                done = self.put(habitus, key, None)
            case _:
                return taking_back.take_back(habitus, words)
        return TakenBack(said=(f"{done.now.key} is {done.now.shown or 'not set'}.",), undo=done.undo)

    def talks(self, habitus: Habitus) -> Talks:
        """The conversations that whoever works at this desk has open."""
        with self._lock:
            if habitus not in self._talks:
                self._talks[habitus] = Talks(habitus)
            return self._talks[habitus]

    def close(self) -> None:
        self._serving.close()
        for talks in self._talks.values():
            talks.close()
        for habitus in (*self._opened.values(), *reversed(self._left)):
            habitus.close()


def desks_of(request: Request) -> Desks:
    desks: Desks = request.app.state.desks
    return desks


def habitus_of(request: Request) -> Habitus:
    """The home as whoever asks has it. Opens it where they are new, so never on the event loop."""
    return desks_of(request).of(request.state.person)


def talks_of(request: Request) -> Talks:
    """The conversations that whoever asks has open."""
    return desks_of(request).talks(habitus_of(request))
