"""Records a finished turn: journals it with its uses, credits what helped, starts learning, and judges it."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from habitus.agent.choosing import UserProjectMemory, make_skill_item
from habitus.agent.history import encode_message_for_journal, has_stage_replaced_steps
from habitus.agent.prompts.composer import ConversationServices
from habitus.agent.prompts.prompt import ComposedPrompt
from habitus.agent.user_input import PreparedUserInput
from habitus.events import OK, AgentEvent, EventKind, FinishedTurnDetails, Outcome, OutcomeKind
from habitus.evidence.model import classify_request_kind, has_left_trace_of_steps
from habitus.evidence.versions import AssignedVersion
from habitus.journal.journal import Journal
from habitus.journal.model import (
    ExposureAssignment,
    ItemUse,
    JudgementSourceKind,
    SelectedSkill,
    SkillPlacementKind,
    Turn,
    TurnOrigin,
    TurnOutcome,
    UseManner,
    classify_turn_origin,
)
from habitus.journal.usage import NEXT_TURN
from habitus.llm.model import AssistantMessage, ChatMessage, TokenUsage
from habitus.memory.model import SCRATCHPAD_TOPIC
from habitus.skills.choosing import menu
from habitus.skills.choosing.menu import NOT_LISTED
from habitus.skills.choosing.selection import INTERACTIVE_SOURCES, SkillSelection
from habitus.skills.choosing.skill_finder import SkillFinder
from habitus.skills.layers.listing import LibrarySnapshot
from habitus.skills.model import Skill, SkillSummary, Stage
from habitus.text import clean_to_one_line

log = logging.getLogger(__name__)
_CONSEQUENCE = {
    True: "This turn used the last known state; it will be recorded when the database is back.",
    False: "This turn used the last known state and could not be recorded; see 'habitus doctor'.",
}
# How much a successful request teaches search: less if only the signals suggest success.
_SEEMED_GOOD, _SAID_GOOD = 0.5, 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordingResult:
    """The result of recording a turn."""

    # Messages for the person.
    notices: tuple[str, ...] = ()
    # Pending changes and lessons.
    pending: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _ShownSkill:
    """A skill that was shown for a request; it was used if the model asked for it or if it left a trace."""

    skill: Skill
    is_asked: bool
    has_trace: bool

    @property
    def manner(self) -> UseManner:
        return UseManner.ASKED if self.is_asked else UseManner.TRACE if self.has_trace else UseManner.SHOWN


class TurnRecorder:
    """Records turns.

    Methods that query the database belong in a thread; `let_observers_learn_from_turn` belongs on the event loop.
    """

    def __init__(self, parts: ConversationServices, session: str) -> None:
        self._parts = parts
        self._outage = parts.view.outage
        self.session = session

    @property
    def _is_not_real_request(self) -> bool:
        """Whether this is not a real request: such turns count as no use and credit nothing."""
        return classify_turn_origin(self._parts.source_type) is not TurnOrigin.REAL

    def record_request_in_journal(self, turn: TurnState) -> None:
        """Record the request at once, so that even a killed process does not lose it."""
        so_far = build_journal_turn(
            turn, session=self.session, project=self._parts.project, host=self._parts.host, ended_on=None
        )
        self._outage.try_write(lambda: self._parts.journal.record_turn_start(so_far), "write down that a turn began")

    def record_finished_turn(self, turn: TurnState, *, can_have_library_news: bool) -> RecordingResult:
        """Record the finished turn and its counts; return notices and the number of pending changes."""
        parts, outage = self._parts, self._outage
        shown = self._list_skills_shown_for_request(turn)
        kept = build_journal_turn(
            turn,
            session=self.session,
            project=self._parts.project,
            host=self._parts.host,
            ended_on=max(parts.clock(), turn.began_on),
            exposures=self._list_exposures_of_turn(turn, shown),
            uses=() if turn.is_cancelled else self._build_uses_of_skill_steps(turn, shown),
            withheld=parts.view.offers.withheld_skill_names,
            versions=parts.view.offers.assigned_versions,
        )
        is_kept = self._write_turn_or_keep_for_later(kept)
        if (
            not turn.is_cancelled
            and not self._is_not_real_request
            and (
                outage.failure_reason
                or not outage.try_write(
                    lambda: self._record_what_prompt_showed(turn, can_have_library_news), "count shown lessons"
                )
            )
        ):
            # The counts are lost, which the outbox reports as dropped.
            parts.spool.count_dropped_entry()
        waiting = outage.read_or_default(
            lambda: parts.view.review.count_pending() + parts.memory.count_pending_lessons(), 0
        )
        is_told = bool(outage.failure_reason) and outage.claim_first_outage_report()
        notices = (f"{outage.failure_reason} {_CONSEQUENCE[is_kept]}",) if is_told else ()
        return RecordingResult(notices=notices, pending=waiting)

    def _list_skills_shown_for_request(self, turn: TurnState) -> Sequence[_ShownSkill]:
        """Return the skills that were shown for this request; those that are shown in every turn don't count."""
        eager = turn.selection.eager if turn.selection is not None else ()
        present = {choice.name for choice in eager if choice.is_sticky or choice.summary.manifest.always_include}
        shown = turn.composed.skills if turn.composed is not None else ()
        there = {skill.name: skill for skill in shown if skill.name not in present}
        return [
            _ShownSkill(
                skill=skill,
                is_asked=name in turn.asked,
                has_trace=self._has_skill_left_trace(turn, skill, if_unclear=name in turn.asked),
            )
            for name, skill in (there | {skill.name: skill for skill in turn.loaded}).items()
        ]

    def _list_exposures_of_turn(self, turn: TurnState, shown: Sequence[_ShownSkill]) -> tuple[ExposureAssignment, ...]:
        """Return the exposures that began in this turn or were used in it."""
        parts, request = self._parts, turn.user_input.request
        parts.tools.record_tool_exposures(turn.shown_tools)
        if turn.has_shown_scratchpad:
            for note in parts.memory.scratchpad_lessons_with_withheld:
                parts.view.offers.assign_whether_to_show_lesson(note, is_steady=True)
        kind = classify_request_kind(request.text, has_files=bool(request.attachments or request.paths))
        called = {str(event.detail.get("name", "")) for event in turn.events if event.kind is EventKind.TOOL_CALL}
        used = dict.fromkeys(parts.tools.list_evidence_items_of_tools(called), False)
        used |= {make_skill_item(one.skill): not one.has_trace for one in shown if one.manner is not UseManner.SHOWN}
        return parts.view.offers.list_turn_exposures(kind, used)

    def _has_skill_left_trace(self, turn: TurnState, skill: Skill, *, if_unclear: bool) -> bool:
        answers = [message for message in turn.messages if isinstance(message, AssistantMessage)]
        harmless = self._parts.tools.read_only_tool_names
        calls = [call for one in answers for call in one.calls if call.name not in harmless]
        done = [*(f"{call.name} {call.arguments}" for call in calls), *(one.text for one in answers), turn.reply]
        stages, request = self._parts.tools.list_tool_and_recipe_names(skill.name), turn.user_input.request.text
        return has_left_trace_of_steps(skill.body, stages, request=request, done="\n".join(done), if_unclear=if_unclear)

    def write_turns_kept_during_outage(self) -> None:
        """Write journal entries that were kept while the database was down, by whichever process."""
        if not self._parts.spool.is_empty:
            spool, journal = self._parts.spool, self._parts.journal
            self._outage.try_write(lambda: spool.replay_into_journal(journal), "write pending turns")

    def _write_turn_or_keep_for_later(self, turn: Turn) -> bool:
        """Write the turn after earlier pending ones, or keep it for later. False if it could not be kept at all."""
        parts = self._parts
        self.write_turns_kept_during_outage()
        if not parts.spool.is_empty or not self._outage.try_write(
            lambda: parts.journal.record_complete_turn(turn), "write it down"
        ):
            return parts.spool.add_turn(turn)
        return True

    def _build_uses_of_skill_steps(self, turn: TurnState, shown: Sequence[_ShownSkill]) -> tuple[ItemUse, ...]:
        """Return the uses of steps; whether one succeeded is for judgements to say."""
        library, request = self._parts.view.library, turn.user_input.request
        found = []
        for one in (one for one in shown if one.skill.version):
            skill, manner = one.skill, one.manner
            layer = library.get_layer(skill.layer).store.key
            use = ItemUse(
                id=f"{turn.id}:{layer}/{skill.name}",
                turn=turn.id,
                item=skill.name,
                layer=layer,
                version=skill.version,
                stage=Stage.STEPS.value,
                manner=manner,
                at=turn.began_on,
                user=request.user.name,
                origin=classify_turn_origin(request.source_type),
                is_credited=manner is not UseManner.SHOWN and not self._has_tool_or_recipe_replaced_steps(turn, skill),
            )
            found.append(use)
        return tuple(found)

    def _record_what_prompt_showed(self, turn: TurnState, can_have_library_news: bool) -> None:
        parts, request, view = self._parts, turn.user_input.request, self._parts.view
        if turn.composed is not None:
            ran_cells = any(event.kind is EventKind.SCRATCHPAD_CALL for event in turn.events)
            # Lessons about cells had their chance only where a cell was run.
            has_seen = turn.has_shown_scratchpad and ran_cells
            notes = [*turn.composed.rules, *turn.composed.notes, *(turn.composed.in_tools if has_seen else ())]
            parts.memory.cortex.record_retrieval([note.id for note in notes], omitted=turn.composed.cut)
            if turn.outcome.kind is not OutcomeKind.INFRA:
                parts.view.review.mark_rejections_reported(one.id for one in turn.composed.turned_down)
                parts.memory.cortex.mark_rejections_told(one.id for one in turn.composed.unlearned)
        if turn.outcome.is_ok and can_have_library_news and request.source_type in INTERACTIVE_SOURCES:
            parts.journal.store_hashes_of_seen_skills(
                parts.view.user.name, menu.list_visible_skill_hashes(view.snapshot, parts.gate_context)
            )

    def _has_tool_or_recipe_replaced_steps(self, turn: TurnState, skill: Skill) -> bool:
        """Whether the skill's tool or recipe acted, so that its steps get neither credit nor blame."""
        stages, request = self._parts.tools.list_tool_and_recipe_names(skill.name), turn.user_input.request.text
        return has_stage_replaced_steps(skill.body, stages, request=request, events=turn.events, messages=turn.messages)

    def credit_skills_and_lessons_of_turn(self, turn: TurnState) -> None:
        """Credit the skills and lessons of a turn that succeeded."""
        if self._is_not_real_request:
            return
        request, loaded = turn.user_input.request.text, [skill.name for skill in turn.loaded]
        weight = _SAID_GOOD if turn.judged_by else _SEEMED_GOOD
        parts, redacted = self._parts, self._parts.view.redactor.redact(request).text
        self._outage.try_write(
            lambda: credit_skills_and_lessons_of_request(
                parts.finder, parts.memory, redacted, loaded, weight, at=parts.view.snapshot
            ),
            "credit what served the request",
        )

    def let_observers_learn_from_turn(self, turn: TurnState) -> None:
        """Tell the observers that the turn has ended; they learn in the background."""
        ended = FinishedTurnDetails(
            turn=turn.id,
            session=self.session,
            request=self._parts.view.redactor.redact(turn.user_input.request.text).text,
            outcome=turn.outcome,
            user=self._parts.view.user.name,
            project=self._parts.project,
            rules=tuple(note.text for note in turn.composed.rules) if turn.composed else (),
            lessons=tuple(note.id for note in turn.composed.notes) if turn.composed else (),
            has_files=bool(turn.user_input.request.attachments or turn.user_input.request.paths),
        )
        for observer in self._parts.observers:
            try:
                self._parts.background.spawn(observer.learn(ended))
            except Exception:
                log.warning("An observer could not begin to learn; nothing else is affected.", exc_info=True)

    def judge_previous_turn_by_next_request(self, previous: tuple[str, str] | None, request: str) -> None:
        """Judge the previous turn, given as its id and request, by the next request."""
        if previous is None:
            return
        id, before = previous
        judged = infer_outcome_from_next_request(before, request)
        if judged is None:
            return
        self.write_turns_kept_during_outage()
        is_waiting = not self._parts.spool.is_empty
        if is_waiting or not self._outage.try_write(
            lambda: self._parts.journal.record_outcome(id, judged), "judge the turn before"
        ):
            self._parts.spool.add_outcome(id, judged)


def record_judgement_and_credit_success(
    journal: Journal, finder: SkillFinder, memory: UserProjectMemory, turn: str, said: TurnOutcome, *, user: str | None
) -> None:
    """Record a judgement of a turn and, if it succeeded, credit what helped. `user` None may judge every turn."""
    judged = journal.find_brief_turn(journal.record_outcome(turn, said, user=user))
    # The text of an old turn may have been deleted.
    if said.kind is OutcomeKind.OK and judged is not None and judged.is_real:
        loaded = [entry.name for entry in judged.selected if entry.place is SkillPlacementKind.LOADED]
        credit_skills_and_lessons_of_request(finder, memory, judged.request, loaded, _SAID_GOOD * said.weight)


def credit_skills_and_lessons_of_request(
    finder: SkillFinder,
    memory: UserProjectMemory,
    request: str,
    loaded: Sequence[str],
    weight: float,
    *,
    at: LibrarySnapshot | None = None,
) -> None:
    """Teach search which skills served a successful request, and memory which lessons were shown."""
    for name in loaded:
        finder.learn_request(name, request, weight=weight, at=at)
    memory.credit_lessons_for_successful_request(request)


AT_RANDOM = "withheld from this conversation at random (evidence.withhold)"
NO_VERSIONS: Mapping[tuple[str, str], AssignedVersion] = {}
# Menu lines recorded for one turn.
_MOST_LINES = 2000


@dataclass(kw_only=True, eq=False)
class TurnState:
    """Everything known about a turn so far."""

    id: str
    user_input: PreparedUserInput
    began_on: datetime
    selection: SkillSelection | None = None
    composed: ComposedPrompt | None = None
    # None if all available tools were shown.
    shown_tools: set[str] | None = None
    # Loaded by the model, the person or another skill; known at the end.
    loaded: tuple[Skill, ...] = ()
    # The loaded skills that the model itself asked for.
    asked: frozenset[str] = frozenset()
    # As far as the host provides them.
    messages: Sequence[ChatMessage] = ()
    events: list[AgentEvent] = field(default_factory=list)
    usage: TokenUsage = field(default_factory=TokenUsage)
    rounds: int = 0
    reply: str = ""
    outcome: Outcome = OK
    # Who judged the turn; empty if the outcome is only inferred.
    judged_by: str = ""
    is_capped: bool = False
    is_cancelled: bool = False

    @property
    def has_shown_scratchpad(self) -> bool:
        """Whether the model saw the scratchpad and the lessons in its description."""
        return self.shown_tools is None or SCRATCHPAD_TOPIC in self.shown_tools


def build_journal_turn(
    turn: TurnState,
    *,
    session: str,
    project: str,
    host: str,
    ended_on: datetime | None,
    exposures: Sequence[ExposureAssignment] = (),
    uses: Sequence[ItemUse] = (),
    withheld: Collection[str] = (),
    versions: Mapping[tuple[str, str], AssignedVersion] = NO_VERSIONS,
) -> Turn:
    """Build the journal entry of a turn; while `ended_on` is None, only the request.

    `exposures` began or were used in the turn; `uses` are those of steps; `withheld` are the skills that were withheld
    at random, `versions` those of which the conversation got one of two versions.
    """
    request = turn.user_input.request
    kept = Turn(
        id=turn.id,
        session=session,
        request=request.text,
        started_on=turn.began_on,
        ended_on=ended_on,
        caller_id=clean_to_one_line(turn.user_input.asking.caller_id),
        source_type=request.source_type,
        user=request.user.name,
        conversation=request.conversation,
        reply_to=request.reply_to,
        project=project,
        host=host,
        messages=tuple(encode_message_for_journal(message) for message in turn.messages),
        events=tuple(turn.events),
        usage=_build_usage_counts(turn),
    )
    if ended_on is None:
        return kept
    return replace(
        kept,
        selected=(
            *(_add_compared_version_reason(one, versions) for one in _list_skills_with_placement(turn, withheld)),
            *(_add_compared_version_reason(_build_loaded_skill_record(skill, turn), versions) for skill in turn.loaded),
        ),
        exposures=tuple(exposures),
        uses=tuple(uses),
        outcomes=() if turn.is_cancelled else (_build_turn_outcome(turn),),
    )


def _build_turn_outcome(turn: TurnState) -> TurnOutcome:
    done = turn.outcome
    if turn.judged_by == MODEL:
        said = build_full_weight_outcome(done.kind, MODEL, JudgementSourceKind.MODEL, done.reason)
        return replace(said, weight=_BY_ITSELF)
    if turn.judged_by:
        return build_full_weight_outcome(done.kind, turn.judged_by, JudgementSourceKind.PROGRAM, done.reason)
    # Inferred from how it ended.
    return _build_inferred_outcome(done.kind, _CAP if turn.is_capped else _WEIGHTS[done.kind], SIGNAL, done.reason)


def _build_usage_counts(turn: TurnState) -> dict[str, float]:
    used = turn.usage
    counted: dict[str, float] = {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cached_tokens": used.cached_tokens,
        "rounds": turn.rounds,
    }
    return counted if used.cost is None else {**counted, "cost": used.cost}


def _list_skills_with_placement(turn: TurnState, withheld: Collection[str]) -> list[SelectedSkill]:
    """Return where the selection placed each skill; empty if no prompt was composed."""
    if turn.selection is None or turn.composed is None or turn.composed.menu is None:
        return []
    cut = set(turn.composed.menu.cut)
    chosen = [
        _build_placed_skill_record(
            choice.summary, SkillPlacementKind.STICKY if choice.is_sticky else SkillPlacementKind.EAGER, choice.reason
        )
        for choice in turn.selection.eager
    ]
    menu = [
        _build_placed_skill_record(summary, SkillPlacementKind.CUT, NOT_LISTED)
        if summary.name in cut
        else _build_placed_skill_record(summary, SkillPlacementKind.MENU, "eligible")
        for summary in turn.selection.menu[:_MOST_LINES]
    ]
    found = [
        replace(one, place=SkillPlacementKind.WITHHELD, reason=AT_RANDOM) if one.name in withheld else one
        for one in (*chosen, *menu)
    ]
    left_out = turn.selection.left_out.items()
    out = [SelectedSkill(name=name, place=SkillPlacementKind.LEFT_OUT, reason=why) for name, why in left_out]
    return [*found, *out[:_MOST_LINES]]


def _build_loaded_skill_record(skill: Skill, turn: TurnState) -> SelectedSkill:
    invoked = turn.user_input.asking.invoked
    is_by_person = invoked is not None and invoked.name == skill.name and skill.name not in turn.asked
    came = "the person asked for it" if is_by_person else "it came with another"
    reason = "the model asked for it" if skill.name in turn.asked else came
    return _build_placed_skill_record(skill, SkillPlacementKind.LOADED, reason)


# Places in which the model read the text.
_READ = frozenset({SkillPlacementKind.EAGER, SkillPlacementKind.STICKY, SkillPlacementKind.LOADED})


def _add_compared_version_reason(
    selected: SelectedSkill, versions: Mapping[tuple[str, str], AssignedVersion]
) -> SelectedSkill:
    """Add why the model read this version of a skill that is compared in use, or its line if the line was changed."""
    assigned = versions.get((selected.name, selected.layer))
    if assigned is None:
        return selected
    is_line_compared = assigned.comparison.is_cue_changed and selected.place is SkillPlacementKind.MENU
    if selected.place not in _READ and not is_line_compared:
        return selected
    return replace(selected, reason=f"{selected.reason}; {assigned.reason}")


def _build_placed_skill_record(skill: SkillSummary, place: SkillPlacementKind, reason: str) -> SelectedSkill:
    return SelectedSkill(name=skill.name, place=place, reason=reason, layer=skill.layer, version=skill.version)


# The source of a judgement that was inferred.
SIGNAL = "signal"
MODEL = "model"  # the model judges its own work
_EXPLICIT = 1.0
_BY_ITSELF = 0.25
# Inferred outcomes are weak evidence, except that an infrastructure failure is certain.
_WEIGHTS = {OutcomeKind.INFRA: 1.0, OutcomeKind.FAILED: 0.3, OutcomeKind.OK: 0.2}
_CAP = 0.5


def build_full_weight_outcome(
    kind: OutcomeKind, source: str, source_kind: JudgementSourceKind, reason: str = ""
) -> TurnOutcome:
    """Return a judgement with full weight, by a person, a validator or the calling program."""
    return TurnOutcome(kind=kind, weight=_EXPLICIT, source=source, source_kind=source_kind, reason=reason)


def infer_outcome_from_next_request(before: str, now: str) -> TurnOutcome | None:
    """Judge the previous turn by the next request: a correction or repetition means failure. None otherwise."""
    if is_correction_of_last_answer(now):
        return _build_inferred_outcome(OutcomeKind.FAILED, 0.4, NEXT_TURN, "the user corrected it")
    if _is_repetition_of_previous_request(before, now):
        return _build_inferred_outcome(OutcomeKind.FAILED, 0.3, NEXT_TURN, "the user asked the same again")
    return None


def _build_inferred_outcome(kind: OutcomeKind, weight: float, source: str, reason: str) -> TurnOutcome:
    return TurnOutcome(kind=kind, weight=weight, source=source, source_kind=JudgementSourceKind.SIGNAL, reason=reason)


_CORRECTION = re.compile(
    r"""(?ix) ^\W* (?:
        no [,.!—-] | nope\b | wrong\b | incorrect\b
      | (?:that|this|it)(?:['’]s|\s+is|\s+was)? \s+ (?:not\s+(?:what|right|correct|it)|wrong|incorrect)
      | (?:that|it) \s+ (?:did\s*n['’]?o?t|does\s*n['’]?o?t) \s+ work
      | you (?:['’]re|\s+are|\s+got|\s+did|\s+have|\s+made) \b .{0,20} \b (?:wrong|mistake|mistaken)
      | you (?:['’]ve|\s+have)? \s+ (?:misunderstood|forgot|forgotten|missed) \b
      | i \s+ (?:said|meant|asked\s+for|did\s*n['’]?t\s+ask)
      | not \s+ what \s+ i
      | try \s+ again
      | nein [,.!—-] | falsch\b | das \s+ (?:ist|war) \s+ (?:falsch|nicht) | ich \s+ meinte
      | non [,.!—-] | c['’]est \s+ faux | ce \s+ n['’]est \s+ pas
      | está \s+ mal | eso \s+ no | no \s+ es \s+ (?:eso|lo)
    )"""
)


def is_correction_of_last_answer(text: str) -> bool:
    """Whether a request begins by saying that the last answer was wrong."""
    return _CORRECTION.match(text[:200]) is not None


# Eight of ten words in common is the same request in other words.
def _is_repetition_of_previous_request(before: str, now: str) -> bool:
    a, b = (set(re.findall(r"\w+", text[:2000].lower())) for text in (before, now))
    if min(len(a), len(b)) < 3:
        return before.strip().lower() == now.strip().lower() and bool(now.strip())
    return len(a & b) / len(a | b) >= 0.8
