"""Opening a session: the parts of a conversation, put together from one Habitus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.agent.background import in_thread
from habitus.agent.changes import Changes
from habitus.agent.consent import AskPerson, TimedPerson, nobody
from habitus.agent.conversation import Conversation, new_id
from habitus.agent.history import History, resumed
from habitus.agent.identity import Identity
from habitus.agent.ladder import Ladder
from habitus.agent.memory import SessionMemory
from habitus.agent.offered_tools import OfferedTools
from habitus.agent.offers import Offers
from habitus.agent.other_files import OtherFiles
from habitus.agent.outage import Outage, away
from habitus.agent.parts import Parts
from habitus.agent.sandbox_services import sandbox_services
from habitus.agent.session import Session
from habitus.agent.toolbox import hosted_tools, standard_tools
from habitus.agent.transcription import local_transcriber
from habitus.agent.view import View
from habitus.app.conversations.calling import SessionCalls
from habitus.app.conversations.running_code import ENVIRONMENTS, open_given, open_scratchpads, readable
from habitus.app.growth.curating import tidy
from habitus.app.growth.learning import open_learner
from habitus.app.home import PADS, WAITING
from habitus.app.library import packages
from habitus.app.library.layers import may_have_tools
from habitus.app.sharing import standing_in
from habitus.app.sharing.reaching import silence
from habitus.errors import NotFound, Refused
from habitus.events import TurnObserver
from habitus.evidence.assignment import Fixed, Lots
from habitus.journal.model import Turn
from habitus.journal.spool import Spool
from habitus.learning.observer import Learner, NotingKeeper
from habitus.llm.model import Model
from habitus.memory.model import Encoded
from habitus.sandbox import environments
from habitus.sandbox.given import Given
from habitus.sandbox.inside import folders
from habitus.sandbox.scratchpads import Scratchpads
from habitus.sandbox.services import Services
from habitus.skills.selection import User
from habitus.tools.tools import Tools

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
    cheap: Model | None,
    learner: Learner | None,
    read: Sequence[Path],
    fixed: Fixed | None = None,
    tools: Tools | None = None,
) -> Session:
    """A session of its own, or one that goes on where the journal has it; `tools` that are given stay open after it."""
    habitus.refuse_if_read_only()
    past = habitus.journal.turns_of(id, user=user.name) if id and resume else []
    if resume and not past:
        raise NotFound(f"There is no session '{id}' to resume.", mend="See 'habitus sessions list'.")
    if id and habitus.journal.user_of(id) not in ("", user.name):
        raise Refused(f"'{id}' can't be a session of yours.", mend="Leave the id out, or take another.")
    cheap = cheap or (habitus.models.cheap if model is None else None)
    history = resumed(past)
    memory = habitus.open_memory(user=user.name)  # a view for the learner's own thread
    noting = NotingKeeper(memory)
    conversation = open_conversation(
        habitus,
        tools or habitus.tools,
        id=id or new_id(),
        past=past,
        history=history,
        user=user,
        source_type=source_type,
        ask=ask,
        observers=observers,
        learner=learner or open_learner(habitus, noting, cheap, memory),
        learned=noting.take,
        read=read,
        fixed=fixed,
    )
    closing = conversation.parts.closing
    if model is None:
        closing.push_async_callback(habitus.models.close)
    closing.push_async_callback(in_thread, lambda: let_go_of_the_old(habitus, user.name))
    if tools is None:
        closing.push_async_callback(habitus.tools.close)
    return Session(conversation, model or habitus.models.main, history)


def open_conversation(
    habitus: Habitus,
    tools: Tools,
    *,
    id: str,
    past: Sequence[Turn] = (),
    history: History | None = None,
    user: User,
    source_type: str,
    ask: AskPerson = nobody,
    observers: Sequence[TurnObserver] = (),
    learner: Learner,
    is_hosted: bool = False,
    shows_prompt: bool = True,
    learned: Callable[[], tuple[Encoded, ...]] = tuple,
    read: Sequence[Path] = (),
    fixed: Fixed | None = None,
    offers: Offers | None = None,
) -> Conversation:
    """A conversation without a model behind it. Whoever does not show our prompt keeps its own count of what it has
    seen, and takes a list of tools that changes. A trial has `fixed` what chance decides elsewhere. `offers` is where
    whoever told its model something before has noted it."""
    outage, gates, person = open_outage(habitus), habitus.gates(user), TimedPerson(ask)
    offers = offers or Offers(lots(habitus, id, outage, fixed))
    view = View(
        habitus.skills,
        habitus.review,
        outage,
        habitus.redactor,
        conversation=id,
        history=history,
        forgets=not shows_prompt,
        user=user,
        offers=offers,
    )
    given = open_given(habitus, f"{PADS}/{id}")
    calls = SessionCalls(habitus, view, given, outage, user=user, source_type=source_type)
    services = {**sandbox_services(view), **calls.services}
    files = OtherFiles(view, given, calls.how_to_call)
    can_read = readable(habitus, read)
    pads = _scratchpads(habitus, person, view.conversation, services, given, can_read)
    is_own = user.name == habitus.settings.user
    cortex = habitus.memory if is_own else habitus.open_memory(user=user.name)
    memory = SessionMemory(cortex=cortex, user=user.name, project=habitus.project, outage=outage, offers=offers)
    changes = Changes(
        view=view,
        review=habitus.review,
        scan=habitus.scan,
        person=habitus.person(user=user.name),
        gates=gates,
        ask=person,
    )
    ladder = Ladder(view=view, tools=tools, recipes=habitus.recipes, reliable=habitus.settings.reliable, outage=outage)
    built_in = standard_tools(
        changes,
        files=files,
        ladder=ladder,
        finder=habitus.finder,
        pads=pads,
        tools=tools,
        memory=memory,
        cell_observers=(learner,),
        readable=can_read,
    )
    if is_hosted:
        built_in += hosted_tools(view, habitus.finder)
    parts = Parts(
        view=view,
        files=files,
        finder=habitus.finder,
        review=habitus.review,
        journal=habitus.journal,
        spool=Spool(habitus.place / WAITING, habitus.redactor),
        memory=memory,
        identity=Identity(library=habitus.skills, fill={**habitus.fill, "USER": user.name}),
        tools=OfferedTools(
            built_in,
            tools,
            habitus.finder,
            view,
            outage,
            gates,
            habitus.recipes,
            ladder,
            given,
            services=services,
            steady=shows_prompt,
            may_have_tools=partial(may_have_tools, habitus),
        ),
        observers=(learner, *observers),
        transcribe=local_transcriber(),
        outage=outage,
        redactor=habitus.redactor,
        clock=habitus.clock,
        context_tokens=habitus.settings.context_tokens,
        user=user,
        person=person,
        learned=learned,
        given=given,
        project=habitus.project,
        source_type=source_type,
        ready=calls.ready,
    )
    parts.closing.push_async_callback(calls.close)
    parts.closing.push_async_callback(pads.close)
    conversation = Conversation(parts, id, past)
    if shows_prompt:
        conversation.settle()
    return conversation


def open_outage(habitus: Habitus) -> Outage:
    frozen = standing_in.AWAY if standing_in.stands_in(habitus) else ""
    return Outage(partial(silence, habitus.shared), frozen=frozen)


def lots(habitus: Habitus, unit: str, outage: Outage, fixed: Fixed | None = None) -> Lots:
    """What chance decides in a conversation: nothing unless somebody has set it, nor without the seed."""
    share = habitus.settings.evidence.withhold if fixed is None else 0.0
    seed = outage.unless_away(habitus.journal.seed, "") if share else ""
    return Lots(unit=unit, seed=seed, share=share if seed else 0.0, fixed=fixed or {})


def let_go_of_the_old(habitus: Habitus, user: str) -> None:
    """Turns are kept for a time, and the files of a session's pads no longer than its turns; memory is tidied."""
    with suppress(*away()):  # another time, then
        memory = habitus.open_memory(user=user)  # this is another thread than the session's
        if memory.is_taking():
            tidy(memory)
        standing_in.keep(habitus)
        habitus.journal.prune()
        kept = habitus.journal.session_ids()
        limit = (habitus.clock() - habitus.journal.kept_for).timestamp()
        environments.let_go(habitus.place / ENVIRONMENTS, unused_since=limit)
        for folder in (habitus.place / PADS).glob("*"):
            if folder.name not in kept and folder.stat().st_mtime < limit:
                with suppress(OSError):
                    folders.remove(str(folder))


def _scratchpads(
    habitus: Habitus, ask: AskPerson, session: str, services: Services, given: Given, read: Sequence[Path]
) -> Scratchpads:
    """Pads of this session's own, so that two sessions never share a process by accident."""
    return open_scratchpads(
        habitus,
        f"{PADS}/{session}",
        packages.asking(habitus, ask),
        services,
        given,
        read,
        begin_with=lambda: packages.allowed(habitus),
    )
