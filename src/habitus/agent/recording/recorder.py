"""Records a finished turn: journals it with its uses, credits what helped, and starts learning."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from habitus.agent.choosing.exposures import make_skill_evidence_item
from habitus.agent.history import has_stage_replaced_steps
from habitus.agent.prompts.composer import ConversationServices
from habitus.agent.recording.journal_entry import build_journal_turn
from habitus.agent.recording.outcomes import (
    SAID_GOOD,
    SEEMED_GOOD,
    credit_skills_and_lessons_of_request,
    infer_outcome_from_next_request,
)
from habitus.agent.turn_state import TurnState
from habitus.events import EventKind, FinishedTurnDetails, OutcomeKind
from habitus.evidence.model import classify_request_kind, has_left_trace_of_steps
from habitus.journal.model import (
    ExposureAssignment,
    ItemUse,
    Turn,
    TurnOrigin,
    UseManner,
    classify_turn_origin,
)
from habitus.llm.model import AssistantMessage
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import INTERACTIVE_SOURCES
from habitus.skills.model import Skill, Stage

log = logging.getLogger(__name__)
_CONSEQUENCE = {
    True: "This turn used the last known state; it will be recorded when the database is back.",
    False: "This turn used the last known state and could not be recorded; see 'habitus doctor'.",
}


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
            parts.spool.record_dropped_entry()
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
        used |= {
            make_skill_evidence_item(one.skill): not one.has_trace for one in shown if one.manner is not UseManner.SHOWN
        }
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
        weight = SAID_GOOD if turn.judged_by else SEEMED_GOOD
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
