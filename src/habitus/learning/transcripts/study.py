"""Studying a file of transcripts: what each turn teaches, where, and on what evidence."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa

from habitus import sql
from habitus.events import CallRecord, Event, EventKind
from habitus.learning import observer, post_mortem
from habitus.learning.detectors.error_signatures import signature
from habitus.learning.detectors.rules import Lesson, collapse, detect
from habitus.learning.observer import LessonKeeper
from habitus.learning.post_mortem import PostMortem
from habitus.learning.transcripts.formats.registry import pieces
from habitus.learning.transcripts.model import SkillUse, Transcript, TranscriptTurn
from habitus.memory.model import Draft, Encoded, Evidence, Status
from habitus.redact import Redactor
from habitus.sandbox.model import Cell
from habitus.text import one_line


@dataclass(frozen=True, kw_only=True, slots=True)
class Studied:
    """One turn and what it teaches."""

    file: Path
    transcript: str
    project: str
    turn: TranscriptTurn
    lessons: tuple[Lesson, ...]
    skill_uses: tuple[SkillUse, ...]
    is_weak: bool

    @property
    def digest(self) -> str:
        return digest_of(self.turn)

    @property
    def trace(self) -> str:
        return f"{self.file.name} turn {self.turn.id}"

    @property
    def began(self) -> str:
        """When the person asked, or the first call was made; empty where the format does not say."""
        told = [said.at for said in self.turn.said] + [event.detail.get("at") for event in self.turn.events[:1]]
        return next((at for at in told if isinstance(at, str) and at), "")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRead:
    """A file's turns and what in it could not be read."""

    path: Path
    format: str = "unknown"
    transcripts: int = 0
    turns: int = 0
    events: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)


def study(path: Path, redactor: Redactor, visit: Callable[[Studied], None]) -> FileRead:
    """Show every turn of a file to `visit`, one at a time. A file that can't be read is one thing that was not."""
    counts: Counter[str] = Counter()
    unread: Counter[str] = Counter()
    source = "unknown"
    try:
        for piece in pieces(path, redactor):
            source = piece.source
            unread.update(piece.unread)
            counts.update(transcripts=int(not piece.goes_on), turns=len(piece.turns), events=piece.event_count)
            for studied in _turns(path, piece):
                visit(studied)
    except OSError as error:
        unread[f"file: {error.strerror}"] += 1
    return FileRead(path=path, format=source, unread=dict(unread), **counts)


def _turns(path: Path, piece: Transcript) -> Iterator[Studied]:
    for turn in piece.turns:
        yield Studied(
            file=path,
            transcript=piece.id,
            project=piece.project,
            turn=turn,
            lessons=tuple(detect(turn.events)),
            skill_uses=tuple(use for use in piece.skill_uses if use.turn == turn.id),
            is_weak=piece.is_weak,
        )


# For people


@dataclass(frozen=True, kw_only=True, slots=True)
class Firing:
    """A detector that fired: where, and what made it fire."""

    detector: str
    file: Path
    transcript: str
    turn: str
    rounds: tuple[int, ...]
    evidence: tuple[str, ...]
    is_weak: bool


MOST_EVIDENCE = 5


def firings(studied: Studied) -> Iterator[Firing]:
    for lesson in studied.lessons:
        rounds = sorted({event.round_idx for event in lesson.evidence})
        yield Firing(
            detector=lesson.detector,
            file=studied.file,
            transcript=studied.transcript,
            turn=studied.turn.id,
            rounds=tuple(rounds[:MOST_EVIDENCE]),
            evidence=tuple(describe_event(event) for event in lesson.evidence[:MOST_EVIDENCE]),
            is_weak=studied.is_weak,
        )


def describe_event(event: Event) -> str:
    """An event in a line."""
    detail, name = event.detail, str(event.detail.get("name") or "")
    match event.kind:
        case EventKind.TOOL_CALL:
            said = f"{name}({detail.get('args_summary') or ''})"
        case EventKind.TOOL_RESULT | EventKind.SCRATCHPAD_RESULT if detail.get("success") is False:
            said = f"{name} failed: {detail.get('error') or 'no reason given'}"
        case EventKind.TOOL_RESULT | EventKind.SCRATCHPAD_RESULT:
            said = f"{name} returned"
        case kind:
            more = ", ".join(str(value) for key, value in detail.items() if key != "name" and value not in ("", None))
            said = " ".join(part for part in (kind.value.replace("_", " "), name, f"({more})" if more else "") if part)
    line = " ".join(said.split())
    return f"round {event.round_idx}: {line if len(line) <= 160 else line[:159] + '…'}"


# For the post-mortem

MOST_FAILURES = 12  # of one file


@dataclass(slots=True)
class Failures:
    """The failed calls of one file, each kind of failure once, and the turns they come from."""

    file: Path
    project: str = ""
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    turns: list[str] = field(default_factory=list)  # digests

    def take(self, studied: Studied) -> None:
        if len(self.cells) >= MOST_FAILURES:
            return
        self.project = self.project or studied.project
        found = failed_calls(studied.turn.events)
        for cell in found:
            tool = cell.code.partition("(")[0]
            self.cells.setdefault((tool, signature(cell.error or "")), cell)
        if found:
            self.turns.append(studied.digest)


def failed_calls(events: Sequence[Event]) -> list[Cell]:
    """The calls that failed, as cells: what was called, and what came of it."""
    return [
        Cell(code=f"{call.name}({call.summary})", description=_intent(call.summary), error=call.error or "failed")
        for call in CallRecord.read(events)
        if call.success is False
    ]


_SAID = re.compile(r'(?:^|, )(?:one_line_)?description="((?:[^"\\]|\\.){1,200})"')


def _intent(args: str) -> str:
    """The intent that the author of a call stated, where the tool asks for one."""
    said = _SAID.search(args)
    return said[1] if said else ""


log = logging.getLogger(__name__)

LOST = "not stored"  # beside what memory does with a lesson
TOOLS = "tools"  # the topic of what failed calls of other agents teach


@dataclass(slots=True)
class Applied:
    """The result of applying what transcripts taught."""

    lessons: Counter[str] = field(default_factory=Counter)  # what memory did → how often
    reasons: Counter[str] = field(default_factory=Counter)  # why it did not take one
    already: int = 0  # turns that were learned from before
    skill_uses: int = 0

    @property
    def count_written(self) -> int:
        """How many lessons are new, say more than before, or wait for a person."""
        return sum(self.lessons[status] for status in (Status.STORED, Status.REINFORCED, Status.WAITING))


@dataclass(frozen=True, kw_only=True, slots=True)
class Taught:
    """Lessons of one finding, and the key it is known by. Without drafts it is noted as dealt with."""

    digests: tuple[str, ...]
    how: How
    drafts: tuple[Draft, ...]
    uses: tuple[SkillUse, ...] = ()


class Applier:
    def __init__(
        self,
        keeper: LessonKeeper,
        ledger: TurnLedger,
        *,
        redactor: Redactor,
        count_skill: Callable[[SkillUse], bool],
        user: str = "",
        project: str = "",
    ) -> None:
        self._keeper = keeper
        self._ledger = ledger
        self._redactor = redactor
        self._count_skill = count_skill  # whether it is a skill that we know
        self._user = user
        self._project = project
        self.applied = Applied()

    def apply(self, studied: Studied) -> None:
        """Encode what the detectors say of a turn, and count the skills that it used."""
        if (taught := self.taught(studied)) is not None:
            self.keep(taught)

    def taught(self, studied: Studied) -> Taught | None:
        """The lessons of a turn, without the turn itself."""
        if not studied.lessons and not studied.skill_uses:
            return None
        told = [
            observer.draft_lesson(
                each,
                Evidence(trace=studied.trace),
                redactor=self._redactor,
                user=self._user,
                project=studied.project or self._project,
            )
            for each in collapse(studied.lessons)
        ]
        return Taught(digests=(studied.digest,), how=How.DETECTORS, drafts=tuple(told), uses=studied.skill_uses)

    def is_new(self, taught: Taught) -> bool:
        return any(self._ledger.is_new(digest, taught.how) for digest in taught.digests)

    def keep(self, taught: Taught) -> None:
        """Encode what was taught, where it was not before."""
        with self._ledger.first_time(taught.digests, taught.how) as new:
            if not new:
                self.applied.already += taught.how is How.DETECTORS
                return
            self._encode(taught.drafts)
            self.applied.skill_uses += sum(self._count_skill(use) for use in taught.uses)

    def apply_post_mortem(self, failures: Failures, found: PostMortem) -> None:
        cells = list(failures.cells.values())
        error = self._redactor.redact(post_mortem.main_signature(cells)).text
        evidence = Evidence(error_signature=error, trace=failures.file.name)
        project = failures.project or self._project
        told = [
            post_mortem.draft_lesson(text, evidence=evidence, topic=TOOLS, user=self._user, project=project)
            for text in found.lessons
        ]
        with self._ledger.first_time(failures.turns, How.POST_MORTEM) as new:
            if new:
                self._encode(told)

    def _encode(self, told: Sequence[Draft]) -> None:
        results = [encoded for draft in told if (encoded := self._encode_draft(draft))]
        for encoded in results:
            self.applied.lessons[encoded.status.value] += 1
            if encoded.reason and not encoded.status.is_kept:
                self.applied.reasons[encoded.reason] += 1
        if any(not encoded.status.is_settled for encoded in results) or (told and not results):
            raise NotSettled

    def _encode_draft(self, draft: Draft) -> Encoded | None:
        try:
            with self._ledger.attempt():
                return self._keeper.encode(draft)
        except Exception as error:  # the others are no worse for it
            log.warning("A lesson could not be stored: %s", draft.text, exc_info=True)
            self.applied.lessons[LOST] += 1
            self.applied.reasons[f"'{draft.text}' could not be stored ({one_line(str(error))[:200]})"] += 1
            return None


learned_turns = sa.Table(
    "learned_turns",
    sql.metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("how", sa.String(16), primary_key=True),
    sa.Column("learned_on", sql.Utc, nullable=False),
)


class How(StrEnum):
    DETECTORS = "detectors"
    POST_MORTEM = "post-mortem"
    REMEDIES = "remedies"


class NotSettled(Exception):
    """Raised inside `first_time` to leave the turns as not learned from."""


class TurnLedger:
    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def is_new(self, digest: str, how: How) -> bool:
        with sql.reading(self._engine) as connection:
            return bool(self._new(connection, [digest], how))

    @contextmanager
    def first_time(self, digests: Iterable[str], how: How) -> Iterator[list[str]]:
        """Those of the turns that are new. What is done inside and the note of it are one transaction."""
        try:
            with sql.writing(self._engine, lock="memory") as connection:
                new = self._new(connection, digests, how)
                yield new
                rows = [{"digest": digest, "how": how.value, "learned_on": self._clock()} for digest in new]
                sql.insert_missing(connection, learned_turns, rows)
        except NotSettled:
            pass

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Inside `first_time`: what fails in here leaves no trace, and the rest holds."""
        with sql.writing(self._engine, lock="memory") as connection, connection.begin_nested():
            yield

    def _new(self, connection: sa.Connection, digests: Iterable[str], how: How) -> list[str]:
        known = sa.select(learned_turns.c.digest).where(learned_turns.c.how == how.value)
        return [
            digest
            for digest in dict.fromkeys(digests)
            if connection.execute(known.where(learned_turns.c.digest == digest)).first() is None
        ]


_NOT_COUNTED = ("at", "cwd", "command", "doubt")  # said besides, so that a turn stays the same when more is read


def digest_of(turn: TranscriptTurn) -> str:
    """By what happened in it: a copy of the file under another name has the same turns."""
    whole = hashlib.sha256()
    for event in turn.events:
        detail = {key: value for key, value in event.detail.items() if key not in _NOT_COUNTED}
        row = [event.kind.value, detail, event.round_idx]
        whole.update(json.dumps(row, sort_keys=True, default=str).encode())
    return whole.hexdigest()
