"""Home: the parts that use cases work with, opened on one directory and one database. It knows no use case."""

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
    """Return the current time in UTC."""
    return datetime.now(UTC)


class Wiring(Protocol):
    """Builds the larger parts of a home; most of them on first use."""

    def furnish(self, home: Home) -> None: ...
    def importer(self, home: Home) -> Importer: ...
    def memory(self, home: Home, user: str, all_users: bool) -> Cortex: ...
    def tools(self, home: Home) -> Tools: ...
    def recipes(self, home: Home) -> RecipeCatalogue: ...
    def scratchpads(self, home: Home) -> Scratchpads: ...


class Home:
    """Settings, databases, library, memory and journal of one user. Open one with `wiring.open_home`, and close it."""

    pause: Pause
    scans: KeptScans
    trust: Trust
    # Stored with the skills, so code that a person approved on one host may run on every host.
    approvals: Trust
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
        # Stores of directories, shared by all users of a process: each directory is scanned once.
        self.stores = {} if stores is None else stores
        # A derived home uses the connections of another one, and must not close them.
        self._is_derived = is_derived
        # Background work that must end before the home is closed.
        self.ending = ExitStack()
        # Whether memory is also written to files of this home.
        self.has_pages = has_pages and not there.is_read_only
        self.is_read_only = there.is_read_only
        # Data about this machine's directories.
        self.local = local
        # Data that all hosts share; the same database if there is only one host.
        self.shared = shared
        self.there = there
        # A directory for temporary data; not the home itself if that is read-only.
        self.place = there.place
        self._wiring = wiring
        wiring.furnish(self)

    def close(self) -> None:
        """Close databases and background work, in the reverse order of opening."""
        # Each part is closed even if another one fails.
        with ExitStack() as closing:
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
        """Return the same home for another user, over the same connections.

        The name is used as claimed unless a role is given. Closing the result ends only what was started with it.
        """
        if name == self.settings.user and is_admin is None:
            return self
        # Imported here, because most processes never act for another user.
        from habitus import sql

        theirs = self.settings.as_user(name, is_admin=is_admin)
        shared = sql.acting_as(self.shared, name, is_admin=theirs.is_admin)
        # Another user's memory must not be written to this home's files.
        return self._derive(theirs, shared, has_pages=False)

    def as_nobody(self) -> Self:
        """Return the same home for Habitus itself, with access to every row."""
        from habitus import sql

        shared = sql.acting_as(self.shared, "", is_admin=True)
        return self if shared is self.shared else self._derive(self.settings, shared, has_pages=True)

    def seen_from(self, cwd: Path) -> Self:
        """Return the same home for another working directory, over the same connections."""
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
        """Return the values for placeholders in skills."""
        return {"BOT_NAME": self.settings.bot_name, "BOT_DIR": str(self.settings.home), "USER": self.settings.user}

    @property
    def project(self) -> str:
        """Return the project of the working directory, under which its lessons are stored."""
        return str(project_root(self.settings.cwd))

    def person(self, reason: str = "", *, user: str = "") -> Author:
        """Return this process's user, or the user of a session, as the author of a change."""
        name = user if user not in ("", self.settings.user) else self.settings.signature
        return Author(actor=Actor.USER, name=name, reason=reason, change=secrets.token_hex(4))

    def user(self, name: str | None = None) -> User:
        """Return a user with the role the settings give them, by default the user of this home."""
        # Loads the selection rules.
        from habitus.skills.choosing.selection import User

        known = self.settings.model_copy(update={"user": name or self.settings.user})
        return User(name=known.user, is_admin=known.is_admin)

    def gates(self, user: User) -> GateContext:
        """Return the gates that decide which skills a user sees, independent of this process's user."""
        known = self.settings.model_copy(update={"user": user.name})
        return GateContext(
            disabled=frozenset(names.canonical(name) for name in known.switched_off),
            is_admin=user.is_admin,
            features=frozenset(known.experimental.features),
            layers=frozenset(known.layers),
        )

    @functools.cached_property
    def importer(self) -> Importer:
        """The importer for skills from other sources."""
        return self._wiring.importer(self)

    @functools.cached_property
    def journal(self) -> Journal:
        """The recorded turns, their offers and their outcomes."""
        # Imported on first use, like all parts below: start-up time is a feature.
        from habitus.journal.journal import Journal

        kept_for = timedelta(days=self.settings.retention.turn_days)
        return Journal(self.shared, clock=self.clock, redactor=self.redactor, kept_for=kept_for)

    @functools.cached_property
    def spending(self) -> Spending:
        """The tokens that learning has spent, and may spend today."""
        # Loads the learners.
        from habitus.learning.budget import Spending

        return Spending(self.shared, clock=self.clock, cap=self.settings.learning_tokens)

    @functools.cached_property
    def models(self) -> Models:
        """The models of the settings, opened on first use."""
        # Loads a provider's library.
        from habitus.app.conversations.models import models

        return models(self.settings, os.environ)

    @functools.cached_property
    def memory(self) -> Cortex:
        """Facts, rules and lessons of this user, opened on first use."""
        return self.open_memory()

    def open_memory(self, *, user: str = "", all_users: bool = False) -> Cortex:
        """Open another view of the same memory: for another thread, another user, or an admin."""
        return self._wiring.memory(self, user, all_users)

    @functools.cached_property
    def machine(self) -> Machine:
        """The protections that this machine offers to sandboxes, probed once."""
        # Loads the sandbox.
        from habitus.sandbox.machine import probe

        return probe()

    @functools.cached_property
    def tools(self) -> Tools:
        """The code stages of skills. Create and run them inside `async with home.tools`."""
        return self._wiring.tools(self)

    @functools.cached_property
    def recipes(self) -> RecipeCatalogue:
        """The recipes of skills, their results so far, and which of them may run."""
        return self._wiring.recipes(self)

    def scratchpads(self) -> Scratchpads:
        """Open the scratchpads of this home, on the machine that the settings name."""
        return self._wiring.scratchpads(self)

    @functools.cached_property
    def evidence(self) -> Evidence:
        """The offers and outcomes so far, and their statistics."""
        # Loads the statistics.
        from habitus.app.learning.evidence import Evidence

        return Evidence(
            journal=self.journal,
            clock=self.clock,
            share=self.settings.evidence.withhold,
            refuse_changes=self.refuse_if_read_only,
        )

    @functools.cached_property
    def screening(self) -> Policy:
        """The screening policy of this home's screening.toml."""
        from habitus.screening.findings import read_policy

        return read_policy(self.settings.home)

    def scan(self, tree: Tree) -> list[str]:
        """Return the findings a person must see before foreign content is used, one line each."""
        return self.scans.high_findings(tree, self.screening)

    def redact(self, text: str) -> str:
        """Return the text with secrets redacted."""
        return self.redactor.redact(text).text

    def reading(self) -> AbstractContextManager[object]:
        """Open one transaction for all reads inside, if there is only one database."""
        from habitus import sql

        # With two databases a thread could hold two connections, and many threads exhaust the pool.
        return sql.reading(self.local) if self.local is self.shared else nullcontext()

    def reading_of(self, *layers: str) -> AbstractContextManager[object]:
        """Open one transaction for all reads of these layers and their usage, if one database holds both."""
        from habitus import sql

        return sql.reading(self.shared) if all(map(self.is_shared, layers)) else nullcontext()

    def is_shared(self, layer: str) -> bool:
        """Whether a layer's skills are stored in the database that counts their uses."""
        return self.skills.layer(layer).store.is_in(self.shared)

    def waiting_count(self) -> int:
        """Return how many changes and lessons are pending review."""
        from habitus import sql
        from habitus.memory.tables import waiting_lessons
        from habitus.sql.notifications import Topic, news_of

        with self.reading():
            ask = functools.partial(waiting_lessons, self.shared, self.settings.user)
            of = ("waiting", self.settings.user, sql.acts_as(self.shared))
            return self.review.waiting_count() + news_of(self.shared).fresh(Topic.LESSONS, ask, of=of)

    @property
    def is_stand_in(self) -> bool:
        """Whether the shared database is away and the offline snapshot is used instead."""
        from habitus.app.home_directory import STAND_IN

        copy = str(self.settings.home / STAND_IN)
        return self.shared is not self.local and self.shared.url.database == copy

    def refuse_if_read_only(self) -> None:
        """Raise if the home can't be written: changes to its copied database would be lost."""
        if self.is_read_only:
            from habitus.app.home_directory import refuse_to_write

            refuse_to_write(self.settings.home)

    def refuse_unless_kept(self) -> None:
        """Raise if a change could not be stored, because the home is read-only or the database is away."""
        self.refuse_if_read_only()
        if self.is_stand_in:
            raise DatabaseAway(f"{AWAY} Nothing can be changed until it is back.", hint="See 'habitus doctor'.")

    def allow(self, author: Author) -> None:
        """Raise if a change by this author could not be stored, or if automatic changes are paused."""
        self.refuse_unless_kept()
        if author.is_automatic:
            self.pause.refuse_if_paused()


def whose(settings: Settings, all_users: bool, user: str = "") -> str | None:
    """Return the user to filter by, or None for all users. Raises `Refused` if a non-admin asks for others."""
    if (all_users or user not in ("", settings.user)) and not settings.is_admin:
        raise Refused("Only an admin sees what is other users'.", hint="Leave --all-users and --user out to see yours.")
    return None if all_users else user or settings.user


def refuse_unless_admin(home: Home, what: str, author: Author | None = None) -> None:
    """Raise `Refused` if a non-admin changes something for everyone on a shared database.

    `author` may be the user of a session.
    """
    name = None if author is None or author.name == home.settings.signature else author.name
    if home.settings.database and not home.user(name).is_admin:
        raise Refused(f"Only an admin may {what} on a shared database.", hint="Ask one, or propose it.")


def memory_of(home: Home, all_users: bool) -> Cortex:
    """Return the user's memory, or that of all users for an admin."""
    return home.memory if whose(home.settings, all_users) is not None else home.open_memory(all_users=True)
