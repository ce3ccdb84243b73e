"""User accounts besides the owner of a home: names, roles, links, tokens, and the key that signs their sessions.

They are stored in the shared database, so every host knows them.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from habitus import sql
from habitus.access import Access
from habitus.app.operating.identity_provider import (
    IdentityProvider,
    ProviderAccount,
    ProviderUnavailable,
    open_identity_provider,
)
from habitus.errors import DatabaseUnavailable, Invalid, NotFound, Refused, StorageFailed, did_you_mean
from habitus.journal.tables import turns
from habitus.plain_data import INTERNAL
from habitus.settings import Settings
from habitus.sql.change_notifications import ChangeTopic, get_change_feed

if TYPE_CHECKING:
    from habitus.app.home import Home

log = logging.getLogger(__name__)

_SIGNING_KEY_NAME = "people"
_FIRST_LINK_NAME = "first link"
# Precedes the name of a removed account; the key is who it is at the provider.
_REMOVED_PREFIX = "removed "
# Precedes the hash of a session that was signed out; the key is until when its cookie would be valid.
_ENDED_PREFIX = "ended "
FIRST_LINK_TTL = timedelta(minutes=15)
FIRST_USER = "admin"
# Often enough for a list of users, and rare enough for the database.
_SEEN_INTERVAL = timedelta(minutes=5)
# How long an account of a provider is let in without asking it again, and the time that one process has to ask.
_CHECK_INTERVAL, _CHECK_TIMEOUT = timedelta(minutes=4), timedelta(seconds=30)
# Seconds without a new attempt after the database was unreachable.
_RETRY_S = 1.0
_USER_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")

sign_ins = sa.Table(
    "sign_ins",
    sql.metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("role", sa.String, nullable=False),
    sa.Column("link", sa.String, nullable=False),  # a hash; empty after use
    sa.Column("token", sa.String, nullable=False),  # a hash
    sa.Column("seen_on", sql.UtcDateTime),
    # Of an account of an OpenID Connect provider: who it is there, sealed tokens, and when it was last confirmed.
    *sql.build_optional_columns(sa.String, "subject", "provider_tokens"),
    sa.Column("checked_on", sql.UtcDateTime),
)

signing_keys = sa.Table(
    "signing_keys",
    sql.metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("key", sa.String, nullable=False),
)


class UserRole(StrEnum):
    """What a user may do."""

    # Reads everything.
    VIEWER = "viewer"
    # Decides proposals, and judges turns.
    REVIEWER = "reviewer"
    # Changes everything.
    ADMIN = "admin"

    def is_at_least(self, role: UserRole) -> bool:
        """Whether this role includes the permissions of another."""
        return self.access >= role.access

    @property
    def access(self) -> Access:
        return Access[self.name]


@dataclass(frozen=True, kw_only=True, slots=True)
class UserAccount:
    """A user who may sign in; `key` changes with their link, token or role, which ends all sessions signed with it."""

    name: str
    role: UserRole
    key: str = field(default="", compare=False, repr=False, metadata=INTERNAL)
    # When they were last active.
    seen_on: datetime | None = field(default=None, compare=False)
    # Who they are at the provider that vouches for them; empty for an account of this database alone.
    subject: str = field(default="", compare=False, metadata=INTERNAL)
    # Sealed; empty if the provider no longer lets them in.
    provider_tokens: str = field(default="", compare=False, repr=False, metadata=INTERNAL)
    checked_on: datetime | None = field(default=None, compare=False, metadata=INTERNAL)

    def is_provider_check_due(self, now: datetime) -> bool:
        """Whether the provider has to confirm the account before it is let in."""
        return bool(self.subject) and (self.checked_on is None or now - self.checked_on >= _CHECK_INTERVAL)


@dataclass(frozen=True, kw_only=True, slots=True)
class UserInvitation:
    """An account with its one-time link and its token for programs; only hashes of both are stored."""

    person: UserAccount
    link: str
    token: str


def open_user_accounts(home: Home) -> UserAccountStore:
    """Return the accounts of the home's shared database."""
    return UserAccountStore(sql.get_engine_for_user(home.shared, "", is_admin=True), home.settings, home.clock)


def has_other_approver(home: Home) -> bool:
    """Whether another user could approve; the home's owner counts besides the accounts."""
    people = open_user_accounts(home).list_accounts()
    return any(one.name == home.settings.user or one.role.is_at_least(UserRole.REVIEWER) for one in people)


@dataclass(frozen=True, kw_only=True, slots=True)
class _UserAccountsSnapshot:
    people: Mapping[str, Mapping[str, Any]]
    key: str
    # Hashes of the sessions that were signed out before they expired.
    ended: frozenset[str]


class UserAccountStore:
    """Stores user accounts, with hashes of their links and tokens.

    Reads see the changes of other hosts; while the database is away, they return the last known accounts.
    """

    def __init__(self, engine: sa.Engine, settings: Settings, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._clock = clock
        self._engine = engine
        self._news = get_change_feed(engine)
        self._last: _UserAccountsSnapshot | None = None
        self._away_until = 0.0
        self._noted: dict[str, datetime] = {}

    @property
    def may_be_outdated(self) -> bool:
        """Whether accounts may be missing here, because the database is away."""
        is_snapshot = bool(self._engine.get_execution_options().get("habitus_stands_in"))
        return is_snapshot or time.monotonic() < self._away_until

    def list_accounts(self) -> tuple[UserAccount, ...]:
        """Return all accounts, sorted by name."""
        return tuple(_parse_account(name, row) for name, row in sorted(self._read_snapshot().people.items()))

    def find_account_by_name(self, name: str) -> UserAccount | None:
        """Return the account with this name; None if there is none."""
        row = self._read_snapshot().people.get(name)
        return None if row is None else _parse_account(name, row)

    def add_or_reinvite_user(self, name: str, role: UserRole) -> UserInvitation:
        """Add a user, or give an existing one a new link, token and role."""
        if not _USER_NAME.fullmatch(name):
            raise Invalid(
                f"'{name}' is not a name to sign in with.", hint="Use lower-case letters, digits and hyphens."
            )
        link, token = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        row = {"name": name, "role": role.value, "link": _hash_token(link), "token": _hash_token(token)}
        with sql.write_transaction(self._engine) as connection:
            removed = signing_keys.delete().where(signing_keys.c.name == f"{_REMOVED_PREFIX}{name}")
            # An account of the provider comes back as the same person's, not as a namesake's.
            if subject := connection.execute(removed.returning(signing_keys.c.key)).scalar():
                row["subject"] = subject
            sql.upsert_rows(connection, sign_ins, [row], lambda new: {key: new[key] for key in row if key != "name"})
        return UserInvitation(person=_parse_account(name, row), link=link, token=token)

    def refuse_account_under_used_name(self, name: str) -> None:
        """Raise `Refused` for a new account under the name of somebody who works here without one."""
        with sql.read_transaction(self._engine) as connection:
            self._refuse_account_under_used_name(connection, name)

    def _refuse_account_under_used_name(self, connection: sa.Connection, name: str) -> None:
        # Their conversations, such as the owner's, would be listed for the account.
        is_active = connection.execute(sa.select(turns.c.user).where(turns.c.user == name).limit(1)).first()
        if is_active or name == (self._settings.owner or self._settings.user):
            raise Refused(f"'{name}' has worked here without an account.", hint="It needs another name: ask the owner.")

    @functools.cached_property
    def provider(self) -> IdentityProvider | None:
        """The OpenID Connect provider that people sign in with, if there is one."""
        return open_identity_provider(self._settings)

    def confirm_account_with_provider(self, person: UserAccount) -> UserAccount | None:
        """Return an account that may come in; of a provider's, what that says now and every few minutes.

        None if the provider no longer lets them in. While it doesn't answer, they may go on.
        """
        now = self._clock()
        if not person.is_provider_check_due(now):
            return person if person.provider_tokens or not person.subject else None
        if self.provider is None or not person.provider_tokens:
            return None
        try:
            return self._refresh_account_from_provider(self.provider, person, now)
        # Nobody can be shut out while the database is away either.
        except (ProviderUnavailable, StorageFailed) as error:
            log.warning("%s %s is let in unconfirmed.", error.message, person.name)
            return person

    def _refresh_account_from_provider(
        self, provider: IdentityProvider, person: UserAccount, now: datetime
    ) -> UserAccount | None:
        of_subject = sign_ins.c.subject == person.subject
        claim = of_subject & (sign_ins.c.checked_on == person.checked_on)
        with sql.write_transaction(self._engine) as connection:
            until = now - _CHECK_INTERVAL + _CHECK_TIMEOUT
            if connection.execute(sign_ins.update().where(claim).values(checked_on=until)).rowcount == 0:
                # Another request asks, and the others go on meanwhile.
                return person
        try:
            return self.admit_account_from_provider(provider.fetch_account(person.provider_tokens))
        except Refused as error:
            log.info("%s is no longer let in: %s", person.name, error.message)
            with sql.write_transaction(self._engine) as connection:
                connection.execute(sign_ins.update().where(of_subject).values(provider_tokens=""))
            return None

    def admit_account_from_provider(self, found: ProviderAccount) -> UserAccount:
        """Return the account of a person whom a provider has signed in, added or updated.

        Raises `Refused` if an admin removed them, or if the name belongs to somebody else.
        """
        role = UserRole[found.access.name].value
        known = {"role": role, "provider_tokens": found.tokens, "checked_on": self._clock()}
        with sql.write_transaction(self._engine, lock="people") as connection:
            of_subject = sign_ins.c.subject == found.subject
            if connection.execute(sign_ins.update().where(of_subject).values(known)).rowcount == 0:
                self._require_new_account_allowed(connection, found)
                new = {"name": found.name, "subject": found.subject, "link": "", "token": secrets.token_hex(32)}
                connection.execute(sign_ins.insert().values(known | new))
            row = connection.execute(sa.select(sign_ins).where(of_subject)).mappings().one()
        return _parse_account(row["name"], dict(row))

    def _require_new_account_allowed(self, connection: sa.Connection, found: ProviderAccount) -> None:
        if not _USER_NAME.fullmatch(found.name):
            raise Refused(f"'{found.name}' is not a name to sign in with.", hint="An admin sets oidc.name_claim.")
        if connection.execute(sa.select(signing_keys.c.name).where(signing_keys.c.key == found.subject)).first():
            hint = f"Ask an admin: 'habitus users add {found.name}' lets you in again."
            raise Refused("An admin has removed you.", hint=hint)
        if connection.execute(sa.select(sign_ins.c.name).where(sign_ins.c.name == found.name)).first():
            hint = f"Ask an admin to remove the other account: 'habitus users remove {found.name}'."
            raise Refused(f"'{found.name}' is somebody else here.", hint=hint)
        self._refuse_account_under_used_name(connection, found.name)

    def record_activity(self, person: UserAccount, now: datetime) -> None:
        """Record that a user is active, at most every few minutes."""
        last = self._noted.get(person.name) or person.seen_on
        if last is not None and now - last < _SEEN_INTERVAL:
            return
        self._noted[person.name] = now
        with suppress(StorageFailed), sql.write_transaction(self._engine) as connection:
            connection.execute(sign_ins.update().where(sign_ins.c.name == person.name).values(seen_on=now))

    def erase_account_and_removal_record(self, name: str) -> None:
        """Erase an account, and that it was removed."""
        with sql.write_transaction(self._engine) as connection:
            connection.execute(sign_ins.delete().where(sign_ins.c.name == name))
            connection.execute(signing_keys.delete().where(signing_keys.c.name == f"{_REMOVED_PREFIX}{name}"))

    def remove_and_bar_account(self, name: str) -> None:
        """Remove an account; from the next request on, every host refuses it."""
        with sql.write_transaction(self._engine) as connection:
            gone = connection.execute(sign_ins.delete().where(sign_ins.c.name == name).returning(sign_ins.c.subject))
            subjects = gone.scalars().all()
            # So that the provider doesn't bring them back.
            barred = [{"name": f"{_REMOVED_PREFIX}{name}", "key": subject} for subject in subjects if subject]
            sql.upsert_rows(connection, signing_keys, barred, lambda new: {"key": new["key"]})
        if not subjects:
            known = self._read_snapshot().people
            raise NotFound(f"'{name}' can't sign in.", hint=did_you_mean(name, known) or "See 'habitus users list'.")

    def end_session(self, person: UserAccount, session: str, until: datetime, now: datetime) -> None:
        """Refuse a session of this person on every host, from the next request until it expires."""
        row = {"name": f"{_ENDED_PREFIX}{_hash_token(session)}", "key": f"{until.timestamp():015.0f}"}
        is_expired = signing_keys.c.name.startswith(_ENDED_PREFIX) & (signing_keys.c.key < f"{now.timestamp():015.0f}")
        with sql.write_transaction(self._engine, durable=True) as connection:
            connection.execute(signing_keys.delete().where(is_expired))
            sql.insert_missing_rows(connection, signing_keys, [row])
            # All hosts cache both tables, and are notified of changes to this one.
            connection.execute(sign_ins.update().where(sign_ins.c.name == person.name).values(seen_on=now))

    def is_session_ended(self, session: str) -> bool:
        """Whether the session was signed out."""
        return _hash_token(session) in self._read_snapshot().ended

    def redeem_sign_in_link(self, link: str) -> UserAccount | None:
        """Return the user of a one-time link and invalidate it; None if it is unknown or was used."""
        wanted = _hash_token(link)
        name = next((name for name, row in self._read_snapshot().people.items() if row["link"] == wanted), "")
        if not name:
            return None
        with sql.write_transaction(self._engine) as connection:
            use = sign_ins.update().where(sign_ins.c.name == name, sign_ins.c.link == wanted).values(link="")
            # Two requests may bring the same link at once; only one of them updates the row.
            is_first = connection.execute(use).rowcount > 0
        return self.find_account_by_name(name) if is_first else None

    def create_first_admin_link(self, now: datetime) -> str:
        """Return the one-time link by which the first user signs in, an admin named 'admin'.

        It lasts 15 minutes. Empty if there is a user, or if another process made one that is still valid.
        """
        link = secrets.token_urlsafe(24)
        until = int((now + FIRST_LINK_TTL).timestamp())
        row = {"name": _FIRST_LINK_NAME, "key": f"{until} {_hash_token(link)}"}
        with sql.write_transaction(self._engine, durable=True, lock="people") as connection:
            if connection.execute(sa.select(sign_ins.c.name).limit(1)).first():
                return ""
            if _read_first_link_expiry_and_hash(connection)[0] > now.timestamp():
                return ""
            sql.upsert_rows(connection, signing_keys, [row], lambda new: {"key": new["key"]})
        return link

    def redeem_first_admin_link(self, link: str, now: datetime) -> UserAccount | None:
        """Add the first user for an unused link; None if it is unknown, expired, or there is a user meanwhile."""
        with sql.write_transaction(self._engine, durable=True, lock="people") as connection:
            until, hashed = _read_first_link_expiry_and_hash(connection)
            is_right = secrets.compare_digest(hashed, _hash_token(link)) and until > now.timestamp()
            if not is_right or connection.execute(sa.select(sign_ins.c.name).limit(1)).first():
                return None
            connection.execute(signing_keys.delete().where(signing_keys.c.name == _FIRST_LINK_NAME))
            person = self.add_or_reinvite_user(FIRST_USER, UserRole.ADMIN).person
            # Its link was never shown to anybody.
            connection.execute(sign_ins.update().where(sign_ins.c.name == FIRST_USER).values(link=""))
        return person

    def find_account_by_token(self, token: str) -> UserAccount | None:
        """Return the account with this token, if it may come in; None if it is unknown."""
        wanted = _hash_token(token)
        known = self._read_snapshot().people.items()
        # Compared in constant time, so response times tell nothing about a token.
        found = next(
            (_parse_account(name, row) for name, row in known if secrets.compare_digest(row["token"], wanted)), None
        )
        return found and self.confirm_account_with_provider(found)

    def get_or_create_signing_key(self) -> bytes:
        """Return the key that all hosts sign with, creating it if needed; empty if the database can't be written.

        Raises `DatabaseUnavailable` if the database is away and the key is not known yet.
        """
        try:
            known = self._read_snapshot()
            if not known.key:
                with sql.write_transaction(self._engine) as connection:
                    made = {"name": _SIGNING_KEY_NAME, "key": secrets.token_hex(32)}
                    sql.insert_missing_rows(connection, signing_keys, [made])
                known = self._query_snapshot()
            return bytes.fromhex(known.key)
        except DatabaseUnavailable:
            raise
        except StorageFailed:
            return b""

    def _read_snapshot(self) -> _UserAccountsSnapshot:
        if self._last is not None and time.monotonic() < self._away_until:
            return self._last
        try:
            self._last = self._news.fetch_cached(ChangeTopic.PEOPLE, self._query_snapshot)
        except DatabaseUnavailable:
            if self._last is None:
                raise
            self._away_until = time.monotonic() + _RETRY_S
        return self._last

    def _query_snapshot(self) -> _UserAccountsSnapshot:
        with sql.read_transaction(self._engine) as connection:
            rows = connection.execute(sa.select(sign_ins)).mappings().all()
            is_read = (signing_keys.c.name == _SIGNING_KEY_NAME) | signing_keys.c.name.startswith(_ENDED_PREFIX)
            keys = {row.name: row.key for row in connection.execute(sa.select(signing_keys).where(is_read))}
        return _UserAccountsSnapshot(
            people={row["name"]: dict(row) for row in rows},
            key=keys.pop(_SIGNING_KEY_NAME, ""),
            ended=frozenset(name.removeprefix(_ENDED_PREFIX) for name in keys),
        )


def _read_first_link_expiry_and_hash(connection: sa.Connection) -> tuple[int, str]:
    """Return until when the link of the first user is valid, and its hash."""
    query = sa.select(signing_keys.c.key).where(signing_keys.c.name == _FIRST_LINK_NAME)
    until, _, hashed = (connection.execute(query).scalar() or "0 ").partition(" ")
    return int(until), hashed


def _parse_account(name: str, kept: Mapping[str, Any]) -> UserAccount:
    return UserAccount(
        name=name,
        role=UserRole(kept["role"]),
        key=_hash_token(kept["token"])[:16],
        seen_on=kept.get("seen_on"),
        subject=kept.get("subject") or "",
        provider_tokens=kept.get("provider_tokens") or "",
        checked_on=kept.get("checked_on"),
    )


def _hash_token(word: str) -> str:
    """Hash a random token; with 24 random bytes, neither salt nor a slow hash is needed."""
    return hashlib.sha256(word.encode("utf-8", "replace")).hexdigest()
