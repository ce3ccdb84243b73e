"""Opening a session: the parts of a conversation, put together from one Habitus."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.agent.attachments import Heard
from habitus.agent.background import Background
from habitus.agent.changes import Changes
from habitus.agent.consent import AskPerson, Consent, Question
from habitus.agent.identity import identity_text
from habitus.agent.prompt import Remembered
from habitus.agent.sandbox_services import sandbox_services
from habitus.agent.session import Parts, Session, new_id
from habitus.agent.toolbox import standard_tools
from habitus.app.content import high_findings
from habitus.errors import NotFound
from habitus.events import TurnObserver
from habitus.learning.observer import Learner
from habitus.llm.model import Model
from habitus.sandbox.machine import base_python, probe
from habitus.sandbox.model import Limits, Permissions
from habitus.sandbox.runtimes.local import LocalRuntime
from habitus.sandbox.scratchpads import Scratchpads
from habitus.sandbox.venvs import Venvs
from habitus.skills.selection import User

if TYPE_CHECKING:
    from habitus.app.habitus import Habitus


def open_session(
    habitus: Habitus,
    model: Model | None,
    *,
    id: str | None,
    resume: bool,
    user: User,
    source_type: str,
    ask: AskPerson,
    observers: Sequence[TurnObserver],
    learner: Learner | None,
) -> Session:
    """A session of its own, or one that goes on where the journal has it."""
    habitus.refuse_if_read_only()
    past = habitus.journal.turns_of(id) if id and resume else []
    if resume and not past:
        raise NotFound(f"There is no session '{id}' to resume.", mend="See 'habitus sessions list'.")
    model = model or habitus.models.main
    id = id or new_id()
    watching = (learner,) if learner else ()
    background = Background()
    pads = _scratchpads(habitus, id, ask)
    changes = Changes(
        library=habitus.skills,
        review=habitus.review,
        scan=high_findings,
        person=habitus.person(),
        conversation=id,
        ask=ask,
    )

    async def close() -> None:
        await background.close()
        await pads.close()

    parts = Parts(
        model=model,
        library=habitus.skills,
        finder=habitus.finder,
        review=habitus.review,
        journal=habitus.journal,
        memory=NoMemory(),
        select=habitus.select,
        identity=lambda: identity_text(habitus.skills, habitus.fill),
        built_in=lambda session: standard_tools(
            session, changes=changes, finder=habitus.finder, pads=pads, cell_observers=watching
        ),
        code_tools=lambda: (),
        observers=(*observers, *watching),
        transcribe=transcribe,
        spawn=background.spawn,
        close=close,
        clock=habitus.clock,
        redactor=habitus.redactor,
        context_tokens=habitus.settings.context_tokens,
        user=user,
        project=str(habitus.settings.cwd),
        source_type=source_type,
    )
    return Session(parts, id=id, past=past)


def _scratchpads(habitus: Habitus, session: str, ask: AskPerson) -> Scratchpads:
    """Pads of this session's own, so that two sessions never share a process by accident."""
    runtime = LocalRuntime(
        probe(),
        habitus.settings.home / "pads" / session,
        Venvs(os.environ, python=base_python()),
        permissions=Permissions(),
        limits=Limits(cpu_s=None),
    )

    async def may_install(package: str) -> bool:
        if habitus.settings.install_missing:
            return True
        return await ask(Question(text=f"Install the package '{package}' into the scratchpad?")) is Consent.YES

    return Scratchpads(runtime, services=sandbox_services(habitus.skills), may_install=may_install)


class NoMemory:
    def standing(self) -> Remembered:
        return Remembered()

    def recall(self, request: str) -> Remembered:
        return Remembered()

    def shown(self, notes: Sequence[str]) -> None:
        pass

    def helped(self, request: str) -> None:
        pass


async def transcribe(path: Path) -> Heard:
    return Heard(text=None, reason="no transcriber")
