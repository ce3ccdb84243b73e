"""Opening a session: the parts of a conversation, put together from one Habitus."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from habitus.agent.background import Background
from habitus.agent.changes import Changes
from habitus.agent.consent import AskPerson, Consent, Question
from habitus.agent.identity import identity_text
from habitus.agent.memory import SessionMemory
from habitus.agent.outage import away
from habitus.agent.parts import Parts
from habitus.agent.sandbox_services import sandbox_services
from habitus.agent.session import Session, new_id
from habitus.agent.toolbox import offered_code, standard_tools
from habitus.agent.transcription import local_transcriber
from habitus.app.content import high_findings
from habitus.app.learning import open_learner
from habitus.errors import NotFound
from habitus.events import TurnObserver
from habitus.learning.observer import Learner
from habitus.llm.model import Model
from habitus.sandbox.scratchpads import Scratchpads
from habitus.skills.selection import User

if TYPE_CHECKING:
    from habitus.app.habitus import Habitus

PADS = "sessions"  # where the files of each session's scratchpads lie


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
    cheap: Model | None,
    learner: Learner | None,
) -> Session:
    """A session of its own, or one that goes on where the journal has it."""
    habitus.refuse_if_read_only()
    past = habitus.journal.turns_of(id) if id and resume else []
    if resume and not past:
        raise NotFound(f"There is no session '{id}' to resume.", mend="See 'habitus sessions list'.")
    is_ours = model is None
    cheap = cheap or (habitus.models.cheap if model is None else None)
    model = model or habitus.models.main
    id = id or new_id()
    learner = learner or open_learner(habitus, habitus.open_memory(), cheap)  # a view for its own thread
    pads = _scratchpads(habitus, id, ask, lambda: session.may_load())
    memory = SessionMemory(cortex=habitus.memory, user=user.name, project=habitus.project)
    changes = Changes(
        library=habitus.skills,
        review=habitus.review,
        scan=high_findings,
        person=habitus.person(),
        conversation=id,
        ask=ask,
    )

    async def close() -> None:
        await pads.close()
        await habitus.tools.close()
        _let_go_of_the_old(habitus)
        if is_ours:
            await habitus.models.close()

    parts = Parts(
        model=model,
        library=habitus.skills,
        finder=habitus.finder,
        review=habitus.review,
        journal=habitus.journal,
        memory=memory,
        select=habitus.select,
        waiting=habitus.waiting_count,
        identity=lambda: identity_text(habitus.skills, habitus.fill),
        built_in=lambda session: standard_tools(
            session,
            changes=changes,
            finder=habitus.finder,
            pads=pads,
            tools=habitus.tools,
            memory=memory,
            cell_observers=(learner,),
        ),
        code_tools=lambda: offered_code(habitus.tools, id, habitus.barred(user)),
        observers=(learner, *observers),
        transcribe=local_transcriber(),
        background=Background(),
        close=close,
        clock=habitus.clock,
        redactor=habitus.redactor,
        context_tokens=habitus.settings.context_tokens,
        user=user,
        project=habitus.project,
        source_type=source_type,
    )
    session = Session(parts, id=id, past=past)
    return session


def _let_go_of_the_old(habitus: Habitus) -> None:
    """Turns are kept for a time, and the files of a session's pads no longer than its turns."""
    with suppress(*away()):  # another time, then
        habitus.journal.prune()
        kept = habitus.journal.session_ids()
        limit = (habitus.clock() - habitus.journal.kept_for).timestamp()
        for folder in (habitus.settings.home / PADS).glob("*"):
            if folder.name not in kept and folder.stat().st_mtime < limit:
                shutil.rmtree(folder, ignore_errors=True)


def _scratchpads(
    habitus: Habitus, session: str, ask: AskPerson, may_load: Callable[[], Collection[str]]
) -> Scratchpads:
    """Pads of this session's own, so that two sessions never share a process by accident."""

    async def may_install(package: str) -> bool:
        return await ask(Question(text=f"Install the package '{package}' into the scratchpad?")) is Consent.YES

    return habitus.scratchpads(
        folder=f"{PADS}/{session}", may_install=may_install, services=sandbox_services(habitus.skills, may_load)
    )
