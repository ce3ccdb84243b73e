"""Habitus: everything, opened on one home."""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import sqlalchemy as sa

from habitus import sql
from habitus.agent.consent import AskPerson, nobody
from habitus.app import home
from habitus.app.library.content import high_findings
from habitus.app.library.finding import open_finder
from habitus.app.library.layers import gates_of, open_library
from habitus.app.operation.tombstones import repeated
from habitus.app.review.notifying import Notifier
from habitus.app.review.reviewing import open_review
from habitus.app.sharing import standing_in
from habitus.app.sharing.carrying import caught_up
from habitus.events import TurnObserver
from habitus.files import Tree
from habitus.journal.journal import Journal
from habitus.learning.spending import Spending
from habitus.memory.tables import waiting_lessons
from habitus.pause import Pause
from habitus.redact import Redactor, secret_values
from habitus.sandbox.credentials.vault import open_vault
from habitus.screening.policy import Policy, read_policy
from habitus.settings import Settings
from habitus.skills.formats.base import PlaybookLesson
from habitus.skills.gates import GateContext
from habitus.skills.importing import Importer, Result
from habitus.skills.layers import project_root
from habitus.skills.model import Actor, Author
from habitus.skills.selection import User
from habitus.skills.trust import Trust

if TYPE_CHECKING:
    from habitus.agent.session import Session
    from habitus.agent.turn_door import TurnDoor
    from habitus.app.conversations.hosting import Hosting
    from habitus.app.growth.evidence import Evidence
    from habitus.learning.observer import Learner
    from habitus.llm.model import Model
    from habitus.llm.roles import Models
    from habitus.memory.cortex import Cortex
    from habitus.recipes.catalogue import RecipeCatalogue
    from habitus.sandbox.machine import Machine
    from habitus.sandbox.scratchpads import Scratchpads
    from habitus.tools.tools import Tools

Clock = Callable[[], datetime]


class Habitus:
    """Everything, opened on one home. Close it, or use it in a `with` block."""

    def __init__(
        self,
        settings: Settings,
        *,
        local: sa.Engine,
        shared: sa.Engine,
        clock: Clock,
        there: home.Entered,
        has_pages: bool = True,
    ) -> None:
        self.settings, self.clock = settings, clock
        self.has_pages = has_pages and not there.is_read_only  # whether memory is shown in files of this home
        self.is_read_only = there.is_read_only
        self.pause = Pause(shared, clock)
        self.local = local  # what is known of this machine's directories
        self.shared = shared  # what every host shares; the same database where there is only one host
        self.there = there
        self.place = there.place  # where what is not kept may be written
        self.trust = Trust(local, clock=clock, scan=self.scan)
        # Kept with the skills they are about: code that one host's person approved, every host may run.
        self.approvals = Trust(shared, clock=clock, scan=self.scan)
        self.skills = open_library(self)
        self.vault = open_vault(settings.home, os.environ)
        self.redactor = Redactor(secret_values(os.environ), kept=self.vault.known)
        kept_for = timedelta(days=settings.retention.turn_days)
        self.journal = Journal(shared, clock=clock, redactor=self.redactor, kept_for=kept_for)
        self.spending = Spending(shared, clock=clock, cap=settings.learning_tokens)
        self.finder = open_finder(self)
        self.notifier = Notifier(settings.notify_url)
        self.review = open_review(self)
        self.importer = Importer(
            self.skills, self.review, self.trust, shared, clock=clock, scan=self.scan, land=self._land
        )

    @classmethod
    def open(
        cls,
        settings: Settings | None = None,
        *,
        clock: Clock = lambda: datetime.now(UTC),
        has_pages: bool = True,
    ) -> Habitus:
        """Open the home that the settings name, creating it where it is new; its pages of memory are the owner's."""
        settings = settings or home.read_settings()
        there = home.enter(settings.home)
        with ExitStack() as failing:
            failing.callback(there.leaving.close)
            local = sql.open_engine(sql.sqlite_url(there.place / home.DATABASE))
            failing.callback(local.dispose)
            shared = standing_in.open_shared(settings, local)
            if not there.is_read_only:
                home.keep_private(settings.home)
            made = cls(settings, local=local, shared=shared, clock=clock, there=there, has_pages=has_pages)
            made = caught_up(repeated(made))
            failing.pop_all()
            return made

    def close(self) -> None:
        with ExitStack() as closing:  # one that fails keeps nothing else open
            closing.callback(self.there.leaving.close)
            closing.callback(self.shared.dispose)
            closing.callback(self.local.dispose)
            closing.callback(self.notifier.close)
            if "hosting" in self.__dict__:
                closing.callback(self.hosting.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def fill(self) -> dict[str, str]:
        """What placeholders in skills become."""
        return {"BOT_NAME": self.settings.bot_name, "BOT_DIR": str(self.settings.home), "USER": self.settings.user}

    def person(self, reason: str = "", *, user: str = "") -> Author:
        """The person at this process, or the user of a session, as the author of a change."""
        name = user if user not in ("", self.settings.user) else self.settings.signature
        return Author(actor=Actor.USER, name=name, reason=reason, change=secrets.token_hex(4))

    def at(self, cwd: Path) -> Habitus:
        """The same home as seen from another working directory."""
        return Habitus.open(self.settings.model_copy(update={"cwd": cwd}), clock=self.clock)

    @functools.cached_property
    def models(self) -> Models:
        """The models that the settings name, opened when they are first asked."""
        from habitus.app.conversations.models import models  # a provider's library, for those who call a model

        return models(self.settings, os.environ)

    def session(
        self,
        model: Model | None = None,
        *,
        id: str | None = None,
        resume: bool = False,
        user: str | None = None,
        source_type: str = "repl",
        ask: AskPerson = nobody,
        cheap: Model | None = None,
        observers: Sequence[TurnObserver] = (),
        learner: Learner | None = None,
        read: Sequence[Path] = (),
    ) -> Session:
        """A conversation with a model, by default the one of the settings. Close it, or use `async with`.

        `cheap` is the model that draws lessons from failed cells; with a model of your own there is none by default.
        `learner` takes the place of what otherwise learns from its errors. `read` are folders that its cells may read.
        """
        from habitus.app.conversations.sessions import open_session  # the sandbox and the models, for those who talk

        return open_session(
            self,
            model,
            id=id,
            resume=resume,
            user=self.user(user),
            source_type=source_type,
            ask=ask,
            observers=observers,
            cheap=cheap,
            learner=learner,
            read=read,
        )

    def turn(
        self,
        text: str,
        *,
        user: str | None = None,
        conversation: str = "",
        attachments: Sequence[str | Path] = (),
        paths: Sequence[str] = (),
        resources: Collection[str] = (),
        features: Collection[str] = (),
        source_type: str = "api",
        reply_to: str = "",
        caller_id: str = "",
        tools: Collection[str] = (),
        ask: AskPerson = nobody,
    ) -> TurnDoor:
        """A turn of your own loop, for `with` or `async with`; `tools` are the names of your own.

        `paths` are the files the work is about, `resources` and `features` what else is there, `reply_to` the turn
        that is directly answered, `caller_id` your own id of this one; `ask` asks the person where one is needed.
        """
        from habitus.app.conversations.hosting import HostRequest  # the sandbox, for those who run a loop

        request = HostRequest(
            text=text,
            user=self.user(user),
            conversation=conversation,
            attachments=[Path(path) for path in attachments],
            paths=paths,
            resources=resources,
            features=features,
            source_type=source_type,
            reply_to=reply_to,
            caller_id=caller_id,
            tools=frozenset(tools),
            ask=ask,
        )
        return self.hosting.turn(request)

    def outcome(self, turn: str, *, ok: bool, reason: str = "", by: str = "host") -> None:
        """Somebody knows how a turn went; it may be over for long. `by` says who: the same source corrects itself."""
        from habitus.app.growth.judging import judge  # the recorder, for those who judge

        judge(self, turn, ok=ok, by=by, reason=reason)

    @functools.cached_property
    def hosting(self) -> Hosting:
        """The conversations of loops that are not ours, which `turn` opens."""
        from habitus.app.conversations.hosting import Hosting  # the sandbox, for those who run a loop

        return Hosting(self)

    @functools.cached_property
    def memory(self) -> Cortex:
        """Facts, rules and lessons. Opened when it is first asked for."""
        return self.open_memory()

    def open_memory(self, *, user: str = "", all_users: bool = False) -> Cortex:
        """Another view of the same memory: for a thread of its own, for another user, for an admin."""
        from habitus.app.growth.memory import open_memory  # the rules of its gate, for those who remember

        return open_memory(self, user=user, all_users=all_users)

    @functools.cached_property
    def screening(self) -> Policy:
        """What this home's screening.toml silences and holds."""
        return read_policy(self.settings.home)

    def scan(self, tree: Tree) -> list[str]:
        """What a person must see before content from outside is used, one line each."""
        return high_findings(tree, self.screening)

    @property
    def project(self) -> str:
        """Which project the working directory belongs to: what its lessons are kept under."""
        return str(project_root(self.settings.cwd))

    def waiting_count(self) -> int:
        """How many changes and lessons wait for a person."""
        return self.review.waiting_count() + waiting_lessons(self.shared, self.settings.user)

    def _land(self, lesson: PlaybookLesson) -> Result:
        from habitus.app.library.updating import landed  # memory and every layout, for those who import

        return landed(self, lesson)

    def redacted(self, text: str) -> str:
        """The text without secrets, fit to be kept and shown."""
        return self.redactor.redact(text).text

    @functools.cached_property
    def machine(self) -> Machine:
        """What this machine can give a sandbox, found out by trying once."""
        from habitus.sandbox.machine import probe  # the sandbox is for those who run code

        return probe()

    @functools.cached_property
    def tools(self) -> Tools:
        """The code stages of the skills. Make and run them inside `async with habitus.tools`."""
        from habitus.app.conversations.running_code import open_tools  # the sandbox, for those who run code

        return open_tools(self)

    @functools.cached_property
    def evidence(self) -> Evidence:
        """What was offered or withheld, how it went, and what that proves."""
        from habitus.app.growth.evidence import Evidence  # its arithmetic, for those who ask

        return Evidence(habitus=self)

    @functools.cached_property
    def recipes(self) -> RecipeCatalogue:
        """The recipes of the skills, how they fare, and which may run."""
        from habitus.app.library.recipes import open_recipes

        return open_recipes(self)

    def scratchpads(self) -> Scratchpads:
        """The scratchpads of this home, or of the machine that the settings name."""
        from habitus.app.conversations.running_code import open_scratchpads

        return open_scratchpads(self, "pads")

    def user(self, name: str | None = None) -> User:
        """Somebody as the settings know them."""
        known = self.settings.model_copy(update={"user": name or self.settings.user})
        return User(name=known.user, is_admin=known.is_admin)

    def gates(self, user: User) -> GateContext:
        """What is switched off or closed for somebody, whoever this process belongs to."""
        return gates_of(self.settings, user)

    def refuse_if_read_only(self) -> None:
        """What is changed in the copy of a database would be gone with it."""
        if self.is_read_only:
            home.refuse_to_write(self.settings.home)

    def allow(self, author: Author) -> None:
        """Refuse a change that can't be kept, or that somebody has paused."""
        standing_in.refuse_changes(self)
        if author.is_automatic:
            self.pause.refuse_if_paused()
