"""Open a session: build the parts of a conversation from a home."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from habitus import sql
from habitus.agent.background import run_in_thread
from habitus.agent.choosing.exposures import ExposureAssigner
from habitus.agent.history import MessageHistory, rebuild_history_from_recorded_turns
from habitus.agent.library.sandbox_services import build_skill_services_for_sandbox
from habitus.agent.library.supporting_files import SupportingFileReaderAndPlacer
from habitus.agent.library.version_pins import ConversationVersionPins
from habitus.agent.library.view import LibraryView
from habitus.agent.prompts.composer import ConversationServices
from habitus.agent.prompts.prompt import IdentityPrompt
from habitus.agent.session import Conversation, Session, generate_turn_or_session_id
from habitus.agent.stream import AskPerson, ConsentPromptWithTimeMeasurement, answer_consent_with_later
from habitus.agent.tools.builtin_tools import build_standard_tools
from habitus.agent.tools.stage_tools import OfferedTools, SkillStageAdvisor
from habitus.agent.tools.writing_skills import SkillChangeSubmitter
from habitus.agent.user_memory import UserProjectMemory
from habitus.app.conversations.command_lines import SessionCommandLineService
from habitus.app.conversations.running_code import (
    open_scratchpads,
    open_store_of_files_given_to_cells,
    resolve_readable_folders,
)
from habitus.app.home import DATABASE_AWAY, Home, get_own_name_among_sharing_hosts, refuse_if_read_only
from habitus.app.home_directory import OUTBOX_DIR, SESSION_PADS_DIR
from habitus.app.learning.compared_versions import open_comparison_store
from habitus.app.learning.curating import compact_rules_and_prune_lessons
from habitus.app.learning.learning import open_session_error_learner
from habitus.app.library import trusting
from habitus.app.library.explaining import build_skill_menu_options
from habitus.app.library.layers import build_skill_gate_context, get_placeholder_values, has_any_skill_code_or_recipes
from habitus.app.operating.housekeeping import run_due_housekeeping
from habitus.app.sharing import offline_snapshot
from habitus.app.sharing.approvals import apply_approvals_and_publish_proposals
from habitus.app.sharing.availability import explain_missing_database_answer
from habitus.errors import NotFound, Refused
from habitus.events import TurnObserver
from habitus.evidence.model import FixedAssignments, UnitRandomizer
from habitus.journal.evidence_records import load_session_start
from habitus.journal.journal import Journal
from habitus.journal.model import Turn, TurnOrigin, classify_turn_origin
from habitus.journal.outbox import JournalOutbox
from habitus.learning.observer import SessionErrorLearner
from habitus.llm.model import Model
from habitus.llm.transcription import get_local_or_explaining_transcriber
from habitus.sandbox.child import HostServices
from habitus.sandbox.files import GivenFolder
from habitus.sandbox.scratchpads import SessionScratchpads
from habitus.settings import Settings
from habitus.skills.choosing.selection import RequestUser
from habitus.sql.outage import STORAGE_ERRORS, OutageGuard
from habitus.tools.service import ToolService


def open_session(
    home: Home,
    model: Model | None = None,
    *,
    id: str | None = None,
    resume: bool = False,
    user: RequestUser | None = None,
    source_type: str = "repl",
    ask: AskPerson = answer_consent_with_later,
    observers: Sequence[TurnObserver] = (),
    cheap: Model | None = None,
    learner: SessionErrorLearner | None = None,
    read: Sequence[Path] = (),
    fixed: FixedAssignments | None = None,
    tools: ToolService | None = None,
) -> Session:
    """Open a new session, or resume one from the journal; `tools` that are passed in stay open after it."""
    refuse_if_read_only(home)
    user = user or home.get_user()
    past = home.journal.list_session_turns(id, user=user.name) if id and resume else []
    if resume and not past:
        raise NotFound(f"There is no session '{id}' to resume.", hint="See 'habitus sessions list'.")
    if id and home.journal.get_session_user(id) not in ("", user.name):
        raise Refused(f"'{id}' can't be a session of yours.", hint="Leave the id out, or take another.")
    cheap = cheap or (home.models.cheap if model is None else None)
    history = rebuild_history_from_recorded_turns(past)
    # A separate view, because the learner runs in a thread of its own.
    memory = home.open_memory(user=user.name)
    conversation = open_conversation_without_model(
        home,
        tools or home.tools,
        id=id or generate_turn_or_session_id(),
        past=past,
        history=history,
        user=user,
        source_type=source_type,
        ask=ask,
        observers=observers,
        learner=learner or open_session_error_learner(home, memory, cheap, memory),
        read=read,
        fixed=fixed,
    )
    closing = conversation.parts.closing
    if model is None:
        closing.push_async_callback(home.models.close)
    closing.push_async_callback(run_in_thread, lambda: run_housekeeping_after_session(home, user.name))
    if tools is None:
        closing.push_async_callback(home.tools.close)
    return Session(conversation, model or home.models.main, history)


def open_conversation_without_model(
    home: Home,
    tools: ToolService,
    *,
    id: str,
    past: Sequence[Turn] = (),
    history: MessageHistory | None = None,
    user: RequestUser,
    source_type: str,
    ask: AskPerson = answer_consent_with_later,
    observers: Sequence[TurnObserver] = (),
    learner: SessionErrorLearner,
    is_hosted: bool = False,
    shows_prompt: bool = True,
    read: Sequence[Path] = (),
    fixed: FixedAssignments | None = None,
    offers: ExposureAssigner | None = None,
) -> Conversation:
    """Open a conversation without a model.

    A host that doesn't show our prompt tracks itself what its model has seen, and accepts a changing list of tools. In
    a trial, `fixed` replaces random assignments. `offers` records what the host's model was shown before.
    """
    outage, person = open_database_outage_monitor(home), ConsentPromptWithTimeMeasurement(ask)
    is_real = classify_turn_origin(source_type) is TurnOrigin.REAL
    # An agent with our hooks reads the skill's file itself, so it always has the current version.
    reads_files = offers is not None
    offers = offers or ExposureAssigner(
        open_random_assignment_of_conversation(home.settings, home.journal, id, outage, fixed)
    )
    view = LibraryView(
        library=home.skills,
        review=home.review,
        outage=outage,
        redactor=home.redactor,
        conversation=id,
        history=history,
        forgets=not shows_prompt,
        user=user,
        offers=offers,
        versions=None
        if reads_files or not is_real
        else open_skill_version_assigner(home, id, offers.lots, outage, offers),
    )
    given = open_store_of_files_given_to_cells(home, f"{SESSION_PADS_DIR}/{id}")
    calls = SessionCommandLineService(home, view, given, outage, user=user, source_type=source_type)
    services = {**build_skill_services_for_sandbox(view), **calls.services}
    files = SupportingFileReaderAndPlacer(view, given, calls.describe_command_line_calls_for_model)
    can_read = resolve_readable_folders(home.settings, read)
    pads = _open_session_scratchpads(home, person, view.conversation, services, given, can_read)
    cortex = home.memory if user.name == home.settings.user else home.open_memory(user=user.name)
    memory = UserProjectMemory(cortex=cortex, user=user.name, project=home.project, outage=outage, offers=offers)
    ladder = SkillStageAdvisor(view=view, tools=tools, recipes=home.recipes, reliable=home.settings.reliable)
    gates, author = build_skill_gate_context(home.settings, user), home.build_author(user=user.name)
    built_in = build_standard_tools(
        SkillChangeSubmitter(
            view=view, review=home.review, scan=home.scan_tree, person=author, gates=gates, ask=person
        ),
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
        may_have_tools=partial(has_any_skill_code_or_recipes, home.shared, home.local),
        records_use=is_real,
    )
    # Loads mining and numpy, which only an open conversation needs.
    from habitus.app.learning.repairing import ToolRepairObserver

    parts = ConversationServices(
        view=view,
        files=files,
        finder=home.finder,
        journal=home.journal,
        spool=JournalOutbox(home.writable_dir / OUTBOX_DIR, home.redactor),
        memory=memory,
        identity=IdentityPrompt(library=home.skills, fill={**get_placeholder_values(home.settings), "USER": user.name}),
        tools=offered,
        observers=(learner, *([ToolRepairObserver(home, learner.model)] if is_real else ()), *observers),
        transcribe=get_local_or_explaining_transcriber(),
        clock=home.clock,
        context_tokens=home.settings.context_tokens,
        menu_options=build_skill_menu_options(home),
        person=person,
        learned=learner.take_new_lessons,
        given=given,
        project=home.project,
        host=get_own_name_among_sharing_hosts(home),
        source_type=source_type,
        before_turn=partial(apply_approvals_and_publish_proposals, home),
        ready=calls.open_command_line_proxy,
    )
    parts.closing.push_async_callback(calls.close)
    parts.closing.push_async_callback(pads.close)
    conversation = Conversation(parts, id, past)
    if shows_prompt:
        conversation.build_session_prompt_in_advance()
    return conversation


def open_database_outage_monitor(home: Home) -> OutageGuard:
    """Return the monitor that tells whether the shared database answers."""
    frozen = DATABASE_AWAY if home.is_offline else ""
    return OutageGuard(partial(explain_missing_database_answer, home.shared), frozen=frozen)


def open_random_assignment_of_conversation(
    settings: Settings, journal: Journal, unit: str, outage: OutageGuard, fixed: FixedAssignments | None = None
) -> UnitRandomizer:
    """Return the random assignment of a conversation; nothing is withheld unless configured, nor without a seed."""
    share = settings.evidence.withhold if fixed is None else 0.0
    seed = outage.read_or_default(journal.get_or_create_random_seed, "") if share else ""
    return UnitRandomizer(unit=unit, seed=seed, share=share if seed else 0.0, fixed=fixed or {})


def open_skill_version_assigner(
    home: Home, unit: str, lots: UnitRandomizer, outage: OutageGuard, offers: ExposureAssigner
) -> ConversationVersionPins | None:
    """Return what decides which version of a compared skill a conversation gets; None if comparing is off."""
    if not home.settings.evidence.compare_versions:
        return None
    opened_on = home.clock()

    def open_assignment() -> tuple[datetime, UnitRandomizer]:
        began_on = outage.read_or_default(lambda: _read_session_start(home.shared, unit), None)
        seed = lots.seed or home.journal.get_or_create_random_seed()
        return began_on or opened_on, replace(lots, unit=unit, seed=seed)

    return ConversationVersionPins(
        load=lambda: open_comparison_store(home).list_comparisons_that_assign_versions(),
        open_assignment=open_assignment,
        offers=offers,
    )


def _read_session_start(engine: sa.Engine, session: str) -> datetime | None:
    with sql.read_transaction(engine) as connection:
        return load_session_start(connection, session)


def run_housekeeping_after_session(home: Home, user: str) -> None:
    """Tidy memory, refresh the offline snapshot, and run the housekeeping if it is due."""
    # If the database is away, the next session that ends does this.
    with suppress(*STORAGE_ERRORS):
        # This runs in another thread than the session.
        memory = home.open_memory(user=user)
        if memory.is_learning_enabled():
            compact_rules_and_prune_lessons(memory)
        offline_snapshot.refresh_snapshot(home)
        run_due_housekeeping(home)


def _open_session_scratchpads(
    home: Home, ask: AskPerson, session: str, services: HostServices, given: GivenFolder, read: Sequence[Path]
) -> SessionScratchpads:
    """Open scratchpads for this session alone: two sessions never share a process by accident."""
    return open_scratchpads(
        home,
        f"{SESSION_PADS_DIR}/{session}",
        trusting.build_package_install_check(home, ask),
        services,
        given,
        read,
        list_initial_packages=lambda: trusting.list_allowed_packages(home),
    )
