"""The Learner, which learns from errors during a session as the observer of its turns and cells."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Protocol

from habitus.events import Event, EventKind, TurnEnded
from habitus.learning.budget import PATIENCE_S, Spending
from habitus.learning.detectors.error_signatures import signature
from habitus.learning.detectors.monitor import ACC, Mode, knows_nothing
from habitus.learning.detectors.rules import Lesson, collapse, detect
from habitus.learning.post_mortem import CONSOLIDATION, Cerebellum, Waiting
from habitus.learning.remedies.calls import Call, calls
from habitus.llm.model import Model
from habitus.memory.model import HIGH, Draft, Encoded, Evidence, Producer, Scope, Status
from habitus.redact import PATTERNS_ONLY, Redactor
from habitus.sandbox.model import Cell

log = logging.getLogger(__name__)


class LessonKeeper(Protocol):
    """Memory, as seen by the parts that teach it."""

    def is_taking(self) -> bool: ...

    def encode(self, draft: Draft) -> Encoded: ...

    def has_similar(self, text: str) -> bool: ...

    def count_ignored(self, rules: Sequence[str]) -> object:
        """Count rules that stood in the prompt and were broken anyway."""
        ...


class Learner:
    """Runs the ACC and the Cerebellum of one session and teaches memory.

    With mode off it does nothing; without a memory it only advises, and without a model only the ACC teaches.
    """

    def __init__(
        self,
        keeper: LessonKeeper | None,
        model: Model | None = None,
        *,
        spending: Spending,
        mode: Mode | str = Mode.PASSIVE,
        redactor: Redactor = PATTERNS_ONLY,
        remedy: Callable[[Call], str] = lambda call: "",
        patience_s: float = PATIENCE_S,
    ) -> None:
        # Returns the known remedy for a failed call; empty if there is none.
        self._remedy = remedy
        # Calls of this turn that were not looked up yet.
        self._calls: list[Event] = []
        # Remedies told in this turn.
        self._told: set[str] = set()
        self._keeper = keeper
        self._redactor = redactor
        self._cerebellum = Cerebellum(model, self._encode, spending=spending, redactor=redactor, patience_s=patience_s)
        self._acc = ACC(mode, keeper.has_similar if keeper is not None else knows_nothing)
        self._learned: list[Encoded] = []

    @property
    def mode(self) -> Mode:
        return self._acc.mode

    def observe(self, event: Event) -> None:
        """Record an event of the running turn."""
        self._acc.observe_event(event)
        if self.mode is not Mode.OFF:
            self._cerebellum.on_event(event)
            if event.kind in (EventKind.TOOL_CALL, EventKind.TOOL_RESULT):
                self._calls.append(event)

    def on_pre_execute(self, cell: Cell) -> None:
        self._cerebellum.on_pre_execute(cell)

    def on_post_execute(self, cell: Cell) -> None:
        if self.mode is not Mode.OFF:
            self._cerebellum.on_post_execute(cell)

    async def advise(self) -> Sequence[str]:
        """Return remedies for the latest failures, and nudges; each is said once per turn."""
        events, self._calls, told = self._calls, [], self._told
        failed = [call for call in calls(events) if call.success is False]
        remedies = dict.fromkeys([await asyncio.to_thread(self._remedy, call) for call in failed])
        new = [remedy for remedy in remedies if remedy and remedy not in told]
        told.update(new)
        return [*(f"[Habitus remedy] {remedy}" for remedy in new), *(lesson.nudge for lesson in self._acc.at_round())]

    def _forget_failures(self) -> None:
        self._calls, self._told = [], set()

    def take_learned(self) -> tuple[Encoded, ...]:
        """Return the lessons stored since the last call, so the user can be told."""
        taken, self._learned = tuple(self._learned), []
        return taken

    def _encode(self, draft: Draft) -> Encoded:
        # A learner without memory only advises and never gets here.
        assert self._keeper is not None
        encoded = self._keeper.encode(draft)
        if encoded.status in (Status.STORED, Status.WAITING):
            self._learned.append(encoded)
        return encoded

    def cancelled(self) -> None:
        """Drop everything about a cancelled turn."""
        self._forget_failures()
        self._acc.reset()
        self._cerebellum.reset()

    def learn(self, ended: TurnEnded) -> Coroutine[Any, Any, None]:
        """Take the turn's events and cells at once, before the next turn adds its own.

        The returned coroutine learns from them.
        """
        self._forget_failures()
        events = self._acc.take()
        # Buffered cells wait for the next turn that goes wrong: a clean turn never calls a model.
        cells = () if self._cerebellum.is_turn_clean else self._cerebellum.take()
        return self._learn(ended, events, cells)

    async def _learn(self, ended: TurnEnded, events: tuple[Event, ...], cells: tuple[Waiting, ...]) -> None:
        if self._keeper is None or self.mode is Mode.OFF or not (events or cells):
            return
        # Memory works in a thread, because the reply may be on its way to the user meanwhile.
        try:
            if not await asyncio.to_thread(self._keeper.is_taking):
                return
        except Exception:
            log.warning(
                "Could not ask memory whether it takes lessons; turn %s teaches none.", ended.turn, exc_info=True
            )
            return
        try:
            await asyncio.to_thread(self._from_events, self._keeper, ended, events)
        except Exception:
            log.warning("Learning from the events of turn %s failed.", ended.turn, exc_info=True)
        try:
            await self._cerebellum.study(cells, ended)
        except Exception:
            log.warning("Learning from the cells of turn %s failed.", ended.turn, exc_info=True)

    def _from_events(self, keeper: LessonKeeper, ended: TurnEnded, events: tuple[Event, ...]) -> None:
        fired = detect(events)
        if broken := broken_rules(fired, ended.rules):
            keeper.count_ignored(broken)
        for lesson in self._acc.not_known(collapse(fired)):
            evidence = Evidence(trace=ended.turn, session=ended.session)
            draft = draft_lesson(lesson, evidence, redactor=self._redactor, user=ended.user, project=ended.project)
            try:
                self._encode(draft)
            # One lesson that can't be stored must not stop the others.
            except Exception:
                log.warning("The lesson of %s could not be stored.", lesson.detector, exc_info=True)


def broken_rules(fired: Sequence[Lesson], in_prompt: Sequence[str]) -> list[str]:
    """Return the rules in the prompt that the model broke."""
    rules = {_plain(lesson.rule) for lesson in fired}
    return [rule for rule in in_prompt if _plain(rule) in rules]


def _plain(text: str) -> str:
    return " ".join(text.split())


def draft_lesson(lesson: Lesson, evidence: Evidence, *, redactor: Redactor, user: str, project: str) -> Draft:
    """Return a detector's lesson as a draft for memory; `evidence` says where it was learned."""
    error = redactor.redact(_signature(lesson.evidence)).text
    return Draft(
        text=lesson.rule,
        kind=lesson.kind,
        scope=Scope.GLOBAL,
        confidence=HIGH,
        produced_by=Producer.DETECTOR,
        source=CONSOLIDATION,
        evidence=replace(evidence, detector=lesson.detector, error_signature=error),
        user=user,
        project=project,
    )


def _signature(evidence: Sequence[Event]) -> str:
    """Return the signature of the last error among the events; empty if there is none."""
    failed = (EventKind.TOOL_RESULT, EventKind.SCRATCHPAD_RESULT)
    errors = [str(event.detail.get("error") or "") for event in evidence if event.kind in failed]
    return next((signature(error) for error in reversed(errors) if error), "")
