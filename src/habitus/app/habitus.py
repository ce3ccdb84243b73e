"""Habitus, the facade: a home with the doors that a Python program uses."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from habitus.agent.stream import AskPerson, nobody
from habitus.app.home import Clock, Home, utc_now
from habitus.app.lazy_opening import KeptLibrary, Unopened
from habitus.errors import HabitusError
from habitus.skills.layers.listing_cache import View, is_kept

if TYPE_CHECKING:
    from habitus.agent.hosted_turn import TurnDoor
    from habitus.agent.session import Session
    from habitus.app.conversations.hosting import Hosting
    from habitus.events import TurnObserver
    from habitus.learning.observer import Learner
    from habitus.llm.model import Model
    from habitus.settings import Settings
    from habitus.skills.library import Library

_FEW = 1_000  # skills: listing more of them takes too long to be kept unasked


class Habitus(Home):
    """Everything, opened on one home. Close it, or use it in a `with` block."""

    _unopened: Unopened | None = None
    _keeps_listing = False  # when it is closed, for the next one to begin with

    @classmethod
    def open(cls, settings: Settings | None = None, *, clock: Clock = utc_now, has_pages: bool = True) -> Self:
        """Open the home that the settings name, creating it where it is new; its pages of memory are the owner's.

        Where a listing is kept that still holds, the database is opened with the first question that goes beyond it;
        a server that shall not wait then asks for `settings` when it starts.
        """
        view = View.of_this_process() if settings is None else None
        if view is not None and is_kept(view):
            made = cls.__new__(cls)
            made._unopened = Unopened(view=view, clock=clock, has_pages=has_pages)
            made.skills = cast("Library", KeptLibrary(view, made._open_library))
            return made
        from habitus.app.wiring import open_home_as  # the database's toolkit, for those who go on

        made = open_home_as(cls, settings, clock=clock, has_pages=has_pages)
        made._keeps_listing = settings is None
        return made

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Asked only for what is not there, which is nearly everything until the home is opened."""
            if not name.startswith("__"):
                self._open_now()
            return object.__getattribute__(self, name)

    def _open_now(self) -> None:
        unopened = self._unopened
        if unopened is None:
            return
        with unopened.lock:
            if self._unopened is None or unopened.is_opening:
                return
            from habitus.app.wiring import open_home_as

            unopened.is_opening = True
            try:
                settings, clock, has_pages = unopened.settings(), unopened.clock, unopened.has_pages
                open_home_as(self._furnished, settings, clock=clock, has_pages=has_pages)
                self._unopened = None
            finally:
                unopened.is_opening = False

    def _furnished(self, settings: Settings, **parts: Any) -> Self:
        Home.__init__(self, settings, **parts)
        return self

    def _open_library(self) -> Library:
        self._open_now()
        return self.skills

    def close(self) -> None:
        if self._unopened is not None:
            return
        with ExitStack() as closing:  # one that fails keeps nothing else open
            closing.callback(super().close)
            if "hosting" in self.__dict__:
                closing.callback(self.hosting.close)
            elif self._keeps_listing and 0 < len(self.skills.last.listing) <= _FEW:
                closing.callback(self._keep_listing)

    def _keep_listing(self) -> None:
        from habitus.app.library.listing_cache import keep_listing

        with suppress(HabitusError, OSError):  # the next one composes it
            keep_listing(self)

    def at(self, cwd: Path) -> Self:
        """The same home as seen from another working directory, with connections of its own."""
        return self.open(self.settings.model_copy(update={"cwd": cwd}), clock=self.clock)

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
        from habitus.agent.user_input import Asking
        from habitus.app.conversations.hosting import HostRequest  # the sandbox, for those who run a loop

        asking = Asking(
            text=text,
            attach=[Path(path) for path in attachments],
            paths=paths,
            resources=resources,
            features=features,
            reply_to=reply_to,
            caller_id=caller_id,
        )
        request = HostRequest(
            asking=asking,
            user=self.user(user),
            conversation=conversation,
            source_type=source_type,
            tools=frozenset(tools),
            ask=ask,
        )
        return self.hosting.turn(request)

    def outcome(self, turn: str, *, ok: bool, reason: str = "", by: str = "host") -> None:
        """Somebody knows how a turn went; it may be over for long. `by` says who: the same source corrects itself."""
        from habitus.app.learning.learning import judge  # the recorder, for those who judge

        judge(self, turn, ok=ok, by=by, reason=reason)

    @functools.cached_property
    def hosting(self) -> Hosting:
        """The conversations of loops that are not ours, which `turn` opens."""
        from habitus.app.conversations.hosting import Hosting  # the sandbox, for those who run a loop

        return Hosting(self)
