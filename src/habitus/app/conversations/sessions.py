"""Open a session: build the parts of a conversation from a home."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from habitus.agent.background import in_thread
from habitus.agent.choosing import Offers, SessionMemory
from habitus.agent.history import History, resume_history
from habitus.agent.library_view import OtherFiles, View, sandbox_services
from habitus.agent.prompts.composer import Parts
from habitus.agent.prompts.prompt import Identity
from habitus.agent.session import Conversation, Session, new_id
from habitus.agent.stream import AskPerson, TimedPerson, nobody
from habitus.agent.tools.builtin_tools import standard_tools
from habitus.agent.tools.stage_tools import Ladder, OfferedTools
from habitus.agent.tools.writing_skills import Changes
from habitus.app.conversations.command_lines import SessionCalls
from habitus.app.conversations.running_code import ENVIRONMENTS, open_given, open_scratchpads, readable
from habitus.app.home import AWAY, Home
from habitus.app.home_directory import PADS, WAITING
from habitus.app.learning.curating import tidy
from habitus.app.learning.learning import open_learner
from habitus.app.library import trusting
from habitus.app.library.layers import may_have_tools
from habitus.app.sharing import offline_copy
from habitus.app.sharing.approvals import catch_up
from habitus.app.sharing.availability import silence
from habitus.errors import NotFound, Refused
from habitus.events import TurnObserver
from habitus.evidence.model import Fixed, Lots
from habitus.journal.journal import Journal
from habitus.journal.model import Origin, Turn, origin_of
from habitus.journal.spool import Spool
from habitus.learning.observer import Learner
from habitus.llm.model import Model
from habitus.llm.transcription import local_transcriber
from habitus.sandbox import venvs
from habitus.sandbox.child import Services
from habitus.sandbox.files import Given
from habitus.sandbox.inside import folders
from habitus.sandbox.scratchpads import Scratchpads
from habitus.settings import Settings
from habitus.skills.choosing.selection import User
from habitus.sql.outage import Outage, away
from habitus.tools.tools import Tools


def open_session(
    home: Home,
    model: Model | None = None,
    *,
    id: str | None = None,
    resume: bool = False,
    user: User | None = None,
    source_type: str = "repl",
    ask: AskPerson = nobody,
    observers: Sequence[TurnObserver] = (),
    cheap: Model | None = None,
    learner: Learner | None = None,
    read: Sequence[Path] = (),
    fixed: Fixed | None = None,
    tools: Tools | None = None,
) -> Session:
    """Open a new session, or resume one from the journal; `tools` that are passed in stay open after it."""
    home.refuse_if_read_only()
    user = user or home.user()
    past = home.journal.turns_of(id, user=user.name) if id and resume else []
    if resume and not past:
        raise NotFound(f"There is no session '{id}' to resume.", hint="See 'habitus sessions list'.")
    if id and home.journal.user_of(id) not in ("", user.name):
        raise Refused(f"'{id}' can't be a session of yours.", hint="Leave the id out, or take another.")
    cheap = cheap or (home.models.cheap if model is None else None)
    history = resume_history(past)
    # A separate view, because the learner runs in a thread of its own.
    memory = home.open_memory(user=user.name)
    conversation = open_conversation(
        home,
        tools or home.tools,
        id=id or new_id(),
        past=past,
        history=history,
        user=user,
        source_type=source_type,
        ask=ask,
        observers=observers,
        learner=learner or open_learner(home, memory, cheap, memory),
        read=read,
        fixed=fixed,
    )
    closing = conversation.parts.closing
    if model is None:
        closing.push_async_callback(home.models.close)
    closing.push_async_callback(in_thread, lambda: let_go_of_the_old(home, user.name))
    if tools is None:
        closing.push_async_callback(home.tools.close)
    return Session(conversation, model or home.models.main, history)


def open_conversation(
    home: Home,
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
    read: Sequence[Path] = (),
    fixed: Fixed | None = None,
    offers: Offers | None = None,
) -> Conversation:
    """Open a conversation without a model.

    A host that doesn't show our prompt tracks itself what its model has seen, and accepts a changing list of tools. In
    a trial, `fixed` replaces random assignments. `offers` records what the host's model was shown before.
    """
    outage, person = open_outage(home), TimedPerson(ask)
    offers = offers or Offers(lots(home.settings, home.journal, id, outage, fixed))
    view = View(
        library=home.skills,
        review=home.review,
        outage=outage,
        redactor=home.redactor,
        conversation=id,
        history=history,
        forgets=not shows_prompt,
        user=user,
        offers=offers,
    )
    given = open_given(home, f"{PADS}/{id}")
    calls = SessionCalls(home, view, given, outage, user=user, source_type=source_type)
    services = {**sandbox_services(view), **calls.services}
    files = OtherFiles(view, given, calls.how_to_call)
    can_read = readable(home.settings, read)
    pads = _scratchpads(home, person, view.conversation, services, given, can_read)
    cortex = home.memory if user.name == home.settings.user else home.open_memory(user=user.name)
    memory = SessionMemory(cortex=cortex, user=user.name, project=home.project, outage=outage, offers=offers)
    ladder = Ladder(view=view, tools=tools, recipes=home.recipes, reliable=home.settings.reliable)
    gates, author = home.gates(user), home.person(user=user.name)
    built_in = standard_tools(
        Changes(view=view, review=home.review, scan=home.scan, person=author, gates=gates, ask=person),
        files=files,
        ladder=ladder,
        finder=home.finder,
        pads=pads,
        tools=tools,
        memory=memory,
        cell_observers=(learner,),
        readable=can_read,
        is_hosted=is_hosted,
    )
    offered = OfferedTools(
        built_in=built_in,
        tools=tools,
        finder=home.finder,
        view=view,
        user_gates=gates,
        recipes=home.recipes,
        ladder=ladder,
        given=given,
        services=services,
        steady=shows_prompt,
        may_have_tools=partial(may_have_tools, home.shared, home.local),
        counts=origin_of(source_type) is Origin.REAL,
    )
    parts = Parts(
        view=view,
        files=files,
        finder=home.finder,
        journal=home.journal,
        spool=Spool(home.place / WAITING, home.redactor),
        memory=memory,
        identity=Identity(library=home.skills, fill={**home.fill, "USER": user.name}),
        tools=offered,
        observers=(learner, *observers),
        transcribe=local_transcriber(),
        clock=home.clock,
        context_tokens=home.settings.context_tokens,
        person=person,
        learned=learner.take_learned,
        given=given,
        project=home.project,
        source_type=source_type,
        before_turn=partial(catch_up, home),
        ready=calls.ready,
    )
    parts.closing.push_async_callback(calls.close)
    parts.closing.push_async_callback(pads.close)
    conversation = Conversation(parts, id, past)
    if shows_prompt:
        conversation.settle()
    return conversation


def open_outage(home: Home) -> Outage:
    """Return the monitor that tells whether the shared database answers."""
    frozen = AWAY if home.is_stand_in else ""
    return Outage(partial(silence, home.shared), frozen=frozen)


def lots(settings: Settings, journal: Journal, unit: str, outage: Outage, fixed: Fixed | None = None) -> Lots:
    """Return the random assignment of a conversation; nothing is withheld unless configured, nor without a seed."""
    share = settings.evidence.withhold if fixed is None else 0.0
    seed = outage.unless_away(journal.seed, "") if share else ""
    return Lots(unit=unit, seed=seed, share=share if seed else 0.0, fixed=fixed or {})


def let_go_of_the_old(home: Home, user: str) -> None:
    """Prune old turns, scratchpads and environments, tidy memory, and refresh the offline snapshot."""
    # If the database is away, the next session that ends does this.
    with suppress(*away()):
        # This runs in another thread than the session.
        memory = home.open_memory(user=user)
        if memory.is_taking():
            tidy(memory)
        offline_copy.keep(home)
        home.journal.prune()
        kept = home.journal.session_ids()
        limit = (home.clock() - home.journal.kept_for).timestamp()
        venvs.let_go(home.place / ENVIRONMENTS, unused_since=limit)
        for folder in (home.place / PADS).glob("*"):
            if folder.name not in kept and folder.stat().st_mtime < limit:
                with suppress(OSError):
                    folders.remove(str(folder))


def _scratchpads(
    home: Home, ask: AskPerson, session: str, services: Services, given: Given, read: Sequence[Path]
) -> Scratchpads:
    """Open scratchpads for this session alone: two sessions never share a process by accident."""
    return open_scratchpads(
        home,
        f"{PADS}/{session}",
        trusting.asking(home, ask),
        services,
        given,
        read,
        begin_with=lambda: trusting.allowed_packages(home),
    )
