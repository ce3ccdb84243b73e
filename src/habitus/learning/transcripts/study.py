"""Study a file of transcripts turn by turn, with the detectors' lessons for each."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from habitus.learning.detectors.rules import DetectorLesson, run_detectors
from habitus.learning.transcripts.formats.registry import read_pieces
from habitus.learning.transcripts.model import SkillUse, Transcript, TranscriptTurn
from habitus.redact import Redactor


@dataclass(frozen=True, kw_only=True, slots=True)
class StudiedTurn:
    """A turn and its lessons."""

    file: Path
    transcript: str
    project: str
    turn: TranscriptTurn
    lessons: tuple[DetectorLesson, ...]
    skill_uses: tuple[SkillUse, ...]
    is_weak: bool

    @property
    def digest(self) -> str:
        """The digest that identifies the turn, also in a copy of its file."""
        return hash_turn(self.turn)

    @property
    def trace(self) -> str:
        """The file and turn, as evidence of a lesson names them."""
        return f"{self.file.name} turn {self.turn.id}"

    @property
    def started_at(self) -> str:
        """When the request or the first call was made; empty if the format does not say."""
        told = [said.at for said in self.turn.utterances] + [event.detail.get("at") for event in self.turn.events[:1]]
        return next((at for at in told if isinstance(at, str) and at), "")


@dataclass(frozen=True, kw_only=True, slots=True)
class StudiedTurnCountsResult:
    """The number of turns in a file, and what could not be read."""

    path: Path
    format: str = "unknown"
    transcripts: int = 0
    turns: int = 0
    events: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)


def visit_studied_turns_of_file(
    path: Path, redactor: Redactor, visit: Callable[[StudiedTurn], None]
) -> StudiedTurnCountsResult:
    """Call `visit` with every turn of a file; a file that can't be read is reported in the result."""
    counts: Counter[str] = Counter()
    unread: Counter[str] = Counter()
    source = "unknown"
    try:
        for piece in read_pieces(path, redactor):
            source = piece.source
            unread.update(piece.unread)
            counts.update(transcripts=int(not piece.goes_on), turns=len(piece.turns), events=piece.event_count)
            for studied in _study_turns(path, piece):
                visit(studied)
    except OSError as error:
        unread[f"file: {error.strerror}"] += 1
    return StudiedTurnCountsResult(path=path, format=source, unread=dict(unread), **counts)


def _study_turns(path: Path, piece: Transcript) -> Iterator[StudiedTurn]:
    for turn in piece.turns:
        yield StudiedTurn(
            file=path,
            transcript=piece.id,
            project=piece.project,
            turn=turn,
            lessons=tuple(run_detectors(turn.events)),
            skill_uses=tuple(use for use in piece.skill_uses if use.turn == turn.id),
            is_weak=piece.is_weak,
        )


# Left out, so a turn keeps its digest when a newer reader extracts more.
_UNHASHED_DETAILS = ("at", "cwd", "command", "doubt")


def hash_turn(turn: TranscriptTurn) -> str:
    """Return a digest of the turn's events; a copy of the file under another name has the same."""
    whole = hashlib.sha256()
    for event in turn.events:
        detail = {key: value for key, value in event.detail.items() if key not in _UNHASHED_DETAILS}
        row = [event.kind.value, detail, event.round_idx]
        whole.update(json.dumps(row, sort_keys=True, default=str).encode())
    return whole.hexdigest()
