"""`Habitus`, the facade for Python programs: a home with sessions, turns and outcomes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from habitus.agent.stream import AskPerson, answer_consent_with_later
from habitus.app.home import Clock, Home, utc_now
from habitus.app.wiring import open_home_of_type

if TYPE_CHECKING:
    from habitus.agent.hosted_turn import TurnContextManager
    from habitus.agent.session import Session
    from habitus.app.conversations.hosting import HostDrivenConversations
    from habitus.events import TurnObserver
    from habitus.journal.model import JudgementSourceKind
    from habitus.learning.observer import SessionErrorLearner
    from habitus.llm.model import Model
    from habitus.settings import Settings


class Habitus(Home):
    """An open home. Close it, or use it in a `with` block."""

    @classmethod
    def open(cls, settings: Settings | None = None, *, clock: Clock = utc_now, has_pages: bool = True) -> Self:
        """Open the home that the settings name, creating it if needed; `has_pages` also writes memory to files."""
        return open_home_of_type(cls, settings, clock=clock, has_pages=has_pages)

    def close(self) -> None:
        """End every hosted conversation, then close the home."""
        # Each part is closed even if another one fails.
        with ExitStack() as closing:
            closing.callback(super().close)
            # Touching the cached property would open it just to close it.
            if "hosted_conversations" in self.__dict__:
                closing.callback(self.hosted_conversations.close)

    def open_at(self, cwd: Path) -> Self:
        """Open the same home for another working directory, with connections of its own."""
        return self.open(self.settings.model_copy(update={"cwd": cwd}), clock=self.clock)

    def session(
        self,
        model: Model | None = None,
        *,
        id: str | None = None,
        resume: bool = False,
        user: str | None = None,
        source_type: str = "repl",
        ask: AskPerson = answer_consent_with_later,
        cheap: Model | None = None,
        observers: Sequence[TurnObserver] = (),
        learner: SessionErrorLearner | None = None,
        read: Sequence[Path] = (),
    ) -> Session:
        """Open a conversation with a model, by default the configured one. Close it, or use `async with`.

        `cheap` is the model that draws lessons from failed cells; with a model of your own there is none by default.
        `learner` replaces the default learner. `read` lists folders that cells may read.
        """
        # Loads the sandbox and the models, which only conversations need.
        from habitus.app.conversations.sessions import open_session

        return open_session(
            self,
            model,
            id=id,
            resume=resume,
            user=self.get_user(user),
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
        ask: AskPerson = answer_consent_with_later,
    ) -> TurnContextManager:
        """Open a turn of your own loop, for `with` or `async with`; `tools` are the names of your own tools.

        `paths` are the files the work is about, `resources` and `features` what else is available, `reply_to` the turn
        that this one answers, `caller_id` your own id for it; `ask` asks the person for consent.
        """
        from habitus.agent.user_input import SubmittedRequest

        # Loads the sandbox, which only foreign loops need.
        from habitus.app.conversations.hosting import HostTurnRequest

        asking = SubmittedRequest(
            text=text,
            attach=[Path(path) for path in attachments],
            paths=paths,
            resources=resources,
            features=features,
            reply_to=reply_to,
            caller_id=caller_id,
        )
        request = HostTurnRequest(
            user_input=asking,
            user=self.get_user(user),
            conversation=conversation,
            source_type=source_type,
            tools=frozenset(tools),
            ask=ask,
        )
        return self.hosted_conversations.open_turn(request)

    def outcome(
        self, turn: str, *, ok: bool, reason: str = "", by: str = "host", source_kind: JudgementSourceKind | None = None
    ) -> None:
        """Record how a turn went, even long after it ended; a second report by the same source replaces the first.

        It counts as a program's word unless you pass on a person's or a validator's.
        """
        # Loads the recorder, which only outcomes need.
        from habitus.app.learning.judging import record_turn_judgement
        from habitus.journal.model import JudgementSourceKind as Kind

        record_turn_judgement(self, turn, ok=ok, by=by, source_kind=source_kind or Kind.PROGRAM, reason=reason)

    @functools.cached_property
    def hosted_conversations(self) -> HostDrivenConversations:
        """Return the open conversations of foreign loops, which `turn` uses."""
        # Loads the sandbox, which only foreign loops need.
        from habitus.app.conversations.hosting import HostDrivenConversations

        return HostDrivenConversations(self)
