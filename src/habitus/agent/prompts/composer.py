"""The services of a conversation, and the composer of its prompts.

A prompt has a session part that stays the same from turn to turn and a block chosen for each request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from habitus.agent.background import BackgroundTasks
from habitus.agent.choosing.exposures import make_skill_evidence_item
from habitus.agent.choosing.skill_selection import (
    choose_skills,
    find_library_news_for_user,
    find_relevant_skills_on_menu,
    get_relevant_skill_limit,
)
from habitus.agent.library.supporting_files import SupportingFileReaderAndPlacer
from habitus.agent.library.view import LibraryView
from habitus.agent.prompts import prompt
from habitus.agent.prompts.prompt import ComposedPrompt, IdentityPrompt, Prompt, PromptSection
from habitus.agent.stream import ConsentPromptWithTimeMeasurement, answer_consent_with_later
from habitus.agent.tools.stage_tools import OfferedTools
from habitus.agent.user_memory import UserProjectMemory
from habitus.errors import HabitusError
from habitus.events import TurnObserver
from habitus.evidence.model import select_items_drawing_last_place
from habitus.journal.journal import Journal
from habitus.journal.outbox import JournalOutbox
from habitus.llm.transcription import Transcriber
from habitus.memory.model import LessonDraftResult
from habitus.memory.recall import RecalledLesson, RecallResult
from habitus.sandbox.files import GivenFolder
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import INTERACTIVE_SOURCES, SkillSelection, UserRequest
from habitus.skills.choosing.skill_finder import SkillFinder
from habitus.skills.layers.listing import LibrarySnapshot
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Skill, SkillSummary, Stage
from habitus.skills.review import Proposal
from habitus.text import clean_to_one_line
from habitus.use_counts import UsageCounts

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _SessionPrompt:
    """The part of the prompt that stays the same until a person changes something."""

    identity: str
    standing: RecallResult
    # The selection for an empty request.
    selection: SkillSelection
    menu: menu.SkillMenu
    seen: LibrarySnapshot
    # Built while the database was down.
    is_makeshift: bool = False


class PromptComposer:
    """Composes the prompts of a conversation. Every method except `build_system_sections` queries the database:
    call it in a thread.
    """

    def __init__(self, parts: ConversationServices) -> None:
        self._parts = parts
        self._away = parts.view.outage.read_or_default
        # The snapshot that the user was fully told about.
        self._told: LibrarySnapshot | None = None
        self._settled: _SessionPrompt | None = None

    def recall_lessons_for_request(self, request: UserRequest) -> RecallResult:
        """Recall what memory has for the request; empty while the database is down."""
        return self._away(lambda: self._parts.memory.recall_lessons(request.text), RecallResult())

    def select_skills(self, request: UserRequest) -> SkillSelection:
        """Select the skills for the request; while the database is down, the last selection."""
        parts, view = self._parts, self._parts.view
        view.request = request.text
        view.selection = self._away(
            lambda: choose_skills(view.snapshot, request, parts.gate_context, parts.journal), view.selection
        )
        log.info("%s", view.selection)
        return view.selection

    def compose_prompt(self, request: UserRequest, chosen: SkillSelection, recalled: RecallResult) -> ComposedPrompt:
        """Compose the prompt of one turn: the session part and the block chosen for this request."""
        offers = self._parts.view.offers
        chosen = offers.drop_withheld_eager_skills(chosen)
        if chosen.excludes_rules_and_profile:
            recalled = RecallResult()
        elif chosen.excludes_lessons:
            recalled = replace(recalled, lessons=(), tied=None)
        eager, skills = self._build_eager_skills_section(chosen)
        lessons = offers.assign_and_filter_showable_lessons(recalled)
        known = {note.id for note in self._session_prompt.standing.rules}
        rules = tuple(
            note for note in recalled.rules if note.id not in known and offers.assign_whether_to_show_lesson(note)
        )
        news = self._find_library_news_for_request(request)
        turned_down = self._away(self._list_unreported_rejected_proposals, ())
        unlearned = self._parts.memory.cortex.list_untold_rejections(self._parts.view.user.name)
        opened = [
            summary
            for summary in self._list_skills_only_this_request_enables(chosen)
            if offers.assign_whether_to_show_skill_line(summary)
        ]
        found = self._away(lambda: self._find_and_assign_relevant_skills(request, chosen), ())
        context = (
            eager,
            prompt.build_bullet_section(
                "rules", "Rules for this request", self._drop_lesson_lines_already_shown(rules)
            ),
            prompt.build_bullet_section(
                "lessons",
                "Lessons from earlier work",
                self._drop_lesson_lines_already_shown([note for note in lessons if not note.is_from_self_play]),
            ),
            prompt.build_self_play_lessons_section(
                self._drop_lesson_lines_already_shown([note for note in lessons if note.is_from_self_play])
            ),
            prompt.build_section_of_skills_request_enables(opened),
            prompt.build_relevant_skills_section([summary for summary, _ in found if summary not in opened]),
            prompt.build_library_news_section(news),
            prompt.build_bullet_section(
                "turned down",
                "Turned down by the person",
                [*(one.rejection_message for one in turned_down), *(one.rejection_message for one in unlearned)],
            ),
        )
        standing = () if chosen.excludes_rules_and_profile else self._session_prompt.standing.rules
        return ComposedPrompt(
            prompt=Prompt(
                system=self.build_system_sections_for_selection(chosen),
                context=tuple(part for part in context if part.text),
            ),
            skills=skills,
            relevance={summary.name: score for summary, score in found},
            notes=lessons,
            rules=(*standing, *rules),
            in_tools=self._parts.memory.scratchpad_description_lessons,
            cut=() if chosen.excludes_rules_and_profile else self._list_rule_ids_without_room(recalled, rules),
            menu=self._session_prompt.menu,
            news=news,
            turned_down=turned_down,
            unlearned=unlearned,
        )

    def build_system_sections_for_selection(self, selection: SkillSelection | None = None) -> tuple[PromptSection, ...]:
        """Return the session sections, without those that a selected skill excludes for its turn."""
        steady = self._session_prompt
        drops_memory = selection is not None and selection.excludes_rules_and_profile
        standing = RecallResult() if drops_memory else steady.standing
        return prompt.build_system_sections(
            identity="" if selection is not None and selection.excludes_persona else steady.identity,
            profile=[note.text for note in standing.profile],
            rules=prompt.build_bullet_section(
                "rules", "Rules", [note.prompt_line for note in standing.rules], cut=standing.omitted_rules
            ),
            menu=steady.menu,
        )

    def mark_library_news_as_told(self) -> None:
        """Note that the news reached the user, so it is not repeated."""
        self._told = self._parts.view.snapshot

    @property
    def can_have_library_news(self) -> bool:
        """Whether the library may contain changes that the user has not been told of."""
        return self._told is None or self._told.hashes is not self._parts.view.snapshot.hashes

    def _build_eager_skills_section(self, selection: SkillSelection) -> tuple[PromptSection, tuple[Skill, ...]]:
        """Build the section of skills that rules put into the prompt; text already in the conversation is
        referenced.
        """
        view = self._parts.view
        loaded = [
            (skill, choice.reason) for choice in selection.eager if (skill := self._load_skill_or_none(choice.name))
        ]
        chosen = [(skill, reason) for skill, reason in loaded if view.offers.assign_whether_to_show_skill_text(skill)]
        there = {skill.name for skill, _ in chosen if view.is_skill_text_in_conversation(skill.name)}
        room = int(self._parts.context_tokens * prompt.EAGER_SHARE)
        section, shown = prompt.build_eager_skills_section(
            chosen,
            room,
            already_shown=there,
            get_unreviewed_origin=view.describe_unreviewed_origin,
            describe_files=self._parts.files.place_and_describe_files,
        )
        for skill, _ in chosen:
            if skill.name in shown:
                view.record_shown_skill(skill)
        return section, tuple(skill for skill, _ in chosen if skill.name in shown or skill.name in there)

    def _load_skill_or_none(self, name: str) -> Skill | None:
        try:
            return self._away(lambda: self._parts.view.load_skill(name), None)
        except HabitusError:
            # The skill was removed a moment ago.
            return None

    def _drop_lesson_lines_already_shown(self, notes: Sequence[RecalledLesson]) -> list[str]:
        """Return the lines that are not in the conversation yet."""
        return [
            note.prompt_line
            for note in notes
            if not self._parts.view.has_line_in_history(f"- {clean_to_one_line(note.prompt_line)}")
        ]

    def _list_rule_ids_without_room(self, remembered: RecallResult, rules: Sequence[RecalledLesson]) -> tuple[str, ...]:
        """Return the rules that fit neither into the system prompt nor beside the request."""
        shown = {note.id for note in (*self._session_prompt.standing.rules, *rules)}
        return tuple(id for id in remembered.omitted_rules if id not in shown)

    def _list_skills_only_this_request_enables(self, selection: SkillSelection) -> list[SkillSummary]:
        """Return the skills that only this request makes available, which the session menu can't contain."""
        closed = self._session_prompt.selection.left_out
        return [summary for summary in selection.menu if summary.name in closed]

    def _find_and_assign_relevant_skills(
        self, request: UserRequest, selection: SkillSelection
    ) -> list[tuple[SkillSummary, float]]:
        """Return the skills on the menu that search finds relevant, each with how relevant it is, 0–1."""
        on_menu = {summary.name: summary for summary in selection.menu}
        offers = self._parts.view.offers
        unlisted = frozenset(self._session_prompt.menu.cut)
        count = get_relevant_skill_limit(unlisted)
        # One more candidate, so that random assignment can decide between the last two.
        k = count + offers.lots.is_active
        search = partial(self._parts.finder.search, request.text, at=self._parts.view.snapshot)
        found = find_relevant_skills_on_menu(search, on_menu, unlisted=unlisted, k=k)
        ranked = [on_menu[hit.id] for hit in found]
        worth = {hit.id: hit.score for hit in found}
        drawn = select_items_drawing_last_place(
            offers.lots, ranked, count, item=make_skill_evidence_item, score=lambda one: worth[one.name]
        )
        if drawn.left_out is not None:
            offers.assign_whether_to_show_skill_line(drawn.left_out, at_edge=False)
        return [
            (one, worth[one.name])
            for one in drawn.taken
            if offers.assign_whether_to_show_skill_line(one, at_edge=(one is drawn.last) or None)
        ]

    def _find_library_news_for_request(self, request: UserRequest) -> menu.SkillChangesSinceLastVisit:
        """Return the skills that are new to this user; empty if no person reads along."""
        nothing = menu.SkillChangesSinceLastVisit()
        if request.source_type not in INTERACTIVE_SOURCES or not self.can_have_library_news:
            return nothing
        return self._away(self._find_library_news_for_user, nothing)

    def _find_library_news_for_user(self) -> menu.SkillChangesSinceLastVisit:
        parts, view = self._parts, self._parts.view
        out = view.offers.withheld_skill_names
        return find_library_news_for_user(
            parts.journal, parts.view.user.name, view.snapshot, parts.gate_context, view.library.layers, out
        )

    def _list_unreported_rejected_proposals(self) -> tuple[Proposal, ...]:
        """Return rejected proposals of this user's agent that it has not been told of."""
        parts, here = self._parts, ("", self._parts.view.conversation)
        return tuple(
            one
            for one in parts.view.review.list_unreported_rejections()
            if one.conversation in here or parts.journal.get_session_user(one.conversation) == parts.view.user.name
        )

    @property
    def _session_prompt(self) -> _SessionPrompt:
        return self._settled or self.build_session_prompt()

    def build_session_prompt(self) -> _SessionPrompt:
        """Build the session part of the prompt."""
        self._settled = (
            self._away(self._build_session_prompt_from_database, None) or self._build_session_prompt_without_database()
        )
        return self._settled

    def rebuild_session_prompt_if_needed(self) -> None:
        """Rebuild the session part after a person's change, but not after the agent's own, to keep it cacheable."""
        self._away(self._rebuild_session_prompt_after_manual_change, None)

    def _rebuild_session_prompt_after_manual_change(self) -> None:
        now, steady = self._parts.view.snapshot, self._session_prompt
        # An unchanged system prompt keeps the provider's cache valid.
        written, switched = _compare_snapshots_for_changed_skills(steady.seen, now)
        is_same = self._parts.identity.render_text() == steady.identity
        if (
            not steady.is_makeshift
            and is_same
            and not switched
            and all(self._is_last_skill_change_automatic(name) for name in written)
        ):
            self._settled = replace(steady, seen=now)
        else:
            self._settled = self._build_session_prompt_from_database()

    def _is_last_skill_change_automatic(self, name: str) -> bool:
        try:
            return self._parts.view.library.list_versions(name)[-1].author.is_automatic
        except (HabitusError, IndexError):
            # The skill has been removed.
            return False

    def _build_session_prompt_from_database(self) -> _SessionPrompt:
        parts = self._parts
        return self._assemble_session_prompt(
            parts.identity.render_text(),
            parts.memory.recall_profile_and_rules(),
            parts.view.library.read_all_counters(),
        )

    def _build_session_prompt_without_database(self) -> _SessionPrompt:
        """Build the session part from what is known without the database."""
        identity = self._away(self._parts.identity.render_text, prompt.load_prompt_text("identity"))
        return replace(
            self._assemble_session_prompt(identity, self._parts.memory.recall_profile_and_rules(is_away=True), {}),
            is_makeshift=True,
        )

    def _assemble_session_prompt(
        self, identity: str, standing: RecallResult, counters: Mapping[tuple[str, str], Mapping[Stage, UsageCounts]]
    ) -> _SessionPrompt:
        parts = self._parts
        bare = UserRequest(text="", source_type=parts.source_type, user=parts.view.user, now=parts.clock())
        parts.view.selection = selection = choose_skills(parts.view.snapshot, bare, parts.gate_context, parts.journal)
        drawn = partial(menu.build_menu_for_selection, selection, counters, parts.menu_options)
        parts.view.menu = parts.view.offers.build_session_menu(selection, drawn)
        rules = tuple(
            note for note in standing.rules if parts.view.offers.assign_whether_to_show_lesson(note, is_steady=True)
        )
        return _SessionPrompt(
            identity=identity,
            standing=replace(standing, rules=rules),
            selection=selection,
            menu=parts.view.menu,
            seen=parts.view.snapshot,
        )


def _compare_snapshots_for_changed_skills(before: LibrarySnapshot, now: LibrarySnapshot) -> tuple[list[str], list[str]]:
    """Return the skills written or removed, and those only enabled or disabled."""
    if before is now:
        return [], []
    a, b = ({item.name: (item.tree_hash, item.state) for item in seen.listing} for seen in (before, now))
    changed = [name for name in {*a, *b} if a.get(name) != b.get(name)]
    switched = [name for name in changed if name in a and name in b and a[name][0] == b[name][0]]
    return [name for name in changed if name not in switched], switched


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversationServices:
    """Everything a conversation works with."""

    view: LibraryView
    files: SupportingFileReaderAndPlacer
    finder: SkillFinder
    journal: Journal
    spool: JournalOutbox
    memory: UserProjectMemory
    identity: IdentityPrompt
    tools: OfferedTools
    observers: Sequence[TurnObserver]
    transcribe: Transcriber
    clock: Callable[[], datetime]
    context_tokens: int
    menu_options: menu.MenuOptions
    # Where attachments are placed for code.
    given: GivenFolder
    person: ConsentPromptWithTimeMeasurement = field(
        default_factory=lambda: ConsentPromptWithTimeMeasurement(answer_consent_with_later)
    )
    # Returns the lessons learned since it was last called.
    learned: Callable[[], tuple[LessonDraftResult, ...]] = tuple
    project: str = ""
    host: str = ""  # empty if no other host shares the database
    source_type: str = "repl"
    background: BackgroundTasks = field(default_factory=BackgroundTasks)
    # Runs what other processes left to be done between two turns.
    before_turn: Callable[[], None] = lambda: None
    # Prepares what code needs before a call runs any.
    ready: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
    # Closed together with the conversation.
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def gate_context(self) -> GateContext:
        """The user's gates, including the available tools."""
        return self.tools.gate_context
