"""Home: the parts that everything works with, opened on one directory and one database. No use case is known here."""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from habitus.errors import DatabaseAway, Refused
from habitus.skills import names
from habitus.skills.layers.layer import project_root
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Actor, Author

if TYPE_CHECKING:
    import sqlalchemy as sa

    from habitus.app import home_directory
    from habitus.app.learning.evidence import Evidence
    from habitus.app.library.content import KeptScans
    from habitus.app.review.notifying import Notifier
    from habitus.files import Tree
    from habitus.journal.journal import Journal
    from habitus.learning.budget import Spending
    from habitus.llm.model import Models
    from habitus.memory.memory import Cortex
    from habitus.pause import Pause
    from habitus.recipes.catalogue import RecipeCatalogue
    from habitus.redact import Redactor
    from habitus.sandbox.credentials.vault import Vault
    from habitus.sandbox.machine import Machine
    from habitus.sandbox.scratchpads import Scratchpads
    from habitus.screening.findings import Policy
    from habitus.settings import Settings
    from habitus.skills.choosing.finding import Finder
    from habitus.skills.choosing.selection import User
    from habitus.skills.library import Library
    from habitus.skills.review import Review
    from habitus.skills.sources.importing import Importer
    from habitus.skills.sources.trust import Trust
    from habitus.skills.stores.versioned import SkillStore
    from habitus.tools.tools import Tools


AWAY = "The database is away."
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


class Wiring(Protocol):
    """Puts the larger parts of a home together; some are opened only when they are first asked for."""

    def furnish(self, home: Home) -> None: ...
    def importer(self, home: Home) -> Importer: ...
    def memory(self, home: Home, user: str, all_users: bool) -> Cortex: ...
    def tools(self, home: Home) -> Tools: ...
    def recipes(self, home: Home) -> RecipeCatalogue: ...
    def scratchpads(self, home: Home) -> Scratchpads: ...


class Home:
    """Settings, databases, library, memory and journal of one user. `wiring.open_home` opens one; close it."""

    pause: Pause
    scans: KeptScans
    trust: Trust
    approvals: Trust  # kept with the skills they are about: code that one host's person approved, every host may run
    skills: Library
    vault: Vault
    redactor: Redactor
    finder: Finder
    notifier: Notifier
    review: Review

    def __init__(
        self,
        settings: Settings,
        *,
        local: sa.Engine,
        shared: sa.Engine,
        clock: Clock,
        there: home_directory.Entered,
        wiring: Wiring,
        has_pages: bool = True,
        is_derived: bool = False,
        stores: dict[Hashable, SkillStore] | None = None,
    ) -> None:
        self.settings, self.clock = settings, clock
        self.stores = {} if stores is None else stores  # of directories: one look at each is for all users
        self._is_derived = is_derived  # from one that is open, whose connections it uses
        self.ending = ExitStack()  # what goes on beside it, and ends before it is closed
        self.has_pages = has_pages and not there.is_read_only  # whether memory is shown in files of this home
        self.is_read_only = there.is_read_only
        self.local = local  # what is known of this machine's directories
        self.shared = shared  # what every host shares; the same database where there is only one host
        self.there = there
        self.place = there.place  # where what is not kept may be written
        self._wiring = wiring
        wiring.furnish(self)

    def close(self) -> None:
        with ExitStack() as closing:  # one that fails keeps nothing else open
            if not self._is_derived:
                closing.callback(self.there.leaving.close)
                closing.callback(self.shared.dispose)
                closing.callback(self.local.dispose)
            closing.callback(self.notifier.close)
            closing.callback(self.scans.save)
            closing.callback(self.ending.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def as_user(self, name: str, *, is_admin: bool | None = None) -> Self:
        """The same home and connections in another user's name, which is borne as claimed unless their role is given;
        none of their memory comes into the files of this home. Closing it ends what was begun with it, and no more."""
        if name == self.settings.user and is_admin is None:
            return self
        from habitus import sql  # the database's toolkit, for those who use it

        theirs = self.settings.as_user(name, is_admin=is_admin)
        shared = sql.acting_as(self.shared, name, is_admin=theirs.is_admin)
        return self._derive(theirs, shared, has_pages=False)

    def as_nobody(self) -> Self:
        """The same home and connections in nobody's name, which reaches every row: for what Habitus has decided it may
        do."""
        from habitus import sql

        shared = sql.acting_as(self.shared, "", is_admin=True)
        return self if shared is self.shared else self._derive(self.settings, shared, has_pages=True)

    def seen_from(self, cwd: Path) -> Self:
        """The same home and connections as seen from another working directory."""
        return self._derive(self.settings.model_copy(update={"cwd": cwd}), self.shared, has_pages=False)

    def _derive(self, settings: Settings, shared: sa.Engine, *, has_pages: bool) -> Self:
        return type(self)(
            settings,
            local=self.local,
            shared=shared,
            clock=self.clock,
            there=self.there,
            wiring=self._wiring,
            has_pages=has_pages,
            is_derived=True,
            stores=self.stores,
        )

    @property
    def fill(self) -> dict[str, str]:
        """The values of placeholders in skills."""
        return {"BOT_NAME": self.settings.bot_name, "BOT_DIR": str(self.settings.home), "USER": self.settings.user}

    @property
    def project(self) -> str:
        """Which project the working directory belongs to: what its lessons are kept under."""
        return str(project_root(self.settings.cwd))

    def person(self, reason: str = "", *, user: str = "") -> Author:
        """The person at this process, or the user of a session, as the author of a change."""
        name = user if user not in ("", self.settings.user) else self.settings.signature
        return Author(actor=Actor.USER, name=name, reason=reason, change=secrets.token_hex(4))

    def user(self, name: str | None = None) -> User:
        """Somebody as the settings know them."""
        from habitus.skills.choosing.selection import User  # its rules, for those who choose

        known = self.settings.model_copy(update={"user": name or self.settings.user})
        return User(name=known.user, is_admin=known.is_admin)

    def gates(self, user: User) -> GateContext:
        """The skills that are switched off or closed for somebody, whoever this process belongs to."""
        known = self.settings.model_copy(update={"user": user.name})
        return GateContext(
            disabled=frozenset(names.canonical(name) for name in known.switched_off),
            is_admin=user.is_admin,
            features=frozenset(known.experimental.features),
            layers=frozenset(known.layers),
        )

    @functools.cached_property
    def importer(self) -> Importer:
        """Takes skills of other people into the library."""
        return self._wiring.importer(self)

    @functools.cached_property
    def journal(self) -> Journal:
        """The turns so far, with what was offered in them and how they went."""
        from habitus.journal.journal import Journal  # its records, for those who remember turns

        kept_for = timedelta(days=self.settings.retention.turn_days)
        return Journal(self.shared, clock=self.clock, redactor=self.redactor, kept_for=kept_for)

    @functools.cached_property
    def spending(self) -> Spending:
        """The tokens that learning has spent, and may spend today."""
        from habitus.learning.budget import Spending  # the learners, for those who learn

        return Spending(self.shared, clock=self.clock, cap=self.settings.learning_tokens)

    @functools.cached_property
    def models(self) -> Models:
        """The models that the settings name, opened when they are first asked."""
        from habitus.app.conversations.models import models  # a provider's library, for those who call a model

        return models(self.settings, os.environ)

    @functools.cached_property
    def memory(self) -> Cortex:
        """Facts, rules and lessons. Opened when it is first asked for."""
        return self.open_memory()

    def open_memory(self, *, user: str = "", all_users: bool = False) -> Cortex:
        """Another view of the same memory: for a thread of its own, for another user, for an admin."""
        return self._wiring.memory(self, user, all_users)

    @functools.cached_property
    def machine(self) -> Machine:
        """The protections that this machine can give a sandbox, found out by trying once."""
        from habitus.sandbox.machine import probe  # the sandbox is for those who run code

        return probe()

    @functools.cached_property
    def tools(self) -> Tools:
        """The code stages of the skills. Make and run them inside `async with home.tools`."""
        return self._wiring.tools(self)

    @functools.cached_property
    def recipes(self) -> RecipeCatalogue:
        """The recipes of the skills, how they fare, and which may run."""
        return self._wiring.recipes(self)

    def scratchpads(self) -> Scratchpads:
        """The scratchpads of this home, or of the machine that the settings name."""
        return self._wiring.scratchpads(self)

    @functools.cached_property
    def evidence(self) -> Evidence:
        """The offers and outcomes so far, and what they prove."""
        from habitus.app.learning.evidence import Evidence  # its arithmetic, for those who ask

        return Evidence(
            journal=self.journal,
            clock=self.clock,
            share=self.settings.evidence.withhold,
            refuse_changes=self.refuse_if_read_only,
        )

    @functools.cached_property
    def screening(self) -> Policy:
        """The rules that this home's screening.toml silences and holds."""
        from habitus.screening.findings import read_policy

        return read_policy(self.settings.home)

    def scan(self, tree: Tree) -> list[str]:
        """Findings that a person must see before content from outside is used, one line each."""
        return self.scans.high_findings(tree, self.screening)

    def redact(self, text: str) -> str:
        """The text without secrets, fit to be kept and shown."""
        return self.redactor.redact(text).text

    def reading(self) -> AbstractContextManager[object]:
        """One transaction for all that is read inside, where there is one database: nobody holds two connections."""
        from habitus import sql

        return sql.reading(self.local) if self.local is self.shared else nullcontext()

    def reading_of(self, *layers: str) -> AbstractContextManager[object]:
        """One transaction for all that is read inside of these layers and their use, where one database has both."""
        from habitus import sql

        return sql.reading(self.shared) if all(map(self.is_shared, layers)) else nullcontext()

    def is_shared(self, layer: str) -> bool:
        """Whether the skills of a layer are in the database that has their use."""
        return self.skills.layer(layer).store.is_in(self.shared)

    def waiting_count(self) -> int:
        """How many changes and lessons wait for a person."""
        from habitus import sql
        from habitus.memory.tables import waiting_lessons
        from habitus.sql.notifications import Topic, news_of

        with self.reading():
            ask = functools.partial(waiting_lessons, self.shared, self.settings.user)
            of = ("waiting", self.settings.user, sql.acts_as(self.shared))
            return self.review.waiting_count() + news_of(self.shared).fresh(Topic.LESSONS, ask, of=of)

    @property
    def is_stand_in(self) -> bool:
        """Whether the shared database is away, and a copy that is only read stands in for it."""
        from habitus.app.home_directory import STAND_IN

        copy = str(self.settings.home / STAND_IN)
        return self.shared is not self.local and self.shared.url.database == copy

    def refuse_if_read_only(self) -> None:
        """Refuse a change in the copy of a database, which would be gone with it."""
        if self.is_read_only:
            from habitus.app.home_directory import refuse_to_write

            refuse_to_write(self.settings.home)

    def refuse_unless_kept(self) -> None:
        """Refuse a change where it can't be kept and would be lost."""
        self.refuse_if_read_only()
        if self.is_stand_in:
            raise DatabaseAway(f"{AWAY} Nothing can be changed until it is back.", mend="See 'habitus doctor'.")

    def allow(self, author: Author) -> None:
        """Refuse a change that can't be kept, or that somebody has paused."""
        self.refuse_unless_kept()
        if author.is_automatic:
            self.pause.refuse_if_paused()


def whose(settings: Settings, all_users: bool, user: str = "") -> str | None:
    """The user to look for, who may be named; None is everybody."""
    if (all_users or user not in ("", settings.user)) and not settings.is_admin:
        raise Refused("Only an admin sees what is other users'.", mend="Leave --all-users and --user out to see yours.")
    return None if all_users else user or settings.user


def refuse_unless_admin(home: Home, what: str, author: Author | None = None) -> None:
    """Refuse a change for everybody on a shared database to all but admins; `author` may be the user of a session."""
    name = None if author is None or author.name == home.settings.signature else author.name
    if home.settings.database and not home.user(name).is_admin:
        raise Refused(f"Only an admin may {what} on a shared database.", mend="Ask one, or propose it.")


def memory_of(home: Home, all_users: bool) -> Cortex:
    """Memory with one's own lessons and those for all, or with everybody's."""
    return home.memory if whose(home.settings, all_users) is not None else home.open_memory(all_users=True)
