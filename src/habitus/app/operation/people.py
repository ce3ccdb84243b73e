"""People who may sign in besides the home's owner, each with a role: kept in a file that only the owner can read."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from habitus.errors import Invalid, NotFound, did_you_mean
from habitus.private_json import PrivateJson

FILE = "people.json"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class Role(StrEnum):
    VIEWER = "viewer"  # looks
    REVIEWER = "reviewer"  # decides what waits, and says how turns went
    ADMIN = "admin"  # changes everything

    def may(self, wanted: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(wanted)


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """`key` is another one after every change of their link, role or membership: what was signed with it is over."""

    name: str
    role: Role
    key: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Invited:
    """Somebody who may sign in: the word of a link that works once, and the token for programs. Neither is kept."""

    person: Person
    link: str
    token: str


class People:
    """What is kept of links and tokens are hashes; every look sees what another process has written."""

    def __init__(self, home: Path) -> None:
        self._file = PrivateJson(home / FILE)

    def list(self) -> tuple[Person, ...]:
        return tuple(_person(name, kept) for name, kept in sorted(self._file.read().items()))

    def get(self, name: str) -> Person | None:
        return next((person for person in self.list() if person.name == name), None)

    def add(self, name: str, role: Role) -> Invited:
        """Let somebody in, or give somebody who is known a new link, a new token and this role."""
        if not _NAME.fullmatch(name):
            raise Invalid(f"'{name}' is no name to sign in with.", mend="Use lower-case letters, digits and hyphens.")
        link, token = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        with self._file.changing() as kept:
            kept[name] = {"role": role.value, "link": _hash(link), "token": _hash(token)}
            person = _person(name, kept[name])
        return Invited(person=person, link=link, token=token)

    def remove(self, name: str) -> None:
        """From the next request on they are nobody here."""
        with self._file.changing() as kept:
            if kept.pop(name, None) is None:
                raise NotFound(f"'{name}' can't sign in.", mend=did_you_mean(name, kept) or "See 'habitus users list'.")

    def entered(self, link: str) -> Person | None:
        """Whose link it is; it works no more."""
        if not any(one.get("link") == _hash(link) for one in self._file.read().values()):
            return None
        with self._file.changing() as kept:
            for name, one in kept.items():
                if one.get("link") == _hash(link):
                    one["link"] = ""
                    return _person(name, one)
        return None

    def with_token(self, token: str) -> Person | None:
        wanted = _hash(token)
        found = [name for name, one in self._file.read().items() if secrets.compare_digest(one["token"], wanted)]
        return self.get(found[0]) if found else None


def _person(name: str, kept: Mapping[str, str]) -> Person:
    return Person(name=name, role=Role(kept["role"]), key=_hash(kept["token"])[:16])


def _hash(word: str) -> str:
    """Of a random word of 24 bytes, which nobody can guess from it."""
    return hashlib.sha256(word.encode("utf-8", "replace")).hexdigest()
