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
from habitus.app.home import Home
from habitus.app.learning import learning
from habitus.app.learning.learning import Gathering, ToldRemedies
from habitus.app.learning.mining import Mining, Suggestion
from habitus.errors import Invalid, NotFound, Refused
from habitus.files import given_path
from habitus.hosts.known_agents import STUDIED
from habitus.learning.budget import Budget, CapReached
from habitus.learning.post_mortem import Refusal, cells_as_json, estimate, post_mortem
from habitus.learning.remedies.calls import parse_iso_timestamp
from habitus.learning.transcripts.applying import ApplyResult, TaughtLessons
from habitus.learning.transcripts.failed_calls import FailedCalls
from habitus.learning.transcripts.firings import DetectorReport, firings
from habitus.learning.transcripts.formats.registry import FORMATS, UNKNOWN, format_of
from habitus.learning.transcripts.learned_turns import LearnedBy, LearnedTurns
from habitus.learning.transcripts.study import FileRead, StudiedTurn, study
from habitus.llm.model import Model, Models, NoUsableAnswer, ProviderFault
from habitus.pause import Pause
from habitus.redact import CountingRedactor
from habitus.settings import MemoryMode, Settings

_SUFFIXES = (".jsonl", ".json", ".ndjson", ".zst")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLessons:
    """The lessons that a model extracted from the failures of one file."""

    file: Path
    lessons: tuple[str, ...]
    refused: tuple[Refusal, ...]
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFault:
    """Why a model extracted nothing from the failures of one file."""

    file: Path
    error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyReport:
    """The findings of a study, by detector, skill, remedy and procedure, and what was stored."""

    files: tuple[FileRead, ...]
    detectors: tuple[DetectorReport, ...]
    skills: Mapping[str, Mapping[str, int]]  # name → uses, failed
    remedies: ToldRemedies
    procedures: tuple[Suggestion, ...]  # repeated procedures
    redacted: Mapping[str, int]
    post_mortems: tuple[FileLessons | FileFault, ...]
    stopped: str  # why the model was not asked about all files
    applied: ApplyResult | None
    spent: int = 0  # tokens
    unchanged: int = 0  # files unchanged since the last run
    own_sessions: int = 0  # sessions of our own journal

    @property
    def teaches(self) -> bool:
        """Whether there is anything that memory could store."""
        drawn = any(isinstance(told, FileLessons) and told.lessons for told in self.post_mortems)
        told = self.remedies.lessons or self.remedies.rules or self.procedures
        return bool(self.detectors or self.skills or drawn or told)


@dataclass(frozen=True, kw_only=True, slots=True)
class SendPreview:
    """The amount of text that would be sent to a model."""

    calls: int
    files: int
    tokens: int


def found_files(given: Sequence[str]) -> list[Path]:
    """Return every transcript among the files, folders and patterns once.

    Without any, those of agents on this machine. `NotFound` or `Invalid` if a path has no transcript.
    """
    if not given:
        return [path for agent in STUDIED.values() for path in agent.transcripts(os.environ, Path.home())]
    found: dict[Path, None] = {}
    for one in given:
        path = given_path(one)
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
        if all(_is_something_else(each) for each in here):
            what = "is no transcript" if here == [path] else "holds no transcript"
            raise Invalid(f"'{one}' {what} that can be read.", hint=f"Known formats: {', '.join(FORMATS)}.")
        found.update(dict.fromkeys(each.resolve() for each in here))
    for path in found:
        if not path.is_file():
            raise NotFound(f"'{path}' is not a regular file.", hint="Give a file, a folder or a pattern.")
    return list(found)


def _is_something_else(path: Path) -> bool:
    """Whether no reader knows the file; one that can't be opened is reported later."""
    try:
        return path.is_file() and format_of(path) == UNKNOWN
    except OSError:
        return False


def open_models(settings: Settings, pause: Pause, name: str) -> Models:
    """Open the named model for post-mortems and drafts; refused if memory is off or paused."""
    if settings.memory is MemoryMode.OFF:
        raise Refused("Memory is off, so no model is asked for learning.", hint="Set HABITUS_MEMORY=autopilot.")
    pause.refuse_if_paused()
    return models.models_named(settings, name)


class Study:
    """Studies transcripts and teaches memory.

    Call `read_file` for each, then `find_procedures`, optionally `ask_model`, then `store_lessons` and `make_report`.
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
            home.refuse_if_read_only()
            home.pause.refuse_if_paused()
        self._applier = learning.open_applier(home, home.memory, self._redactor) if apply else None
        self._gathering = Gathering(home, only_new=only_new)
        self._mining = Mining(home)
        self._files: list[FileRead] = []
        self._unchanged = self._own = 0
        self._fired: dict[str, DetectorReport] = {}
        self._skills: dict[str, Counter[str]] = {}
        self._taught: list[TaughtLessons] = []
        self._failures: list[FailedCalls] = []
        self._post_mortems: list[FileLessons | FileFault] = []
        self._tokens_to_send = 0
        self._stopped = ""
        self._budget = Budget(day=home.spending)

    def read(self, path: Path, turn_done: Callable[[], None] = lambda: None) -> None:
        """Study one file turn by turn; skip it if the last run read it as it is."""
        if not self._gathering.begin(path):
            self._unchanged += 1
            return
        failures = FailedCalls(file=path)

        def visit(studied: StudiedTurn) -> None:
            turn_done()
            if self._is_too_old(studied):
                return
            self._take(studied)
            ledger = LearnedTurns(self._home.shared, clock=self._home.clock)
            if self._wants_failures and ledger.is_new(studied.digest, LearnedBy.POST_MORTEM):
                failures.take(studied)

        self._files.append(study(path, self._redactor, visit))
        if failures.cells:
            self._failures.append(failures)
            self._tokens_to_send += estimate(cells_as_json(list(failures.cells.values()), self._redactor))

    def read_own(self) -> None:
        """Study the sessions of our own journal; `NotFound` if there are neither sessions nor files."""
        self._own = self._gathering.take_journal()
        if not (self._files or self._unchanged or self._own):
            raise NotFound(
                "Which transcripts?",
                hint="Name files, folders or patterns; Claude Code keeps its own in ~/.claude/projects.",
            )

    def _is_too_old(self, studied: StudiedTurn) -> bool:
        when = parse_iso_timestamp(studied.began) if self._since else None
        return self._since is not None and when is not None and when < self._since

    def _take(self, studied: StudiedTurn) -> None:
        self._gathering.take(studied)
        self._mining.take(studied)
        if self._applier is not None and (taught := self._applier.taught(studied)):
            self._taught.append(taught)
        for lesson, firing in zip(studied.lessons, firings(studied), strict=True):
            self._fired.setdefault(firing.detector, DetectorReport(detector=firing.detector, rule=lesson.rule)).add(
                firing
            )
        for use in studied.skill_uses:
            counts = self._skills.setdefault(use.skill, Counter())
            counts.update(uses=1, failed=int(use.success is False))

    def look(self) -> None:
        """Find repeated procedures, once all files are read."""
        if self._files:
            self._mining.look()

    @property
    def sending(self) -> SendPreview:
        """The amount of text that `ask_model` would send."""
        calls = sum(len(each.cells) for each in self._failures)
        return SendPreview(calls=calls, files=len(self._failures), tokens=self._tokens_to_send)

    async def ask(self, model: Model) -> None:
        """Ask a model about the failures, one call per file.

        A failed call skips its file, a reached budget ends the rest.
        """
        paid = self._budget.model(model)
        for failures in self._failures:
            cells, before = list(failures.cells.values()), self._budget.tokens
            try:
                found = await post_mortem(cells, model=paid, redactor=self._redactor)
            except CapReached as reached:
                self._stopped = str(reached)
                return
            except (ProviderFault, NoUsableAnswer, TimeoutError) as fault:
                why = str(fault) or f"{model.name} took too long"
                self._post_mortems.append(FileFault(file=failures.file, error=why))
                continue
            took = self._budget.tokens - before
            self._post_mortems.append(
                FileLessons(file=failures.file, lessons=found.lessons, refused=found.refused, tokens=took)
            )
            if self._applier is not None:
                self._applier.apply_post_mortem(failures, found)

    def proposals(self) -> list[TaughtLessons]:
        """Return the lessons, remedies and rules that could be stored and were not decided yet."""
        assert self._applier is not None
        return [each for each in (*self._taught, *self._gathering.proposals()) if self._applier.is_new(each)]

    def keep(self, wanted: Sequence[TaughtLessons] | None = None) -> None:
        """Teach memory the accepted lessons, by default all, propose the procedures, and remember the files as read."""
        assert self._applier is not None
        for taught in (*self._taught, *self._gathering.proposals()) if wanted is None else wanted:
            self._applier.keep(taught)
        self._mining.propose()
        self._gathering.keep()

    def report(self) -> StudyReport:
        """Return all findings so far."""
        return StudyReport(
            files=tuple(self._files),
            detectors=tuple(self._fired.values()),
            skills=self._skills,
            remedies=self._gathering.report(),
            procedures=self._mining.report().suggestions,
            redacted=dict(self._redactor.counts),
            post_mortems=tuple(self._post_mortems),
            stopped=self._stopped,
            applied=self._applier.applied if self._applier is not None else None,
            spent=self._budget.tokens,
            unchanged=self._unchanged,
            own_sessions=self._own,
        )
