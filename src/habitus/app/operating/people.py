"""User accounts besides the owner of a home: names, roles, links, tokens, and the key that signs their sessions.

They are stored in the shared database, so every host knows them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from habitus import sql
from habitus.access import Access
from habitus.errors import DatabaseAway, Invalid, NotFound, StorageFailed, did_you_mean
from habitus.files import PrivateJson
from habitus.sql.notifications import Topic, news_of

if TYPE_CHECKING:
    from habitus.app.home import Home

# The file that older versions kept accounts in.
FILE = "people.json"
_KEY = "people"
# Often enough for a list of users, and rare enough for the database.
_NOTED_EVERY = timedelta(minutes=5)
# Seconds without a new attempt after the database was unreachable.
_ASK_AGAIN_S = 1.0
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")

sign_ins = sa.Table(
    "sign_ins",
    sql.metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("role", sa.String, nullable=False),
    sa.Column("link", sa.String, nullable=False),  # a hash; empty after use
    sa.Column("token", sa.String, nullable=False),  # a hash
    sa.Column("seen_on", sql.Utc),
)

signing_keys = sa.Table(
    "signing_keys",
    sql.metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("key", sa.String, nullable=False),
)


class Role(StrEnum):
    """What a user may do."""

    # Reads everything.
    VIEWER = "viewer"
    # Decides proposals, and judges turns.
    REVIEWER = "reviewer"
    # Changes everything.
    ADMIN = "admin"

    def may(self, wanted: Role) -> bool:
        """Whether this role includes the permissions of another."""
        return self.access >= wanted.access

    @property
    def access(self) -> Access:
        return Access[self.name]


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """A user who may sign in; `key` changes with their link, token or role, which ends all sessions signed with it."""

    name: str
    role: Role
    key: str = field(default="", compare=False, repr=False)
    # When they were last active.
    seen_on: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Invited:
    """An account with its one-time link and its token for programs; only hashes of both are stored."""

    person: Person
    link: str
    token: str


def open_people(home: Home) -> People:
    """Return the accounts of the home's shared database; those of a file of an older version are imported first."""
    people = People(sql.acting_as(home.shared, "", is_admin=True), PrivateJson(home.settings.home / FILE))
    is_copy = home.is_stand_in or (home.is_read_only and home.shared is not home.local)
    if people.file.path.exists() and not is_copy:
        people.take_over(keep_file=home.is_read_only)
    return people


def is_team(home: Home) -> bool:
    """Whether another user could approve; the home's owner counts besides the accounts."""
    people = open_people(home).list()
    return any(one.name == home.settings.user or one.role.may(Role.REVIEWER) for one in people)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    people: Mapping[str, Mapping[str, Any]]
    key: str


class People:
    """Stores user accounts, with hashes of their links and tokens.

    Reads see the changes of other hosts; while the database is away, they return the last known accounts.
    """

    def __init__(self, engine: sa.Engine, file: PrivateJson) -> None:
        self.file = file
        self._engine = engine
        self._news = news_of(engine)
        self._last: _Known | None = None
        self._away_until = 0.0
        self._noted: dict[str, datetime] = {}

    def list(self) -> tuple[Person, ...]:
        """Return all accounts, sorted by name."""
        return tuple(_person(name, row) for name, row in sorted(self._read_known().people.items()))

    def get(self, name: str) -> Person | None:
        """Return the account with this name; None if there is none."""
        row = self._read_known().people.get(name)
        return None if row is None else _person(name, row)

    def left_in_file(self) -> Mapping[str, str]:
        """Return the roles by name of users who are only in the old file, because another host came first."""
        known = self._read_known().people
        return {name: row["role"] for name, row in sorted(self.file.read().items()) if name not in known}

    def add(self, name: str, role: Role) -> Invited:
        """Add a user, or give an existing one a new link, token and role."""
        if not _NAME.fullmatch(name):
            raise Invalid(
                f"'{name}' is not a name to sign in with.", hint="Use lower-case letters, digits and hyphens."
            )
        link, token = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        row = {"name": name, "role": role.value, "link": _hash(link), "token": _hash(token)}
        with sql.writing(self._engine) as connection:
            sql.upsert(connection, sign_ins, [row], lambda new: {key: new[key] for key in ("role", "link", "token")})
        return Invited(person=_person(name, row), link=link, token=token)

    def note_seen(self, person: Person, now: datetime) -> None:
        """Record that a user is active, at most every few minutes."""
        last = self._noted.get(person.name) or person.seen_on
        if last is not None and now - last < _NOTED_EVERY:
            return
        self._noted[person.name] = now
        with suppress(StorageFailed), sql.writing(self._engine) as connection:
            connection.execute(sign_ins.update().where(sign_ins.c.name == person.name).values(seen_on=now))

    def remove(self, name: str) -> None:
        """Remove an account; from the next request on, every host refuses it."""
        with sql.writing(self._engine) as connection:
            is_gone = connection.execute(sign_ins.delete().where(sign_ins.c.name == name)).rowcount > 0
        if self.file.path.exists():
            with self.file.changing() as kept:
                is_gone = kept.pop(name, None) is not None or is_gone
        if not is_gone:
            known = self._read_known().people
            raise NotFound(f"'{name}' can't sign in.", hint=did_you_mean(name, known) or "See 'habitus users list'.")

    def enter(self, link: str) -> Person | None:
        """Return the user of a one-time link and invalidate it; None if it is unknown or was used."""
        wanted = _hash(link)
        name = next((name for name, row in self._read_known().people.items() if row["link"] == wanted), "")
        if not name:
            return None
        with sql.writing(self._engine) as connection:
            use = sign_ins.update().where(sign_ins.c.name == name, sign_ins.c.link == wanted).values(link="")
            # Two requests may bring the same link at once; only one of them updates the row.
            is_first = connection.execute(use).rowcount > 0
        return self.get(name) if is_first else None

    def with_token(self, token: str) -> Person | None:
        """Return the account with this token; None if it is unknown."""
        wanted = _hash(token)
        known = self._read_known().people.items()
        # Compared in constant time, so response times tell nothing about a token.
        return next((_person(name, row) for name, row in known if secrets.compare_digest(row["token"], wanted)), None)

    def signing_key(self) -> bytes:
        """Return the key that all hosts sign with, creating it if needed; empty if the database is away."""
        try:
            known = self._read_known()
            if not known.key:
                with sql.writing(self._engine) as connection:
                    made = {"name": _KEY, "key": secrets.token_hex(32)}
                    sql.insert_missing(connection, signing_keys, [made])
                known = self._read()
            return bytes.fromhex(known.key)
        except StorageFailed:
            return b""

    def take_over(self, *, keep_file: bool) -> None:
        """Import the accounts of the old file if the database has none, so only the first host's are taken."""
        try:
            rows = [
                {"name": name, "role": Role(row["role"]).value, "link": row.get("link", ""), "token": row["token"]}
                for name, row in self.file.read().items()
            ]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise StorageFailed(f"{self.file.path} does not say who has which role.", hint="Move it away.") from None
        with sql.writing(self._engine, durable=True, lock="people") as connection:
            if rows and not connection.execute(sa.select(sign_ins.c.name).limit(1)).first():
                connection.execute(sign_ins.insert(), rows)
        if not keep_file and not self.left_in_file():
            self.file.path.unlink(missing_ok=True)

    def _read_known(self) -> _Known:
        if self._last is not None and time.monotonic() < self._away_until:
            return self._last
        try:
            self._last = self._news.fresh(Topic.PEOPLE, self._read)
        except DatabaseAway:
            if self._last is None:
                raise
            self._away_until = time.monotonic() + _ASK_AGAIN_S
        return self._last

    def _read(self) -> _Known:
        with sql.reading(self._engine) as connection:
            rows = connection.execute(sa.select(sign_ins)).mappings().all()
            key = connection.execute(sa.select(signing_keys.c.key).where(signing_keys.c.name == _KEY)).scalar()
        return _Known(people={row["name"]: dict(row) for row in rows}, key=key or "")


def _person(name: str, kept: Mapping[str, Any]) -> Person:
    key, seen_on = _hash(kept["token"])[:16], kept.get("seen_on")
    return Person(name=name, role=Role(kept["role"]), key=key, seen_on=seen_on)


def _hash(word: str) -> str:
    """Hash a random token; with 24 random bytes, neither salt nor a slow hash is needed."""
    return hashlib.sha256(word.encode("utf-8", "replace")).hexdigest()
