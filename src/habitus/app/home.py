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

from habitus.app.host_access import make_host_permissions
from habitus.errors import DatabaseUnavailable, Refused
from habitus.skills.layers.layer import find_project_root
from habitus.skills.model import ActorKind, Author

if TYPE_CHECKING:
    import sqlalchemy as sa

    from habitus.app import home_directory
    from habitus.app.learning.evidence import EvidenceService
    from habitus.app.library.content import ScanCache
    from habitus.app.review.notifying import ReviewWebhookNotifier
    from habitus.files import Tree
    from habitus.journal.journal import Journal
    from habitus.journal.usage import UsageCountObserver
    from habitus.learning.budget import DailyTokenUsageStore
    from habitus.llm.model import SessionModels
    from habitus.memory.cortex import Cortex
    from habitus.pause import LearningPauseSwitch
    from habitus.recipes.catalogue import RecipeCatalogue
    from habitus.redact import Redactor
    from habitus.sandbox.credentials.vault import Vault
    from habitus.screening.findings import ScreeningPolicy
    from habitus.settings import Settings
    from habitus.skills.choosing.selection import RequestUser
    from habitus.skills.choosing.skill_finder import SkillFinder
    from habitus.skills.library import Library
    from habitus.skills.review import ReviewQueue
    from habitus.skills.sources.trust import TrustStore
    from habitus.skills.stores.versioned import SkillStore
    from habitus.tools.service import ToolService


DATABASE_AWAY = "The database is unreachable."
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class HomeWiring(Protocol):
    """Builds the larger parts of a home; most of them on first use."""

    def wire_parts(self, home: Home) -> None: ...
    def open_memory(self, home: Home, user: str, all_users: bool) -> Cortex: ...
    def open_tools(self, home: Home) -> ToolService: ...
    def open_recipes(self, home: Home) -> RecipeCatalogue: ...
    def open_usage_observer(self, home: Home) -> UsageCountObserver: ...


class Home:
    """Settings, databases, library, memory and journal of one user. Open one with `wiring.open_home`, and close it."""

    pause: LearningPauseSwitch
    scan_cache: ScanCache
    trust: TrustStore
    # Stored with the skills, so code that a person approved on one host may run on every host.
    approvals: TrustStore
    skills: Library
    vault: Vault
    redactor: Redactor
    finder: SkillFinder
    notifier: ReviewWebhookNotifier
    review: ReviewQueue

    def __init__(
        self,
        settings: Settings,
        *,
        local: sa.Engine,
        shared: sa.Engine,
        clock: Clock,
        home_lock: home_directory.HomeLockOrReadOnlyCopy,
        wiring: HomeWiring,
        has_pages: bool = True,
        is_derived: bool = False,
        stores: dict[Hashable, SkillStore] | None = None,
    ) -> None:
        self.settings, self.clock = settings, clock
        # Files, programs and network of this machine, as far as this user may name them.
        self.host = make_host_permissions(settings)
        # Stores of directories, shared by all users of a process: each directory is scanned once.
        self.open_stores = {} if stores is None else stores
        # A derived home uses the connections of another one, and must not close them.
        self._is_derived = is_derived
        # Background work that must end before the home is closed.
        self.exit_stack = ExitStack()
        # Whether memory is also written to files of this home.
        self.has_pages = has_pages and not home_lock.is_read_only
        self.is_read_only = home_lock.is_read_only
        # Data about this machine's directories.
        self.local = local
        # Data that all hosts share; the same database if there is only one host.
        self.shared = shared
        self.home_lock = home_lock
        # A directory for temporary data; not the home itself if that is read-only.
        self.writable_dir = home_lock.writable_dir
        self._wiring = wiring
        wiring.wire_parts(self)

    def close(self) -> None:
        """Close databases and background work, in the reverse order of opening."""
        # Each part is closed even if another one fails.
        with ExitStack() as closing:
            if not self._is_derived:
                closing.callback(self.home_lock.exit_stack.close)
                closing.callback(self.shared.dispose)
                closing.callback(self.local.dispose)
            closing.callback(self.notifier.close)
            closing.callback(self.scan_cache.save)
            closing.callback(self.exit_stack.close)

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
        shared = sql.get_engine_for_user(self.shared, name, is_admin=theirs.is_admin)
        # Another user's memory must not be written to this home's files.
        return self._derive_home(theirs, shared, has_pages=False)

    def as_system(self) -> Self:
        """Return the same home for Habitus itself, with access to every row."""
        from habitus import sql

        shared = sql.get_engine_for_user(self.shared, "", is_admin=True)
        return self if shared is self.shared else self._derive_home(self.settings, shared, has_pages=True)

    def with_cwd(self, cwd: Path) -> Self:
        """Return the same home for another working directory, over the same connections."""
        return self._derive_home(self.settings.model_copy(update={"cwd": cwd}), self.shared, has_pages=False)

    def _derive_home(self, settings: Settings, shared: sa.Engine, *, has_pages: bool) -> Self:
        return type(self)(
            settings,
            local=self.local,
            shared=shared,
            clock=self.clock,
            home_lock=self.home_lock,
            wiring=self._wiring,
            has_pages=has_pages,
            is_derived=True,
            stores=self.open_stores,
        )

    @property
    def project(self) -> str:
        """Return the project of the working directory, under which its lessons are stored."""
        return str(find_project_root(self.settings.cwd))

    def build_author(self, reason: str = "", *, user: str = "") -> Author:
        """Return this process's user, or the user of a session, as the author of a change."""
        name = user if user not in ("", self.settings.user) else self.settings.author_name
        return Author(actor=ActorKind.USER, name=name, reason=reason, change_id=secrets.token_hex(4))

    def get_user(self, name: str | None = None) -> RequestUser:
        """Return a user with the role the settings give them, by default the user of this home."""
        # Loads the selection rules.
        from habitus.skills.choosing.selection import RequestUser

        known = self.settings.model_copy(update={"user": name or self.settings.user})
        return RequestUser(name=known.user, is_admin=known.is_admin)

    @functools.cached_property
    def journal(self) -> Journal:
        """The recorded turns, their offers and their outcomes."""
        # Imported on first use, like all parts below: start-up time is a feature.
        from habitus.journal.journal import Journal

        kept_for = timedelta(days=self.settings.retention.turn_days)
        observer = self._wiring.open_usage_observer(self)
        return Journal(
            self.shared, clock=self.clock, redactor=self.redactor, retention=kept_for, usage_observer=observer
        )

    @functools.cached_property
    def spending(self) -> DailyTokenUsageStore:
        """The tokens that learning has spent, and may spend today."""
        # Loads the learners.
        from habitus.learning.budget import DailyTokenUsageStore

        return DailyTokenUsageStore(self.shared, clock=self.clock, cap=self.settings.learning_tokens)

    @functools.cached_property
    def models(self) -> SessionModels:
        """The models of the settings, opened on first use."""
        # Loads a provider's library.
        from habitus.app.conversations.models import open_main_and_cheap_models

        return open_main_and_cheap_models(self.settings, os.environ)

    @functools.cached_property
    def memory(self) -> Cortex:
        """Facts, rules and lessons of this user, opened on first use."""
        return self.open_memory()

    def open_memory(self, *, user: str = "", all_users: bool = False) -> Cortex:
        """Open another view of the same memory: for another thread, another user, or an admin."""
        return self._wiring.open_memory(self, user, all_users)

    @functools.cached_property
    def tools(self) -> ToolService:
        """The code stages of skills. Create and run them inside `async with home.tools`."""
        return self._wiring.open_tools(self)

    @functools.cached_property
    def recipes(self) -> RecipeCatalogue:
        """The recipes of skills, their results so far, and which of them may run."""
        return self._wiring.open_recipes(self)

    @functools.cached_property
    def evidence(self) -> EvidenceService:
        """The offers and outcomes so far, and their statistics."""
        # Loads the statistics.
        from habitus.app.learning.evidence import EvidenceService

        return EvidenceService(
            journal=self.journal,
            clock=self.clock,
            share=self.settings.evidence.withhold,
            refuse_changes=functools.partial(refuse_if_read_only, self),
        )

    @functools.cached_property
    def screening(self) -> ScreeningPolicy:
        """The screening policy of this home's screening.toml."""
        from habitus.screening.findings import read_screening_policy

        return read_screening_policy(self.settings.home)

    def scan_tree(self, tree: Tree) -> list[str]:
        """Return the findings a person must see before foreign content is used, one line each."""
        return self.scan_cache.list_high_risk_scan_findings(tree, self.screening)

    def redact(self, text: str) -> str:
        """Return the text with secrets redacted."""
        return self.redactor.redact(text).text

    @property
    def is_offline(self) -> bool:
        """Whether the shared database is away and the offline snapshot is used instead."""
        from habitus.app.home_directory import OFFLINE_SNAPSHOT_FILE

        copy = str(self.settings.home / OFFLINE_SNAPSHOT_FILE)
        return self.shared is not self.local and self.shared.url.database == copy


def resolve_user_filter(settings: Settings, all_users: bool, user: str = "") -> str | None:
    """Return the user to filter by, or None for all users. Raises `Refused` if a non-admin asks for others."""
    if (all_users or user not in ("", settings.user)) and not settings.is_admin:
        raise Refused("Only admins can see other users' data.", hint="Leave --all-users and --user out to see yours.")
    return None if all_users else user or settings.user


def open_read_transaction_if_single_database(home: Home) -> AbstractContextManager[object]:
    """Open one transaction for all reads inside, if there is only one database."""
    from habitus import sql

    # With two databases a thread could hold two connections, and many threads exhaust the pool.
    return sql.read_transaction(home.local) if home.local is home.shared else nullcontext()


def refuse_if_read_only(home: Home) -> None:
    """Raise if the home can't be written: changes to its copied database would be lost."""
    if home.is_read_only:
        from habitus.app.home_directory import raise_home_not_writable

        raise_home_not_writable(home.settings.home)


def refuse_if_read_only_or_offline(home: Home) -> None:
    """Raise if a change could not be stored, because the home is read-only or the database is away."""
    refuse_if_read_only(home)
    if home.is_offline:
        raise DatabaseUnavailable(
            f"{DATABASE_AWAY} Changes are possible again when it is back.", hint="See 'habitus doctor'."
        )


def refuse_change_if_unwritable_or_paused(home: Home, author: Author) -> None:
    """Raise if a change by this author could not be stored, or if automatic changes are paused."""
    refuse_if_read_only_or_offline(home)
    if author.is_automatic:
        home.pause.refuse_if_paused()


def get_own_name_among_sharing_hosts(home: Home) -> str:
    """Return the name of this host among those that share the database; empty without others."""
    # Loads the file locks.
    from habitus.app import home_directory

    is_alone = home.shared is home.local or home.is_read_only
    return "" if is_alone else home_directory.get_or_create_host_name_of_home(home.settings.home)


def refuse_non_admin_on_shared_database(home: Home, what: str, author: Author | None = None) -> None:
    """Raise `Refused` if a non-admin changes something for everyone on a shared database.

    `author` may be the user of a session.
    """
    name = None if author is None or author.name == home.settings.author_name else author.name
    if home.settings.database and not home.get_user(name).is_admin:
        raise Refused(f"Only an admin may {what} on a shared database.", hint="Ask one, or propose it.")


def get_user_or_all_memory(home: Home, all_users: bool) -> Cortex:
    """Return the user's memory, or that of all users for an admin."""
    return (
        home.memory if resolve_user_filter(home.settings, all_users) is not None else home.open_memory(all_users=True)
    )
