"""Study transcripts of agents: find the files, report what they show, and teach memory."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from habitus.app.conversations import models
from habitus.app.home import Home, refuse_if_read_only
from habitus.app.learning import learning
from habitus.app.learning.learning import FailuresAndCorrectionsAggregator, RecurringFailureReport
from habitus.app.learning.mining import RecipeOrSkillSuggestion, RepeatedProcedureFinder
from habitus.errors import Invalid, NotFound, Refused
from habitus.files import parse_user_path
from habitus.hosts.known_agents import STUDIED_AGENTS
from habitus.learning.budget import BudgetReachedError, RunBudget
from habitus.learning.post_mortem import (
    RejectedLesson,
    estimate_post_mortem_tokens,
    render_newest_cells_as_json,
    run_post_mortem,
)
from habitus.learning.remedies.calls import parse_iso_timestamp
from habitus.learning.transcripts.applying import LessonBatch, TranscriptLessonRecordingCounts
from habitus.learning.transcripts.failed_calls import FailedCallCollector
from habitus.learning.transcripts.firings import DetectorFiringsSummary, list_detector_firings_in_turn
from habitus.learning.transcripts.formats.registry import FORMATS, UNKNOWN, detect_format
from habitus.learning.transcripts.learned_turns import LearnedTurnStore, LearningMethodKind
from habitus.learning.transcripts.study import StudiedTurn, StudiedTurnCountsResult, visit_studied_turns_of_file
from habitus.llm.model import Model, ProviderError, SessionModels, UnusableAnswerError
from habitus.pause import LearningPauseSwitch
from habitus.redact import CountingRedactor
from habitus.settings import MemoryLearningMode, Settings

_SUFFIXES = (".jsonl", ".json", ".ndjson", ".zst")


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePostMortemResult:
    """The lessons that a model extracted from the failures of one file; `error` says why there are none."""

    file: Path
    lessons: tuple[str, ...] = ()
    refused: tuple[RejectedLesson, ...] = ()
    tokens: int = 0
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscriptStudyReport:
    """The findings of a study, by detector, skill, remedy and procedure, and what was stored."""

    files: tuple[StudiedTurnCountsResult, ...]
    detectors: tuple[DetectorFiringsSummary, ...]
    skills: Mapping[str, Mapping[str, int]]  # name → uses, failed
    remedies: RecurringFailureReport
    procedures: tuple[RecipeOrSkillSuggestion, ...]  # repeated procedures
    redacted: Mapping[str, int]
    post_mortems: tuple[FilePostMortemResult, ...]
    stopped: str  # why the model was not asked about all files
    applied: TranscriptLessonRecordingCounts | None
    spent: int = 0  # tokens
    unchanged: int = 0  # files unchanged since the last run
    own_sessions: int = 0  # sessions of our own journal

    @property
    def has_lessons(self) -> bool:
        """Whether there is anything that memory could store."""
        drawn = any(told.lessons for told in self.post_mortems)
        told = self.remedies.lessons or self.remedies.rules or self.procedures
        return bool(self.detectors or self.skills or drawn or told)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSendSizePreview:
    """The amount of text that would be sent to a model."""

    calls: int
    files: int
    tokens: int


def find_transcripts(paths: Sequence[str]) -> list[Path]:
    """Return every transcript among the files, folders and patterns once.

    Without any, those of agents on this machine. `NotFound` or `Invalid` if a path has no transcript.
    """
    if not paths:
        return [path for agent in STUDIED_AGENTS.values() for path in agent.find_transcripts(os.environ, Path.home())]
    found: dict[Path, None] = {}
    for one in paths:
        path = parse_user_path(one)
        if path.is_dir():
            here = sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES and each.is_file())
        elif path.exists():
            here = [path]
        else:
            # Path.glob refuses absolute patterns.
            matches = glob.glob(str(path), recursive=True)  # noqa: PTH207  # a pattern may be absolute
            here = [Path(each) for each in sorted(matches) if Path(each).is_file()]
        if not here:
            what = "holds no transcripts" if path.is_dir() else "is no file"
            raise NotFound(f"'{one}' {what}.", hint=f"Looked for files that end in {', '.join(_SUFFIXES)}.")
        if all(_is_unknown_format(each) for each in here):
            what = "is no transcript" if here == [path] else "holds no transcript"
            raise Invalid(f"'{one}' {what} that can be read.", hint=f"Known formats: {', '.join(FORMATS)}.")
        found.update(dict.fromkeys(each.resolve() for each in here))
    for path in found:
        if not path.is_file():
            raise NotFound(f"'{path}' is not a regular file.", hint="Give a file, a folder or a pattern.")
    return list(found)


def _is_unknown_format(path: Path) -> bool:
    """Whether no reader knows the file; one that can't be opened is reported later."""
    try:
        return path.is_file() and detect_format(path) == UNKNOWN
    except OSError:
        return False


def open_named_model_for_learning(settings: Settings, pause: LearningPauseSwitch, name: str) -> SessionModels:
    """Open the named model for post-mortems and drafts; refused if memory is off or paused."""
    if settings.memory is MemoryLearningMode.OFF:
        raise Refused("Memory is off, so no model is asked for learning.", hint="Set HABITUS_MEMORY=autopilot.")
    pause.refuse_if_paused()
    return models.open_session_models_for_name(settings, name)


class TranscriptStudy:
    """Studies transcripts and teaches memory.

    Call `read_file` for each, then `collect_repeated_procedures`, optionally `ask_model_about_failures`, then
    `store_lessons_and_propose_procedures` and `make_report`.
    """

    def __init__(
        self,
        home: Home,
        *,
        apply: bool,
        wants_failures: bool,
        since: datetime | None = None,
        only_new: bool = False,
    ) -> None:
        self._home = home
        self._redactor = CountingRedactor(home.redactor)
        self._wants_failures = wants_failures
        self._since = since
        if apply:
            refuse_if_read_only(home)
            home.pause.refuse_if_paused()
        self._applier = learning.open_transcript_lesson_applier(home, home.memory, self._redactor) if apply else None
        self._gathering = FailuresAndCorrectionsAggregator(home, only_new=only_new)
        self._mining = RepeatedProcedureFinder(home)
        self._files: list[StudiedTurnCountsResult] = []
        self._unchanged = self._own = 0
        self._fired: dict[str, DetectorFiringsSummary] = {}
        self._skills: dict[str, Counter[str]] = {}
        self._taught: list[LessonBatch] = []
        self._failures: list[FailedCallCollector] = []
        self._post_mortems: list[FilePostMortemResult] = []
        self._tokens_to_send = 0
        self._stopped = ""
        self._budget = RunBudget(day=home.spending)

    def study_file(self, path: Path, on_turn: Callable[[], None] = lambda: None) -> None:
        """Study one file turn by turn; skip it if the last run read it as it is."""
        if not self._gathering.record_stamp_if_file_changed(path):
            self._unchanged += 1
            return
        failures = FailedCallCollector(file=path)

        def visit(studied: StudiedTurn) -> None:
            on_turn()
            if self._is_turn_too_old(studied):
                return
            self._collect_findings_of_turn(studied)
            ledger = LearnedTurnStore(self._home.shared, clock=self._home.clock)
            if self._wants_failures and ledger.is_new_turn(studied.digest, LearningMethodKind.POST_MORTEM):
                failures.add_turn(studied)

        self._files.append(visit_studied_turns_of_file(path, self._redactor, visit))
        if failures.cells:
            self._failures.append(failures)
            self._tokens_to_send += estimate_post_mortem_tokens(
                render_newest_cells_as_json(list(failures.cells.values()), self._redactor)
            )

    def study_journal_sessions(self) -> None:
        """Study the sessions of our own journal; `NotFound` if there are neither sessions nor files."""
        self._own = self._gathering.add_journal_sessions()
        if not (self._files or self._unchanged or self._own):
            raise NotFound(
                "Which transcripts?",
                hint="Name files, folders or patterns; Claude Code keeps its own in ~/.claude/projects.",
            )

    def _is_turn_too_old(self, studied: StudiedTurn) -> bool:
        when = parse_iso_timestamp(studied.started_at) if self._since else None
        return self._since is not None and when is not None and when < self._since

    def _collect_findings_of_turn(self, studied: StudiedTurn) -> None:
        self._gathering.add_turn(studied)
        self._mining.add_turn(studied)
        if self._applier is not None and (taught := self._applier.build_lesson_batch_of_turn(studied)):
            self._taught.append(taught)
        for lesson, firing in zip(studied.lessons, list_detector_firings_in_turn(studied), strict=True):
            self._fired.setdefault(
                firing.detector, DetectorFiringsSummary(detector=firing.detector, rule=lesson.rule)
            ).count_firing_and_keep_if_few(firing)
        for use in studied.skill_uses:
            counts = self._skills.setdefault(use.skill, Counter())
            counts.update(uses=1, failed=int(use.success is False))

    def collect_repeated_procedures(self) -> None:
        """Find repeated procedures, once all files are read."""
        if self._files:
            self._mining.collect_suggestion_drafts()

    @property
    def send_size_preview(self) -> ModelSendSizePreview:
        """The amount of text that `ask_model_about_failures` would send."""
        calls = sum(len(each.cells) for each in self._failures)
        return ModelSendSizePreview(calls=calls, files=len(self._failures), tokens=self._tokens_to_send)

    async def ask_model_about_failures(self, model: Model) -> None:
        """Ask a model about the failures, one call per file.

        A failed call skips its file, a reached budget ends the rest.
        """
        paid = self._budget.wrap_model(model)
        for failures in self._failures:
            cells, before = list(failures.cells.values()), self._budget.tokens
            try:
                found = await run_post_mortem(cells, model=paid, redactor=self._redactor)
            except BudgetReachedError as reached:
                self._stopped = str(reached)
                return
            except (ProviderError, UnusableAnswerError, TimeoutError) as fault:
                why = str(fault) or f"{model.name} took too long"
                self._post_mortems.append(FilePostMortemResult(file=failures.file, error=why))
                continue
            took = self._budget.tokens - before
            self._post_mortems.append(
                FilePostMortemResult(file=failures.file, lessons=found.lessons, refused=found.refused, tokens=took)
            )
            if self._applier is not None:
                self._applier.store_post_mortem_lessons(failures, found)

    def list_lesson_batches_to_decide(self) -> list[LessonBatch]:
        """Return the lessons, remedies and rules that could be stored and were not decided yet."""
        assert self._applier is not None
        return [
            each
            for each in (*self._taught, *self._gathering.list_lesson_batches_to_decide())
            if self._applier.has_new_turn(each)
        ]

    def store_lessons_and_propose_procedures(self, accepted: Sequence[LessonBatch] | None = None) -> None:
        """Teach memory the accepted lessons, by default all, propose the procedures, and remember the files as read."""
        assert self._applier is not None
        for taught in (
            (*self._taught, *self._gathering.list_lesson_batches_to_decide()) if accepted is None else accepted
        ):
            self._applier.store_lesson_batch_once(taught)
        self._mining.propose_all_suggestions()
        self._gathering.store_facts_and_file_stamps()

    def make_report(self) -> TranscriptStudyReport:
        """Return all findings so far."""
        return TranscriptStudyReport(
            files=tuple(self._files),
            detectors=tuple(self._fired.values()),
            skills=self._skills,
            remedies=self._gathering.make_report(),
            procedures=self._mining.make_report().suggestions,
            redacted=dict(self._redactor.counts),
            post_mortems=tuple(self._post_mortems),
            stopped=self._stopped,
            applied=self._applier.applied if self._applier is not None else None,
            spent=self._budget.tokens,
            unchanged=self._unchanged,
            own_sessions=self._own,
        )
