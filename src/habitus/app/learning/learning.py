"""Wire up learning: the learner of a session, and the remedies found in past sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from habitus.app.home import Home
from habitus.errors import NotFound
from habitus.journal.model import ItemUse, UseManner
from habitus.learning.detectors.monitor import MonitorMode
from habitus.learning.observer import LessonSink, SessionErrorLearner
from habitus.learning.remedies import wording
from habitus.learning.remedies.calls import SessionCall
from habitus.learning.remedies.findings import (
    MIN_SESSIONS,
    ProposedRule,
    RemedyCoverageCounts,
    RemedyFindings,
    SupportedRemedy,
    collect_remedy_findings,
)
from habitus.learning.remedies.recurring_failures import RecurringFailure
from habitus.learning.remedies.session_facts import (
    FailuresAndCorrectionsCollector,
    FailuresAndCorrectionsStore,
    FileStamp,
    SessionFailuresAndCorrections,
    read_file_stamp,
)
from habitus.learning.transcripts.applying import LessonBatch, TranscriptLessonRecorder
from habitus.learning.transcripts.learned_turns import LearnedTurnStore, LearningMethodKind
from habitus.learning.transcripts.model import SkillUse, TranscriptTurn, UserUtterance
from habitus.learning.transcripts.study import StudiedTurn
from habitus.llm.model import Model
from habitus.memory.cortex import Cortex
from habitus.memory.model import Engram, LessonDraft, LessonKind, LessonScope, TrustLevel
from habitus.redact import Redactor
from habitus.settings import DetectorActivityMode, MemoryLearningMode
from habitus.skills.layers.layer import find_project_root
from habitus.skills.model import Stage


def open_session_error_learner(
    home: Home, keeper: LessonSink, model: Model | None, lessons: Cortex | None = None
) -> SessionErrorLearner:
    """Build the learner from errors in one session; without a `model`, it asks none.

    Remedies for failures are looked up in `lessons`.
    """
    settings = home.settings
    mode = MonitorMode.OFF if settings.memory is MemoryLearningMode.OFF else MonitorMode(settings.acc_mode.value)

    def remedy(call: SessionCall) -> str:
        return (
            wording.find_remedy_text_for_call(_list_lessons_visible_in_project(lessons, home.project), call)
            if lessons
            else ""
        )

    return SessionErrorLearner(keeper, model, spending=home.spending, mode=mode, redactor=home.redactor, remedy=remedy)


def open_advice_only_learner(home: Home) -> SessionErrorLearner:
    """Build a learner that comments on failures but stores nothing.

    It is for hosts that show it only some of their calls.
    """
    settings = home.settings
    is_off = settings.memory is MemoryLearningMode.OFF or settings.acc_mode is DetectorActivityMode.OFF
    mode = MonitorMode.OFF if is_off else MonitorMode.ACTIVE
    return SessionErrorLearner(None, spending=home.spending, mode=mode, redactor=home.redactor)


def open_transcript_lesson_applier(home: Home, keeper: LessonSink, redactor: Redactor) -> TranscriptLessonRecorder:
    """Build the applier that teaches memory from transcripts."""

    def count_skill(use: SkillUse) -> bool:
        # A plugin's skill is written plugin:name.
        name = use.skill.rpartition(":")[2]
        # The skill was not loaded, so it was neither shown nor used.
        if use.success is False:
            return False
        try:
            item = home.skills.find(name)
        except NotFound:
            return False
        if item.summary is not None:
            layer = home.skills.get_layer(item.layer).store.key
            # The id makes a transcript that is read twice count once.
            id = f"{use.turn}:{use.round_idx}:{layer}/{item.name}"
            home.journal.record_use(
                ItemUse(
                    id=id,
                    turn=id,
                    item=item.name,
                    layer=layer,
                    version=item.summary.version,
                    stage=Stage.STEPS.value,
                    manner=UseManner.ASKED,
                    at=home.clock(),
                    user=home.settings.user,
                )
            )
        return True

    return TranscriptLessonRecorder(
        keeper,
        LearnedTurnStore(home.shared, clock=home.clock),
        redactor=redactor,
        count_skill=count_skill,
        user=home.settings.user,
        project=home.project,
    )


# Enough of our own sessions for a quick overview.
_MAX_RECENT_SESSIONS = 100
_MAX_REPEATED_FAILURES = 10
MAX_FAILURES = 50
JOURNAL_PREFIX = "journal:"  # marks our own sessions among the files


@dataclass(frozen=True, kw_only=True, slots=True)
class ProposedLessonOrRule:
    """A lesson or rule that memory could store, with its evidence."""

    text: str
    kind: str
    evidence: str
    project: str
    sessions: int
    traces: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurringFailureReport:
    """The recurring failures of past sessions, with the lessons, candidates and rules found in them."""

    failures: tuple[RecurringFailure, ...] = ()
    lessons: tuple[ProposedLessonOrRule, ...] = ()
    candidates: tuple[ProposedLessonOrRule, ...] = ()
    rules: tuple[ProposedLessonOrRule, ...] = ()
    coverage: RemedyCoverageCounts = field(default_factory=RemedyCoverageCounts)


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureWithRemedy:
    """A recurring failure and, if known, the remedy against it."""

    failure: RecurringFailure
    remedy: str = ""


@dataclass
class FailuresAndCorrectionsAggregator:
    """Collects the facts of sessions as they are read, together with the stored facts of earlier runs."""

    home: Home
    only_new: bool = False  # skip files that an earlier run has read
    _readers: dict[tuple[str, str], FailuresAndCorrectionsCollector] = field(default_factory=dict)
    _stamps: dict[str, FileStamp] = field(default_factory=dict)
    _found: RemedyFindings | None = None

    def record_stamp_if_file_changed(self, path: Path) -> bool:
        """Whether the file is new or has changed since the last run."""
        return self._record_stamp_if_changed(str(path), read_file_stamp(path))

    def _record_stamp_if_changed(self, file: str, stamp: FileStamp) -> bool:
        if self.only_new and self._stored_file_stamps.get(file) == stamp:
            return False
        # The stamp from before reading: lines that are appended meanwhile are read by the next run.
        self._stamps[file] = stamp
        return True

    def add_turn(self, studied: StudiedTurn) -> None:
        """Add a turn of a transcript to the facts of its session."""
        key = str(studied.file), studied.transcript
        if key not in self._readers:
            project = resolve_project_root(studied.project)
            self._readers[key] = FailuresAndCorrectionsCollector(
                session=studied.transcript, project=project, file=studied.file.name
            )
        self._readers[key].add_turn(studied.turn)

    def add_journal_sessions(self, limit: int = 10_000) -> int:
        """Read the latest sessions of the journal, our own and those of other agent loops; return their number."""
        user, journal = self.home.settings.user, self.home.journal
        sessions = journal.list_sessions(limit=limit, user=user)
        for kept in sessions:
            if not self._record_stamp_if_changed(
                f"{JOURNAL_PREFIX}{kept.id}", (kept.turns, int(kept.last_turn_on.timestamp() * 1e6))
            ):
                continue
            reader = self._readers[f"{JOURNAL_PREFIX}{kept.id}", kept.id] = FailuresAndCorrectionsCollector(
                session=kept.id, file=kept.id
            )
            for turn in (one for one in journal.list_session_turns(kept.id, user=user) if one.is_real):
                said = UserUtterance(text=turn.request, at=turn.started_on.isoformat())
                reader.add_turn(TranscriptTurn(id=turn.id, events=turn.events, utterances=(said,)))
        return len(sessions)

    def compute_findings(self) -> RemedyFindings:
        """Return the findings over the sessions read and all stored facts."""
        if self._found is None:
            earlier = self._open_failures_and_corrections_store().load_facts_except_of_files(without=self._stamps)
            self._found = collect_remedy_findings(
                [*earlier, *(reader.build_facts() for reader in self._readers.values())]
            )
        return self._found

    def make_report(self) -> RecurringFailureReport:
        """Return the findings as a report."""
        found = self.compute_findings()
        return RecurringFailureReport(
            failures=found.failures[:MAX_FAILURES],
            lessons=tuple(map(self._build_proposed_lesson_or_rule, found.lessons)),
            candidates=tuple(map(self._build_proposed_lesson_or_rule, found.candidates)),
            rules=tuple(map(self._build_proposed_lesson_or_rule, found.rules)),
            coverage=found.coverage,
        )

    def _build_proposed_lesson_or_rule(self, found: SupportedRemedy | ProposedRule) -> ProposedLessonOrRule:
        draft = self._draft_remedy_lesson(found)
        return ProposedLessonOrRule(
            text=draft.text,
            kind=str(draft.kind),
            evidence=draft.evidence.told,
            project=found.project,
            sessions=found.sessions,
            traces=found.traces,
        )

    def _draft_remedy_lesson(self, found: SupportedRemedy | ProposedRule) -> LessonDraft:
        return wording.draft_remedy_or_correction_lesson(found, now=self.home.clock(), user=self.home.settings.user)

    def list_lesson_batches_to_decide(self) -> list[LessonBatch]:
        """Return the lessons that held and the rules that were meant permanently, each to be decided once."""
        found = self.compute_findings()
        return [
            *map(self._make_lesson_batch, found.lessons),
            *(self._make_lesson_batch(one) for one in found.rules if one.is_worth_proposing),
        ]

    def _make_lesson_batch(self, found: SupportedRemedy | ProposedRule) -> LessonBatch:
        draft = self._draft_remedy_lesson(found)
        digests = tuple(_hash_lesson_with_trace(draft, trace) for trace in found.traces)
        return LessonBatch(digests=digests, method=LearningMethodKind.REMEDIES, drafts=(draft,))

    def store_facts_and_file_stamps(self) -> None:
        """Store the facts and file stamps; the next run with `only_new` continues from here."""
        facts: dict[str, list[SessionFailuresAndCorrections]] = {file: [] for file in self._stamps}
        for (file, _), reader in self._readers.items():
            facts[file].append(reader.build_facts())
        for file, of_file in facts.items():
            self._open_failures_and_corrections_store().replace_facts_of_file(file, self._stamps[file], of_file)

    @cached_property
    def _stored_file_stamps(self) -> dict[str, FileStamp]:
        return self._open_failures_and_corrections_store().load_studied_file_stamps()

    def _open_failures_and_corrections_store(self) -> FailuresAndCorrectionsStore:
        kept_for = timedelta(days=self.home.settings.retention.turn_days)
        return FailuresAndCorrectionsStore(engine=self.home.local, clock=self.home.clock, kept_for=kept_for)


def list_costliest_repeated_failures(home: Home) -> tuple[FailureWithRemedy, ...]:
    """Return the most expensive failures of recent sessions and all studied transcripts; nothing is stored."""
    gathering = FailuresAndCorrectionsAggregator(home, only_new=True)
    gathering.add_journal_sessions(_MAX_RECENT_SESSIONS)
    found = gathering.compute_findings()
    again = [each for each in found.failures if each.sessions >= MIN_SESSIONS][:_MAX_REPEATED_FAILURES]
    ways = (*found.lessons, *found.candidates)
    return tuple(FailureWithRemedy(failure=each, remedy=_describe_best_remedy(each, ways)) for each in again)


def _describe_best_remedy(failure: RecurringFailure, ways: Iterable[SupportedRemedy]) -> str:
    fitting = (way for way in ways if failure.signature in way.signatures and way.project in ("", failure.project))
    return next((wording.describe_remedy_lesson(way) for way in fitting), "")


def find_known_remedy_for_failure(home: Home, tool: str, arguments: object, error: str, project: str = "") -> str:
    """Return the remedy that memory knows for this failure as a sentence; empty if it knows none.

    `arguments` are those of the tool call, parsed or as JSON; `project` is a directory, by default the current one.
    """
    where = resolve_project_root(project) if project else home.project
    return wording.find_remedy_text_for_error(
        _list_lessons_visible_in_project(home.memory, where), tool, arguments, error
    )


def _list_lessons_visible_in_project(memory: Cortex, project: str) -> Iterable[Engram]:
    lessons = memory.list_lessons("all", limit=100_000, kind=LessonKind.LESSON)
    return (lesson for lesson in lessons if lesson.scope is not LessonScope.PROJECT or lesson.owner == project)


def resolve_project_root(directory: str) -> str:
    """Return the root of the project that a directory belongs to; the directory itself if it is not on this machine."""
    path = Path(directory)
    return str(find_project_root(path)) if directory and path.is_dir() else directory


def _hash_lesson_with_trace(draft: LessonDraft, trace: str) -> str:
    return hashlib.sha256(f"{draft.project}\n{draft.text}\n{trace}".encode()).hexdigest()


def keep_accepted_lesson_drafts(taught: LessonBatch, decisions: Mapping[str, str | None]) -> LessonBatch:
    """Apply a person's decision about each draft: store it in their words and with their trust, or drop it if None."""
    texts = ((draft, decisions[draft.text]) for draft in taught.drafts)
    kept = [replace(draft, text=text, trust=TrustLevel.USER) for draft, text in texts if text is not None]
    return replace(taught, drafts=tuple(kept))
