"""The SessionErrorLearner, which learns from errors during a session as the observer of its turns and cells."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Protocol

from habitus.events import AgentEvent, EventKind, FinishedTurnDetails
from habitus.learning.budget import DEFAULT_PATIENCE_S, DailyTokenUsageStore
from habitus.learning.detectors.error_signatures import make_error_signature
from habitus.learning.detectors.monitor import ACC, MonitorMode, never_has_similar_rule
from habitus.learning.detectors.rules import DetectorLesson, drop_covered_lessons, run_detectors
from habitus.learning.post_mortem import CONSOLIDATION_SOURCE, BufferedCell, Cerebellum
from habitus.learning.remedies.calls import SessionCall, pair_calls_with_results
from habitus.llm.model import Model
from habitus.memory.model import (
    HIGH_CONFIDENCE,
    LessonDraft,
    LessonDraftOutcome,
    LessonDraftResult,
    LessonProducer,
    LessonProvenance,
    LessonScope,
)
from habitus.redact import PATTERNS_ONLY, Redactor
from habitus.sandbox.model import Cell

log = logging.getLogger(__name__)


class LessonSink(Protocol):
    """Memory, as seen by the parts that teach it."""

    def is_learning_enabled(self) -> bool: ...

    def encode(self, draft: LessonDraft) -> LessonDraftResult: ...

    def has_similar_lesson(self, text: str) -> bool: ...

    def record_ignored_rules(self, rules: Sequence[str]) -> object:
        """Count rules that stood in the prompt and were broken anyway."""
        ...


class SessionErrorLearner:
    """Runs the ACC and the Cerebellum of one session and teaches memory.

    With mode off it does nothing; without a memory it only advises, and without a model only the ACC teaches.
    """

    def __init__(
        self,
        keeper: LessonSink | None,
        model: Model | None = None,
        *,
        spending: DailyTokenUsageStore,
        mode: MonitorMode | str = MonitorMode.PASSIVE,
        redactor: Redactor = PATTERNS_ONLY,
        remedy: Callable[[SessionCall], str] = lambda call: "",
        patience_s: float = DEFAULT_PATIENCE_S,
    ) -> None:
        # Returns the known remedy for a failed call; empty if there is none.
        self._remedy = remedy
        # Calls of this turn that were not looked up yet.
        self._calls: list[AgentEvent] = []
        # Remedies told in this turn.
        self._told: set[str] = set()
        self.model = model
        self._keeper = keeper
        self._redactor = redactor
        self._cerebellum = Cerebellum(
            model, self._store_draft_and_note_new_lesson, spending=spending, redactor=redactor, patience_s=patience_s
        )
        self._acc = ACC(mode, keeper.has_similar_lesson if keeper is not None else never_has_similar_rule)
        self._learned: list[LessonDraftResult] = []

    @property
    def mode(self) -> MonitorMode:
        return self._acc.mode

    def observe(self, event: AgentEvent) -> None:
        """Record an event of the running turn."""
        self._acc.record_event_of_known_kind(event)
        if self.mode is not MonitorMode.OFF:
            self._cerebellum.buffer_failed_call_from_event(event)
            if event.kind in (EventKind.TOOL_CALL, EventKind.TOOL_RESULT):
                self._calls.append(event)

    def on_pre_execute(self, cell: Cell) -> None:
        self._cerebellum.on_pre_execute(cell)

    def on_post_execute(self, cell: Cell) -> None:
        if self.mode is not MonitorMode.OFF:
            self._cerebellum.on_post_execute(cell)

    async def list_new_advice(self) -> Sequence[str]:
        """Return remedies for the latest failures, and nudges; each is said once per turn."""
        events, self._calls, told = self._calls, [], self._told
        failed = [call for call in pair_calls_with_results(events) if call.success is False]
        remedies = dict.fromkeys([await asyncio.to_thread(self._remedy, call) for call in failed])
        new = [remedy for remedy in remedies if remedy and remedy not in told]
        told.update(new)
        return [
            *(f"[Habitus remedy] {remedy}" for remedy in new),
            *(lesson.nudge for lesson in self._acc.collect_nudges()),
        ]

    def _forget_calls_and_told_remedies(self) -> None:
        self._calls, self._told = [], set()

    def take_new_lessons(self) -> tuple[LessonDraftResult, ...]:
        """Return the lessons stored since the last call, so the user can be told."""
        taken, self._learned = tuple(self._learned), []
        return taken

    def _store_draft_and_note_new_lesson(self, draft: LessonDraft) -> LessonDraftResult:
        # A learner without memory only advises and never gets here.
        assert self._keeper is not None
        encoded = self._keeper.encode(draft)
        if encoded.status in (LessonDraftOutcome.STORED, LessonDraftOutcome.PENDING):
            self._learned.append(encoded)
        return encoded

    def drop_cancelled_turn(self) -> None:
        """Drop everything about a cancelled turn."""
        self._forget_calls_and_told_remedies()
        self._acc.drop_cancelled_turn_events()
        self._cerebellum.drop_cancelled_turn_cells()

    def learn(self, ended: FinishedTurnDetails) -> Coroutine[Any, Any, None]:
        """Take the turn's events and cells at once, before the next turn adds its own.

        The returned coroutine learns from them.
        """
        self._forget_calls_and_told_remedies()
        events = self._acc.end_turn_and_return_events()
        self._cerebellum.mark_turn_cells_by_outside_content(has_files=ended.has_files)
        # Buffered cells wait for the next turn that goes wrong: a clean turn never calls a model.
        cells = () if self._cerebellum.has_no_failure_in_turn else self._cerebellum.remove_and_return_buffered_cells()
        return self._learn_from_turn(ended, events, cells)

    async def _learn_from_turn(
        self, ended: FinishedTurnDetails, events: tuple[AgentEvent, ...], cells: tuple[BufferedCell, ...]
    ) -> None:
        if self._keeper is None or self.mode is MonitorMode.OFF or not (events or cells):
            return
        # Memory works in a thread, because the reply may be on its way to the user meanwhile.
        try:
            if not await asyncio.to_thread(self._keeper.is_learning_enabled):
                return
        except Exception:
            log.warning(
                "Could not ask memory whether it takes lessons; turn %s teaches none.", ended.turn, exc_info=True
            )
            return
        try:
            await asyncio.to_thread(self._learn_from_events, self._keeper, ended, events)
        except Exception:
            log.warning("Learning from the events of turn %s failed.", ended.turn, exc_info=True)
        try:
            await self._cerebellum.run_post_mortems_and_store_lessons(cells, ended)
        except Exception:
            log.warning("Learning from the cells of turn %s failed.", ended.turn, exc_info=True)

    def _learn_from_events(
        self, keeper: LessonSink, ended: FinishedTurnDetails, events: tuple[AgentEvent, ...]
    ) -> None:
        fired = run_detectors(events)
        if broken := find_broken_prompt_rules(fired, ended.rules):
            keeper.record_ignored_rules(broken)
        for lesson in self._acc.filter_new_lessons(drop_covered_lessons(fired)):
            evidence = LessonProvenance(trace=ended.turn, session=ended.session)
            draft = draft_detector_lesson(
                lesson, evidence, redactor=self._redactor, user=ended.user, project=ended.project
            )
            try:
                self._store_draft_and_note_new_lesson(draft)
            # One lesson that can't be stored must not stop the others.
            except Exception:
                log.warning("The lesson of %s could not be stored.", lesson.detector, exc_info=True)


def find_broken_prompt_rules(fired: Sequence[DetectorLesson], in_prompt: Sequence[str]) -> list[str]:
    """Return the rules in the prompt that the model broke."""
    rules = {_collapse_whitespace(lesson.rule) for lesson in fired}
    return [rule for rule in in_prompt if _collapse_whitespace(rule) in rules]


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


def draft_detector_lesson(
    lesson: DetectorLesson, evidence: LessonProvenance, *, redactor: Redactor, user: str, project: str
) -> LessonDraft:
    """Return a detector's lesson as a draft for memory; `evidence` says where it was learned."""
    error = redactor.redact(_find_last_error_signature(lesson.evidence)).text
    return LessonDraft(
        text=lesson.rule,
        kind=lesson.kind,
        scope=LessonScope.GLOBAL,
        confidence=HIGH_CONFIDENCE,
        produced_by=LessonProducer.DETECTOR,
        source=CONSOLIDATION_SOURCE,
        evidence=replace(evidence, detector=lesson.detector, error_signature=error),
        user=user,
        project=project,
    )


def _find_last_error_signature(evidence: Sequence[AgentEvent]) -> str:
    """Return the signature of the last error among the events; empty if there is none."""
    failed = (EventKind.TOOL_RESULT, EventKind.SCRATCHPAD_RESULT)
    errors = [str(event.detail.get("error") or "") for event in evidence if event.kind in failed]
    return next((make_error_signature(error) for error in reversed(errors) if error), "")
