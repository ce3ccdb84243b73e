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

from habitus import sql
from habitus.app import home_directory
from habitus.app.home import (
    DATABASE_AWAY,
    Clock,
    Home,
    get_own_name_among_sharing_hosts,
    refuse_if_read_only,
    refuse_non_admin_on_shared_database,
    utc_now,
)
from habitus.app.library.content import SCANS_FILE, ScanCache, describe_near_duplicates
from habitus.app.library.layers import open_library
from habitus.app.operating.erasure_records import list_erasure_records_missing_from_databases
from habitus.app.review.notifying import ReviewWebhookNotifier
from habitus.errors import DatabaseUnavailable
from habitus.pause import LearningPauseSwitch
from habitus.redact import Redactor, list_values_of_secret_variables
from habitus.sandbox.credentials.vault import open_vault
from habitus.settings import Settings
from habitus.skills.choosing.project_words import list_project_words
from habitus.skills.choosing.skill_finder import ServerIndexUpdater, SkillFinder
from habitus.skills.layers.layer import USER_LAYER, find_project_root
from habitus.skills.review import Proposal, ProposalAction, ReviewQueue
from habitus.skills.sources.trust import TrustStore, has_callable_code

if TYPE_CHECKING:
    from habitus.journal.usage import UsageCountObserver
    from habitus.memory.cortex import Cortex
    from habitus.recipes.catalogue import RecipeCatalogue
    from habitus.search.postgres_index import PostgresSkillIndex
    from habitus.search.texts.embedding import Embedder
    from habitus.tools.service import ToolService

log = logging.getLogger(__name__)

HomeT = TypeVar("HomeT", bound=Home)


def open_home(settings: Settings | None = None, *, clock: Clock = utc_now, has_pages: bool = True) -> Home:
    """Open the home that the settings name, creating it if needed; `has_pages` writes memory to files as well."""
    return open_home_of_type(Home, settings, clock=clock, has_pages=has_pages)


def open_home_of_type(
    home_type: Callable[..., HomeT], settings: Settings | None, *, clock: Clock, has_pages: bool
) -> HomeT:
    """Open a home as an instance of `home_type`; everything opened so far is closed if a step fails."""
    settings = settings or home_directory.read_settings()
    there = home_directory.lock_home_or_copy_database(settings.home)
    with ExitStack() as failing:
        failing.callback(there.exit_stack.close)
        local = sql.open_engine_with_current_schema(sql.build_sqlite_url(there.writable_dir / home_directory.DATABASE))
        failing.callback(local.dispose)
        shared = _open_shared_or_local_database(settings, local)
        if not there.is_read_only:
            home_directory.restrict_home_permissions_to_owner(settings.home)
        home = home_type(
            settings,
            local=local,
            shared=shared,
            clock=clock,
            home_lock=there,
            wiring=_ConcreteHomeWiring(),
            has_pages=has_pages,
        )
        # A restored backup or another host may bring back data of a person who was erased.
        if missing := list_erasure_records_missing_from_databases(home):
            # Loads every table there is, for a rare case.
            from habitus.app.operating.erasure import erase_users_again_after_restore

            log.info("Erasing users again that a backup or another host brought back: %d.", len(missing))
            erase_users_again_after_restore(home, missing)
        if shared is not local:
            # Only homes with a shared database pay for this import.
            from habitus.app.sharing.approvals import apply_approvals_and_publish_proposals

            apply_approvals_and_publish_proposals(home)
        # From here on, the home itself closes them.
        failing.pop_all()
        return home


def _open_shared_or_local_database(settings: Settings, local: sa.Engine) -> sa.Engine:
    """Open the database that hosts share, or return the home's own if there is none."""
    if not settings.database and not settings.workspace:
        return local
    # Only homes with a shared database pay for this import.
    from habitus.app.sharing.offline_snapshot import open_shared_database_or_snapshot

    return open_shared_database_or_snapshot(settings, local)


class _ConcreteHomeWiring:
    """Builds parts from concrete classes; heavy modules are imported on first use."""

    def wire_parts(self, home: Home) -> None:
        """Give a home its parts, in the order of their dependencies."""
        settings, clock = home.settings, home.clock
        home.pause = LearningPauseSwitch(home.shared, clock)
        home.scan_cache = ScanCache(home.writable_dir / SCANS_FILE)
        home.trust = TrustStore(home.local, clock=clock, scan=home.scan_tree)
        home.approvals = TrustStore(home.shared, clock=clock, scan=home.scan_tree)
        home.skills = open_library(home)
        home.vault = open_vault(settings.home, os.environ)
        home.redactor = Redactor(
            list_values_of_secret_variables(os.environ), kept=home.vault.list_known_values_to_redact
        )
        home.finder = self._build_skill_finder(home)
        home.notifier = ReviewWebhookNotifier(settings.notify_url)
        home.review = self._build_review_queue(home)

    def _build_skill_finder(self, home: Home) -> SkillFinder:
        """Build the finder; its index is local, because it covers the directories of this machine."""
        return SkillFinder(
            home.skills,
            home.local,
            partial(home_directory.open_search_index, home.settings, home.local, folder=_get_skill_index_dir(home)),
            redact=home.redact,
            shared=_build_postgres_index_updater(home.settings, home.shared),
            project=partial(list_project_words, find_project_root(home.settings.cwd))
            if home.host.files.is_granted
            else tuple,
        )

    def _build_review_queue(self, home: Home) -> ReviewQueue:
        def take_tasks(proposal: Proposal) -> None:
            if proposal.change.action is ProposalAction.TASKS:
                # Loads the checks, which only approved tasks need.
                from habitus.app.tasks.reviewing import save_approved_tasks_as_reviewed

                save_approved_tasks_as_reviewed(home, proposal)

        def compare(proposal: Proposal) -> None:
            if home.settings.evidence.compare_versions and "improve" in proposal.change.details:
                # Loads the statistics, which only an approved improvement needs.
                from habitus.app.learning.comparing import start_comparison_after_approval

                start_comparison_after_approval(home, proposal)

        def carry(number: int) -> int | None:
            # Only approving needs it.
            from habitus.app.sharing.approvals import apply_approved_change

            return apply_approved_change(home, number)

        def needs_somebody_else() -> bool:
            # Only approving needs it.
            from habitus.app.operating.people import has_other_approver

            return home.settings.review.somebody_else and has_other_approver(home)

        def approve_code(proposal: Proposal) -> None:
            if has_callable_code(proposal.change.tree):
                home.tools.approve_code_of_accepted_proposal(proposal)

        review = ReviewQueue(
            home.skills,
            home.shared,
            local=home.local,
            host=get_own_name_among_sharing_hosts(home),
            authorize_other_host=partial(
                refuse_non_admin_on_shared_database, home, "decide about directories of another host"
            ),
            apply_on_host=carry,
            clock=home.clock,
            auto=home.settings.review.auto,
            user=home.settings.user,
            requires_other_approver=needs_somebody_else,
            find_duplicates=partial(describe_near_duplicates, home.finder),
            redact=home.redact,
            notify=home.notifier.notify_proposal,
        )
        review.add_approval_listener(approve_code)
        review.add_approval_listener(take_tasks)
        review.add_approval_listener(compare)
        return review

    def open_memory(self, home: Home, user: str, all_users: bool) -> Cortex:
        # Loads the rules of memory's gate.
        from habitus.memory.cortex import Cortex
        from habitus.memory.page_files import MemoryPageFiles
        from habitus.memory.store import EngramStore

        settings = home.settings
        files = MemoryPageFiles(settings.home / "memory", home.local, clock=home.clock, is_durable=settings.durable)
        return Cortex(
            EngramStore(home.shared),
            partial(home_directory.open_search_index, settings, home.shared, "memory"),
            redactor=home.redactor,
            clock=home.clock,
            pause=home.pause,
            mode=settings.memory,
            is_shared=home.shared is not home.local,
            user=user or settings.user,
            all_users=all_users,
            may_remove_shared=settings.is_admin or settings.database is None,
            files=files if home.has_pages and not home.is_read_only and user in ("", settings.user) else None,
            check_writable=partial(refuse_if_read_only, home),
            retention=settings.retention,
            screening=home.screening,
            on_pending=home.notifier.notify_lesson,
        )

    def open_tools(self, home: Home) -> ToolService:
        # Loads the sandbox, which only code needs.
        from habitus.app.conversations.running_code import open_tools

        return open_tools(home)

    def open_recipes(self, home: Home) -> RecipeCatalogue:
        from habitus.app.library.recipes import open_recipe_catalogue

        return open_recipe_catalogue(home)

    def open_usage_observer(self, home: Home) -> UsageCountObserver:
        from habitus.app.learning.usage import UsageCounterUpdater

        return UsageCounterUpdater(home)


def _get_skill_index_dir(home: Home) -> Path | None:
    """Return the folder for the skill index file; None in a read-only home."""
    return None if home.is_read_only else home.settings.home / "cache"


def _build_postgres_index_updater(settings: Settings, shared: sa.Engine) -> ServerIndexUpdater | None:
    """Return the server-side index; None unless the database is PostgreSQL, the only one that can search."""
    if not settings.database or sa.make_url(settings.database).get_backend_name() != "postgresql":
        return None

    def open_server(embedder: Embedder) -> PostgresSkillIndex:
        # Imports numpy, which only a search needs.
        from habitus.search.postgres_index import PostgresSkillIndex

        # The offline snapshot is SQLite and has no such index.
        if shared.dialect.name != "postgresql":
            raise DatabaseUnavailable(f"{DATABASE_AWAY} So is the index of its skills.", hint="Retry when it is back.")
        return PostgresSkillIndex(shared, embedder)

    return ServerIndexUpdater(USER_LAYER, memory_limit=settings.search.server_above, open_server=open_server)
