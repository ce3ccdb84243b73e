"""Wiring: open a home from its settings, and build its parts from concrete classes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import sqlalchemy as sa

from habitus import search, sql
from habitus.app import home_directory
from habitus.app.home import AWAY, Clock, Home, refuse_unless_admin, utc_now
from habitus.app.library.content import KeptScans, near_duplicates
from habitus.app.library.layers import open_library
from habitus.app.operating.tombstones import missing_tombstones
from habitus.app.review.notifying import Notifier
from habitus.errors import DatabaseAway
from habitus.pause import Pause
from habitus.redact import Redactor, secret_values
from habitus.sandbox.credentials.vault import open_vault
from habitus.settings import Settings
from habitus.skills.choosing.finding import Finder, SharedIndex
from habitus.skills.choosing.project import project_words
from habitus.skills.layers.layer import USER, project_root
from habitus.skills.review import Action, Proposal, Review
from habitus.skills.sources.trust import Trust, brings_code

if TYPE_CHECKING:
    from habitus.memory.memory import Cortex
    from habitus.recipes.catalogue import RecipeCatalogue
    from habitus.sandbox.scratchpads import Scratchpads
    from habitus.skills.sources.importing import Importer
    from habitus.tools.tools import Tools

log = logging.getLogger(__name__)

AnyHome = TypeVar("AnyHome", bound=Home)


def open_home(
    settings: Settings | None = None,
    *,
    clock: Clock = utc_now,
    has_pages: bool = True,
) -> Home:
    """Open the home that the settings name, creating it if needed; `has_pages` writes memory to files as well."""
    return open_home_as(Home, settings, clock=clock, has_pages=has_pages)


def open_home_as(kind: Callable[..., AnyHome], settings: Settings | None, *, clock: Clock, has_pages: bool) -> AnyHome:
    """Open a home as an instance of `home_type`; everything opened so far is closed if a step fails."""
    settings = settings or home_directory.read_settings()
    there = home_directory.enter(settings.home)
    with ExitStack() as failing:
        failing.callback(there.leaving.close)
        local = sql.open_engine(sql.sqlite_url(there.place / home_directory.DATABASE))
        failing.callback(local.dispose)
        shared = _open_shared(settings, local)
        if not there.is_read_only:
            home_directory.keep_private(settings.home)
        home = kind(
            settings, local=local, shared=shared, clock=clock, there=there, wiring=_Parts(), has_pages=has_pages
        )
        # A restored backup or another host may bring back data of a person who was erased.
        if missing := missing_tombstones(home):
            # Loads every table there is, for a rare case.
            from habitus.app.operating.forgetting import forget_again

            log.info("Forgetting again whom a backup or another host brought back: %d.", len(missing))
            forget_again(home, missing)
        if shared is not local:
            # Only homes with a shared database pay for this import.
            from habitus.app.sharing.approvals import catch_up

            catch_up(home)
        # From here on, the home itself closes them.
        failing.pop_all()
        return home


def _open_shared(settings: Settings, local: sa.Engine) -> sa.Engine:
    """Open the database that hosts share, or return the home's own if there is none."""
    if not settings.database and not settings.workspace:
        return local
    # Only homes with a shared database pay for this import.
    from habitus.app.sharing.offline_copy import open_shared

    return open_shared(settings, local)


class _Parts:
    """Builds parts from concrete classes; heavy modules are imported on first use."""

    def furnish(self, home: Home) -> None:
        """Give a home its parts, in the order of their dependencies."""
        settings, clock = home.settings, home.clock
        home.pause = Pause(home.shared, clock)
        home.scans = KeptScans(home.place / "cache" / "scans.json")
        home.trust = Trust(home.local, clock=clock, scan=home.scan)
        home.approvals = Trust(home.shared, clock=clock, scan=home.scan)
        home.skills = open_library(home)
        home.vault = open_vault(settings.home, os.environ)
        home.redactor = Redactor(secret_values(os.environ), kept=home.vault.known_values)
        home.finder = self._finder(home)
        home.notifier = Notifier(settings.notify_url)
        home.review = self._review(home)

    def _finder(self, home: Home) -> Finder:
        """Build the finder; its index is local, because it covers the directories of this machine."""
        return Finder(
            home.skills,
            home.local,
            partial(home_directory.open_index, home.settings, home.local, folder=_index_folder(home)),
            redacted=home.redact,
            shared=_shared_index(home.settings, home.shared),
            project=partial(project_words, project_root(home.settings.cwd)),
        )

    def _review(self, home: Home) -> Review:
        def take_tasks(proposal: Proposal) -> None:
            if proposal.change.action is Action.TASKS:
                # Loads the checks, which only approved tasks need.
                from habitus.app.tasks.storing import take_proposed

                take_proposed(home, proposal)

        def carry(number: int) -> int | None:
            # Only approving needs it.
            from habitus.app.sharing.approvals import carry_out

            return carry_out(home, number)

        def needs_somebody_else() -> bool:
            # Only approving needs it.
            from habitus.app.operating.people import is_team

            return home.settings.review.somebody_else and is_team(home)

        def approve_code(proposal: Proposal) -> None:
            if brings_code(proposal.change.tree):
                home.tools.on_approval(proposal)

        # Without other hosts, proposals need not say whose directory they change.
        is_alone = home.shared is home.local or home.is_read_only
        review = Review(
            home.skills,
            home.shared,
            local=home.local,
            host="" if is_alone else home_directory.host_of(home.settings.home),
            allow_elsewhere=partial(refuse_unless_admin, home, "decide about directories of another host"),
            carry=carry,
            clock=home.clock,
            auto=home.settings.review.auto,
            user=home.settings.user,
            needs_somebody_else=needs_somebody_else,
            duplicates=partial(near_duplicates, home.finder),
            redacted=home.redact,
            tell=home.notifier.proposal,
        )
        review.when_approved(approve_code)
        review.when_approved(take_tasks)
        return review

    def importer(self, home: Home) -> Importer:
        # Loads memory and every format, which only imports need.
        from habitus.app.library.updating import land_lesson
        from habitus.skills.sources.importing import Importer

        return Importer(
            home.skills,
            home.review,
            home.trust,
            home.shared,
            clock=home.clock,
            scan=home.scan,
            land=partial(land_lesson, home),
        )

    def memory(self, home: Home, user: str, all_users: bool) -> Cortex:
        # Loads the rules of memory's gate.
        from habitus.memory.memory import Cortex
        from habitus.memory.store import EngramStore
        from habitus.memory.views import ViewFiles

        settings = home.settings
        files = ViewFiles(
            settings.home / "memory",
            home.local,
            clock=home.clock,
            is_durable=settings.durable,
        )
        return Cortex(
            EngramStore(home.shared),
            partial(home_directory.open_index, settings, home.shared, "memory"),
            redactor=home.redactor,
            clock=home.clock,
            pause=home.pause,
            mode=settings.memory,
            is_shared=home.shared is not home.local,
            user=user or settings.user,
            all_users=all_users,
            may_remove_shared=settings.is_admin or settings.database is None,
            files=files if home.has_pages and not home.is_read_only and user in ("", settings.user) else None,
            allow=home.refuse_if_read_only,
            keep=settings.retention,
            screening=home.screening,
            tell=home.notifier.lesson,
        )

    def tools(self, home: Home) -> Tools:
        # Loads the sandbox, which only code needs.
        from habitus.app.conversations.running_code import open_tools

        return open_tools(home)

    def recipes(self, home: Home) -> RecipeCatalogue:
        from habitus.app.library.recipes import open_recipes

        return open_recipes(home)

    def scratchpads(self, home: Home) -> Scratchpads:
        from habitus.app.conversations.running_code import open_scratchpads

        return open_scratchpads(home, "pads")


def _index_folder(home: Home) -> Path | None:
    """Return the folder for the skill index file; None in a read-only home."""
    return None if home.is_read_only else home.settings.home / "cache"


def _shared_index(settings: Settings, shared: sa.Engine) -> SharedIndex | None:
    """Return the server-side index; None unless the database is PostgreSQL, the only one that can search."""
    if not settings.database or sa.make_url(settings.database).get_backend_name() != "postgresql":
        return None

    def open_server(embedder: search.Embedder) -> search.ServerIndex:
        # The offline snapshot is SQLite and has no such index.
        if shared.dialect.name != "postgresql":
            raise DatabaseAway(f"{AWAY} So is the index of its skills.", hint="Retry when it is back.")
        return search.ServerIndex(shared, embedder)

    return SharedIndex(USER, above=settings.search.server_above, open_server=open_server)
