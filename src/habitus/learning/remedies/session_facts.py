"""Facts of one session: failures and how they ended, commands that worked, and the person's corrections.

They are stored per studied transcript, so that `--since last` can continue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from habitus import sql
from habitus.learning.detectors.error_signatures import ErrorCause, classify_error
from habitus.learning.remedies.alignment import WINDOW, NoRemedyReason, find_remedy_in_later_calls
from habitus.learning.remedies.calls import (
    Remedy,
    SessionCall,
    ShellCommand,
    pair_calls_with_results,
    parse_iso_timestamp,
    quote_for_shell,
)
from habitus.learning.remedies.corrections import UserCorrection, find_corrections_in_utterances
from habitus.learning.transcripts.model import TranscriptTurn

_KEPT = 4 * WINDOW  # calls of the main thread held until their follow-ups are read
_MOST_WORKED = 500
_LONGEST_GAP = timedelta(minutes=5)  # a longer gap means that the person was away


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedCallDetails:
    """One failed call and how it ended."""

    tool: str
    cause: ErrorCause
    about: str
    signature: str
    words: tuple[str, ...] = ()  # of the command that failed
    turn: str = ""
    at: str = ""
    calls: int = 1  # spent on it
    seconds: float = 0.0
    remedy: Remedy | None = None
    ending: NoRemedyReason = NoRemedyReason.LEFT
    is_remedy_in_error: bool = False  # the error itself said what to run
    candidates: tuple[Remedy, ...] = ()  # what else may have made it work


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFailuresAndCorrections:
    session: str
    project: str = ""
    file: str = ""
    last: str = ""  # timestamp of the last activity
    calls: int = 0
    failures: tuple[FailedCallDetails, ...] = ()
    corrections: tuple[UserCorrection, ...] = ()
    worked: tuple[str, ...] = ()  # prefixes of commands that succeeded unchanged
    is_conversation: bool = True  # somebody talked to the agent; a file of a subagent, or an empty one, is none
    conversation_id: str = ""  # as the agent names it; a subagent's is that of the session it worked for

    @property
    def conversation(self) -> str:
        """The session that is counted."""
        return self.conversation_id or self.session


@dataclass(slots=True)
class FailuresAndCorrectionsCollector:
    """Reads the turns of a session in order, in any number of pieces, and retains little of them."""

    session: str
    project: str = ""
    file: str = ""
    _count: int = 0
    _is_conversation: bool = False
    _conversation: str = ""
    _conversation_of_subagent: str = ""
    _last: str = ""
    _main: list[SessionCall] = field(default_factory=list)
    _failures: list[FailedCallDetails] = field(default_factory=list)
    _corrections: list[UserCorrection] = field(default_factory=list)
    _worked: dict[str, None] = field(default_factory=dict)

    def add_turn(self, turn: TranscriptTurn) -> None:
        made = list(pair_calls_with_results(turn.events, turn=turn.id, project=self.project))
        self._count += len(made)
        self._is_conversation |= not turn.is_sidechain and bool(made or turn.utterances)
        self._last = max(
            [
                self._last,
                *(call.ended_at or call.call_started_at for call in made),
                *(said.at for said in turn.utterances),
            ]
        )
        for call in made:
            self._record_succeeded_command_prefixes(call)
        # What a subagent is asked, the agent wrote.
        if turn.is_sidechain:
            self._conversation_of_subagent = turn.conversation
            self._failures += _iterate_failed_call_details(made, len(made))
            return
        self._conversation = turn.conversation
        self._corrections += find_corrections_in_utterances(turn.utterances, turn.id)
        self._main += made
        if len(self._main) > _KEPT:
            settled = len(self._main) - WINDOW
            self._failures += _iterate_failed_call_details(self._main, settled)
            del self._main[:settled]

    def build_facts(self) -> SessionFailuresAndCorrections:
        return SessionFailuresAndCorrections(
            session=self.session,
            project=self.project,
            file=self.file,
            last=self._last,
            calls=self._count,
            failures=(*self._failures, *_iterate_failed_call_details(self._main, len(self._main))),
            corrections=tuple(self._corrections),
            worked=tuple(self._worked),
            is_conversation=self._is_conversation,
            conversation_id=self._conversation if self._is_conversation else self._conversation_of_subagent,
        )

    def _record_succeeded_command_prefixes(self, call: SessionCall) -> None:
        if not call.has_worked or not call.command or len(self._worked) >= _MOST_WORKED:
            return
        for command in call.commands:
            if command.is_last and not command.env and not command.before:
                self._worked.update(dict.fromkeys(list_command_prefixes(command)))


def list_command_prefixes(command: ShellCommand) -> Iterator[str]:
    """Yield the command as far as it can be a habit: its head, then word by word without flags."""
    place = ("cd", command.place, "&&") if command.place else ()
    head, targets = (*place, *command.runner_and_program_words), command.non_flag_args[:3]
    for count in range(len(targets) + 1):
        yield quote_for_shell((*head, *targets[:count]))


def _iterate_failed_call_details(made: Sequence[SessionCall], end: int) -> Iterator[FailedCallDetails]:
    failed = [index for index in range(end) if made[index].success is False]
    for number, index in enumerate(failed):
        call = made[index]
        about, found = classify_error(call.error), find_remedy_in_later_calls(made, index)
        until = min(found.at or index + 1, failed[number + 1] if number + 1 < len(failed) else len(made))
        lost = made[index : max(until, index + 1)]
        yield FailedCallDetails(
            tool=call.name,
            cause=about.cause,
            about=about.subject,
            signature=about.signature,
            words=call.failing_command.words[:12] if call.failing_command else (),
            turn=call.turn,
            at=call.call_started_at,
            calls=len(lost),
            seconds=_compute_lost_seconds(lost, made[until : until + 1]),
            remedy=found.remedy,
            ending=found.ending,
            is_remedy_in_error=found.is_in_error,
            candidates=found.candidates,
        )


def _compute_lost_seconds(lost: Sequence[SessionCall], then: Sequence[SessionCall]) -> float:
    """Return the time from the failed call until the next call that was not spent on it."""
    told = [
        *(stamp for call in lost for stamp in ((call.call_started_at, False), (call.ended_at, True))),
        *((call.call_started_at, False) for call in then),
    ]
    stamps = [(read, is_end) for at, is_end in told if (read := parse_iso_timestamp(at))]
    gaps = ((later - earlier, is_end) for (earlier, _), (later, is_end) in pairwise(stamps))
    # However long a command ran, it was waited for.
    return sum(
        (max(gap, timedelta()) if ran else min(max(gap, timedelta()), _LONGEST_GAP)).total_seconds()
        for gap, ran in gaps
    )


studied_files = sa.Table(
    "studied_files",
    sql.metadata,
    sa.Column("file", sa.Text, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("changed", sa.BigInteger, nullable=False),  # nanoseconds, as the file system tells it
    sa.Column("facts", sa.Text, nullable=False),  # JSON
    sa.Column("studied_on", sql.UtcDateTime, nullable=False),
)
FileStamp = tuple[int, int]  # size, time of the last change


def read_file_stamp(path: Path) -> FileStamp:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


@dataclass(frozen=True, kw_only=True, slots=True)
class FailuresAndCorrectionsStore:
    engine: sa.Engine
    clock: Callable[[], datetime]
    kept_for: timedelta

    def load_studied_file_stamps(self) -> dict[str, FileStamp]:
        table = studied_files.c
        with sql.read_transaction(self.engine) as connection:
            rows = connection.execute(sa.select(table.file, table.size, table.changed)).all()
        return {row.file: (row.size, row.changed) for row in rows}

    def load_facts_except_of_files(self, *, without: Collection[str] = ()) -> list[SessionFailuresAndCorrections]:
        """Return the facts of all sessions, except from these files."""
        with sql.read_transaction(self.engine) as connection:
            rows = connection.execute(sa.select(studied_files.c.file, studied_files.c.facts)).all()
        return [facts for row in rows if row.file not in without for facts in _parse_facts(row.facts)]

    def replace_facts_of_file(
        self, file: str, stamp: FileStamp, facts: Collection[SessionFailuresAndCorrections]
    ) -> None:
        """Store the facts of a file in place of earlier ones."""
        row = {
            "file": file,
            "size": stamp[0],
            "changed": stamp[1],
            "facts": _get_facts_adapter().dump_json(tuple(facts)).decode(),
            "studied_on": self.clock(),
        }
        old = self.clock() - self.kept_for
        with sql.write_transaction(self.engine, lock="studied_files") as connection:
            gone = sa.or_(studied_files.c.file == file, studied_files.c.studied_on < old)
            connection.execute(studied_files.delete().where(gone))
            connection.execute(studied_files.insert().values(row))


@cache
def _get_facts_adapter() -> TypeAdapter[tuple[SessionFailuresAndCorrections, ...]]:
    return TypeAdapter(tuple[SessionFailuresAndCorrections, ...])


def _parse_facts(text: str) -> tuple[SessionFailuresAndCorrections, ...]:
    """Return stored facts; empty if another version wrote them, because the file can be studied again."""
    try:
        return _get_facts_adapter().validate_json(text)
    except ValidationError:
        return ()
