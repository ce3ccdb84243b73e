"""Detect the format of a transcript from its first lines, and read it with the right reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Protocol

from habitus.errors import NotFound
from habitus.learning.transcripts.formats import (
    amp,
    claude_code,
    cline,
    codex,
    copilot,
    cursor,
    gemini,
    goose,
    habitus,
    openai,
    opencode,
    pi,
    rows,
    vscode,
    zed,
)
from habitus.learning.transcripts.model import Transcript, join_transcript_pieces
from habitus.learning.transcripts.reading import read_json_objects
from habitus.redact import PATTERNS_ONLY, Redactor

UNKNOWN = "unknown"
# Lines that vote; fewer are enough if all look like the same single format.
_LINES_TRIED, _LINES_ENOUGH = 50, 8


class TranscriptReader(Protocol):
    """A module that reads one format, in pieces."""

    SOURCE: str

    def read_transcript_pieces(self, path: Path, redactor: Redactor) -> Iterator[Transcript]: ...


class RowRecognizingReader(TranscriptReader, Protocol):
    """A reader that recognizes its files by the objects in them."""

    def recognizes_row(self, row: dict[str, object], /) -> bool: ...


class FileRecognizingReader(TranscriptReader, Protocol):
    """A reader that recognizes its files by their name or database tables."""

    def recognizes_file(self, path: Path) -> bool: ...


_OWNING_READERS: tuple[FileRecognizingReader, ...] = (cline, goose, zed, opencode)
_ROW_READERS: tuple[RowRecognizingReader, ...] = (
    rows,
    habitus,
    codex,
    gemini,
    claude_code,
    copilot,
    pi,
    vscode,
    amp,
    cursor,
    openai,
    opencode,
)
FORMATS: Mapping[str, TranscriptReader] = {reader.SOURCE: reader for reader in (*_ROW_READERS, *_OWNING_READERS)}


def read_transcripts(path: Path, redactor: Redactor = PATTERNS_ONLY, *, source: str = "") -> Iterator[Transcript]:
    """Yield every transcript of a file as a whole; an unknown file yields one empty transcript that says so."""
    waiting: list[Transcript] = []
    for piece in read_pieces(path, redactor, source=source):
        waiting.append(piece)
        if not piece.goes_on:
            yield join_transcript_pieces(waiting)
            waiting = []


def read_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY, *, source: str = "") -> Iterator[Transcript]:
    """Yield every transcript of a file in pieces of finished turns, for files of any size."""
    if not path.is_file():
        raise NotFound(f"No transcript at '{path}'.", hint="Give the path of a file.")
    source = source or detect_format(path)
    if source in FORMATS:
        yield from FORMATS[source].read_transcript_pieces(path, redactor)
    else:
        unread: Counter[str] = Counter()
        unread["unknown line"] = sum(1 for _ in read_json_objects(path, unread))
        yield Transcript(id=path.stem, source=UNKNOWN, unread={why: count for why, count in unread.items() if count})


def detect_format(path: Path) -> str:
    """Return the format that most of the first lines look like; `unknown` if none does."""
    if owner := next((reader for reader in _OWNING_READERS if reader.recognizes_file(path)), None):
        return owner.SOURCE
    votes: Counter[str] = Counter()
    for row in islice(read_json_objects(path, Counter()), _LINES_TRIED):
        votes.update(reader.SOURCE for reader in _ROW_READERS if reader.recognizes_row(row))
        if len(votes) == 1 and votes.total() >= _LINES_ENOUGH:
            break
    return max(FORMATS, key=lambda name: votes[name]) if votes else UNKNOWN
