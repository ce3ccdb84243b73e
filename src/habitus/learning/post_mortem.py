"""The Cerebellum, which learns from single cells and calls that failed, and its post-mortem by a model."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pydantic import BaseModel, Field

from habitus.events import OK, AgentEvent, EventKind, FinishedTurnDetails
from habitus.learning.budget import (
    DEFAULT_PATIENCE_S,
    BudgetedModel,
    BudgetReachedError,
    DailyTokenUsageStore,
    RunBudget,
    ask_for_structured_answer,
)
from habitus.learning.detectors.error_signatures import make_error_signature
from habitus.learning.provenance import OutsideContentTracker
from habitus.llm.model import Model, ProviderError, UnusableAnswerError
from habitus.memory.model import (
    SCRATCHPAD_TOPIC,
    LessonDraft,
    LessonDraftResult,
    LessonKind,
    LessonProducer,
    LessonProvenance,
    LessonScope,
)
from habitus.redact import MARKER, Redactor
from habitus.sandbox.model import Cell, CellStopReason
from habitus.text import estimate_tokens, load_prompt

log = logging.getLogger(__name__)
MAX_LESSONS = 3
# In one call of the model.
MAX_CELLS = 12
# Tokens of an answer; three sentences need a fifth of that.
MAX_ANSWER_TOKENS = 800


class PostMortemAnswer(BaseModel):
    """The model's answer to a post-mortem."""

    lessons: list[str] = Field(
        description="At most three lessons of one sentence each; empty when nothing generalises."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedLesson:
    """A lesson of a model that was not accepted, and why."""

    text: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PostMortemResult:
    """The accepted and the rejected lessons of a post-mortem."""

    lessons: tuple[str, ...] = ()
    refused: tuple[RejectedLesson, ...] = ()


async def run_post_mortem(
    cells: Sequence[Cell], *, model: BudgetedModel, redactor: Redactor, patience_s: float = DEFAULT_PATIENCE_S
) -> PostMortemResult:
    """Ask the model about all cells in one call. Raises the errors of `ask_for_structured_answer`."""
    record = render_newest_cells_as_json(cells, redactor)
    answer = await ask_for_structured_answer(
        model,
        PostMortemAnswer,
        system=load_prompt("learning", "post-mortem"),
        record=record,
        max_tokens=MAX_ANSWER_TOKENS,
        patience_s=patience_s,
    )
    lessons, refused = split_accepted_and_rejected_lessons(answer.lessons, cells, redactor)
    return PostMortemResult(lessons=lessons, refused=refused)


def estimate_post_mortem_tokens(record: str) -> int:
    """Estimate the tokens of one call."""
    return estimate_tokens(load_prompt("learning", "post-mortem") + record) + MAX_ANSWER_TOKENS // 4


_MAX_FIELD_CHARS = {"intended": 200, "did": 1000, "printed": 300, "warned": 500, "failed": 800}


def render_newest_cells_as_json(cells: Sequence[Cell], redactor: Redactor) -> str:
    """Return the newest cells as JSON, so their output can't pose as instructions."""
    steps = [
        {
            "intended": _redact_and_cut_end(cell.description or "(not said)", _MAX_FIELD_CHARS["intended"], redactor),
            "did": _redact_and_cut_end(cell.code, _MAX_FIELD_CHARS["did"], redactor),
            "printed": _redact_and_cut_start(cell.stdout, _MAX_FIELD_CHARS["printed"], redactor),
            "warned": _redact_and_cut_start(cell.stderr, _MAX_FIELD_CHARS["warned"], redactor),
            "failed": _redact_and_cut_start(cell.error or "", _MAX_FIELD_CHARS["failed"], redactor),
        }
        for cell in cells[-MAX_CELLS:]
    ]
    kept = [{key: value for key, value in step.items() if value} for step in steps]
    return json.dumps(kept, ensure_ascii=False, indent=1)


def _redact_and_cut_end(text: str, limit: int, redactor: Redactor) -> str:
    """Redact the text, then cut its end."""
    # Redacted before it is cut, so half a secret can't escape the patterns.
    safe = redactor.redact(text[: limit * 20]).text.strip()
    return safe if len(safe) <= limit else safe[:limit] + " …"


def _redact_and_cut_start(text: str, limit: int, redactor: Redactor) -> str:
    safe = redactor.redact(text[-limit * 20 :]).text.strip()
    return safe if len(safe) <= limit else "… " + safe[-limit:]


SHORTEST, LONGEST = 20, 300
# A run of this many words from the output counts as a quotation.
QUOTATION_WORDS = 6
_ADDRESS_PATTERN = re.compile(r"(?i)\b(?:https?|ftp|file|ssh)://|\bwww\.|[\w.+-]+@[\w-]+\.\w")


def split_accepted_and_rejected_lessons(
    lessons: Sequence[str], cells: Sequence[Cell], redactor: Redactor
) -> tuple[tuple[str, ...], tuple[RejectedLesson, ...]]:
    """Return the first three acceptable lessons, and the rejected ones with the reason."""
    said = _list_quotation_length_word_runs(
        " ".join(f"{cell.stdout} {cell.stderr} {cell.error or ''} |" for cell in cells)
    )
    kept: list[str] = []
    refused: list[RejectedLesson] = []
    for given in lessons:
        text = redactor.redact(" ".join(given.split())).text
        reason = _find_lesson_text_objection(text, said)
        if reason:
            refused.append(RejectedLesson(text=text[:LONGEST], reason=reason))
        elif text not in kept and len(kept) < MAX_LESSONS:
            kept.append(text)
    for refusal in refused:
        log.info("A lesson of the post-mortem was rejected: %s.", refusal.reason)
    return tuple(kept), tuple(refused)


def _find_lesson_text_objection(text: str, said: set[tuple[str, ...]]) -> str:
    if len(text) < SHORTEST:
        return "it says nothing"
    if len(text) > LONGEST:
        return f"it is longer than {LONGEST} characters"
    if not text.isprintable():
        return "it has invisible characters"
    if MARKER.search(text):
        return "it has a secret in it"
    if _ADDRESS_PATTERN.search(text):
        return "it has an address in it"
    # Output may come from an attacker, so a lesson must not carry its words into later prompts.
    if _list_quotation_length_word_runs(text) & said:
        return "it repeats what the output said"
    return ""


def _list_quotation_length_word_runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[at : at + QUOTATION_WORDS]) for at in range(len(words) - QUOTATION_WORDS + 1)}


# The source of lessons learned from errors.
CONSOLIDATION_SOURCE = "consolidation"
# After three failed calls a cell is dropped.
MAX_TRIES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class BufferedCell:
    """A cell, or a failed call of another tool, that is buffered for a post-mortem."""

    cell: Cell
    topic: str = SCRATCHPAD_TOPIC
    tries: int = 0
    is_own: bool = False  # of a turn that read nothing from outside


@dataclass(eq=False)
class Cerebellum:
    """Observes the cells of one session and studies those that failed, after the turn.

    Without a model it learns nothing, and a cell that the user stopped teaches nothing.
    """

    model: Model | None
    encode: Callable[[LessonDraft], LessonDraftResult]
    spending: DailyTokenUsageStore = field(kw_only=True)
    redactor: Redactor = field(kw_only=True)
    patience_s: float = field(default=DEFAULT_PATIENCE_S, kw_only=True)
    _turn: deque[BufferedCell] = field(default_factory=partial(deque, maxlen=MAX_CELLS))
    # Cells of earlier turns whose post-mortem failed.
    _earlier: deque[BufferedCell] = field(default_factory=partial(deque, maxlen=MAX_CELLS))
    _unstored: deque[LessonDraft] = field(default_factory=partial(deque, maxlen=MAX_CELLS))
    # Calls that have not returned yet, by id.
    _calls: dict[str, Cell] = field(default_factory=dict)
    _sources: OutsideContentTracker = field(default_factory=OutsideContentTracker)

    def on_pre_execute(self, cell: Cell) -> None:
        self._sources.record_cell_reads_and_writes(cell.code)

    def on_post_execute(self, cell: Cell) -> None:
        """Buffer a cell that failed or warned."""
        if self.model is not None and _has_failed_or_warned(cell):
            self._turn.append(BufferedCell(cell=cell))

    def buffer_failed_call_from_event(self, event: AgentEvent) -> None:
        """Buffer a failed call of any tool; its stated intent, or its arguments, stand for the description."""
        detail = {key: str(value) for key, value in event.detail.items()}
        id, name = detail.get("id", ""), detail.get("name", "")
        if event.kind is EventKind.TOOL_CALL:
            self._sources.record_called_tool(name)
        if not id or name == SCRATCHPAD_TOPIC or self.model is None:
            return
        if event.kind is EventKind.TOOL_CALL:
            written = f"{name}({detail.get('args_summary', '')})"
            self._calls[id] = Cell(code=written, description=detail.get("intent", "") or written)
        elif event.kind is EventKind.TOOL_RESULT:
            cell = self._calls.pop(id, None)
            if cell is not None and event.detail.get("success") is False:
                self._turn.append(BufferedCell(cell=replace(cell, error=detail.get("error", "")), topic=name))

    @property
    def buffered_count(self) -> int:
        """The number of cells that wait for a post-mortem."""
        return len(self._turn) + len(self._earlier)

    @property
    def has_no_failure_in_turn(self) -> bool:
        """Whether no cell or call of this turn failed."""
        return not self._turn

    def drop_cancelled_turn_cells(self) -> None:
        """Drop the cells of a cancelled turn; those of earlier turns stay buffered."""
        self._turn.clear()
        self._calls.clear()
        self._sources.end_turn_and_check_free_of_outside_content(has_files=False)

    def mark_turn_cells_by_outside_content(self, *, has_files: bool) -> None:
        """The turn is over: say of its cells whether it read anything from outside."""
        is_own = self._sources.end_turn_and_check_free_of_outside_content(has_files=has_files)
        self._turn = deque((replace(waiting, is_own=is_own) for waiting in self._turn), maxlen=MAX_CELLS)

    def remove_and_return_buffered_cells(self) -> tuple[BufferedCell, ...]:
        """Take all buffered cells; later ones belong to the next turn."""
        taken = (*self._earlier, *self._turn)
        self._turn, self._earlier = deque(maxlen=MAX_CELLS), deque(maxlen=MAX_CELLS)
        self._calls.clear()
        return taken

    async def flush(self) -> tuple[LessonDraft, ...]:
        """Study all buffered cells and store the lessons."""
        return await self.run_post_mortems_and_store_lessons(
            self.remove_and_return_buffered_cells(), FinishedTurnDetails(turn="", request="", outcome=OK, user="")
        )

    async def run_post_mortems_and_store_lessons(
        self, taken: Sequence[BufferedCell], ended: FinishedTurnDetails
    ) -> tuple[LessonDraft, ...]:
        """Run the post-mortems of these cells, one call per tool; if one fails, its cells are buffered again."""
        if self.model is None or not taken:
            return ()
        about: dict[str, list[BufferedCell]] = {}
        for waiting in taken[-MAX_CELLS:]:
            about.setdefault(waiting.topic, []).append(waiting)
        found = [await self._run_post_mortem_for_tool(each, topic, ended) for topic, each in about.items()]
        return tuple(draft for drafts in found for draft in drafts)

    async def _run_post_mortem_for_tool(
        self, taken: Sequence[BufferedCell], topic: str, ended: FinishedTurnDetails
    ) -> tuple[LessonDraft, ...]:
        assert self.model is not None
        cells = [waiting.cell for waiting in taken]
        try:
            found = await run_post_mortem(
                cells,
                model=RunBudget(day=self.spending).wrap_model(self.model),
                redactor=self.redactor,
                patience_s=self.patience_s,
            )
        except BudgetReachedError as reached:
            self._buffer_cells_for_retry(taken, counts=False)
            if await asyncio.to_thread(self.spending.claim_cap_notice):
                log.warning("%s", reached)
            return ()
        except (ProviderError, UnusableAnswerError, TimeoutError) as fault:
            self._buffer_cells_for_retry(taken)
            log.warning("Learning from failures is postponed: %s", str(fault) or type(fault).__name__)
            return ()
        except BaseException:
            self._buffer_cells_for_retry(taken)
            raise
        error = self.redactor.redact(find_last_error_or_warning_signature(cells)).text
        evidence = LessonProvenance(trace=ended.turn, session=ended.session, error_signature=error)
        drafts = tuple(
            replace(
                draft_post_mortem_lesson(text, evidence=evidence, topic=topic, user=ended.user, project=ended.project),
                is_own=all(waiting.is_own for waiting in taken),
            )
            for text in found.lessons
        )
        await asyncio.to_thread(self._store_lesson_drafts_or_postpone, drafts)
        return drafts

    def _store_lesson_drafts_or_postpone(self, drafts: Sequence[LessonDraft]) -> None:
        """Store the drafts; one that can't be stored is tried again next time."""
        waiting = (*self._unstored, *drafts)
        self._unstored.clear()
        for draft in waiting:
            try:
                self.encode(draft)
            except Exception:
                log.warning("A lesson of the post-mortem could not be stored; it waits.", exc_info=True)
                self._unstored.append(draft)

    def _buffer_cells_for_retry(self, taken: Sequence[BufferedCell], *, counts: bool = True) -> None:
        again = [replace(waiting, tries=waiting.tries + counts) for waiting in taken]
        self._earlier.extend(waiting for waiting in again if waiting.tries < MAX_TRIES)


def draft_post_mortem_lesson(
    text: str, *, evidence: LessonProvenance, topic: str, user: str = "", project: str = ""
) -> LessonDraft:
    """Return a lesson of a post-mortem as a draft for memory."""
    return LessonDraft(
        text=text,
        kind=LessonKind.LESSON,
        scope=LessonScope.PROJECT,
        produced_by=LessonProducer.CEREBELLUM,
        topic=topic,
        source=CONSOLIDATION_SOURCE,
        evidence=evidence,
        user=user,
        project=project,
    )


def find_last_error_or_warning_signature(cells: Sequence[Cell]) -> str:
    """Return the signature of the last error, or of the last warning if nothing failed; empty if there is neither."""
    errors = [cell.error for cell in cells if cell.error] or [cell.stderr for cell in cells]
    return make_error_signature(errors[-1]) if errors else ""


def _has_failed_or_warned(cell: Cell) -> bool:
    return not cell.has_no_error_or_stderr and cell.stopped is not CellStopReason.CANCELLED
