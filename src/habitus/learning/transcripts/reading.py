"""Read JSON from files of any size, and build a transcript from the messages of a user and an agent."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from errno import EIO
from io import TextIOWrapper
from pathlib import Path
from typing import IO, cast

from habitus.learning.transcripts.model import (
    Transcript,
    TranscriptDraft,
    UserStopKind,
    detect_user_refusal_and_words,
    infer_call_outcome,
)
from habitus.redact import Redactor

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_DOCUMENT_BYTES = 128 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_HEAD_BYTES = 64 * 1024
# Bytes that may precede the first object.
_LEADING_BYTES = b"\xef\xbb\xbf \t\r\n"


def read_json_objects(path: Path, unread: Counter[str]) -> Iterator[dict[str, object]]:
    """Yield every object of a JSONL file or a JSON array, or the one object of a JSON document.

    Unreadable parts are counted in `unread` by reason.
    """
    match _detect_json_shape(path):
        case "array":
            yield from _read_json_array_objects(path, unread)
        case "document":
            yield from _read_json_document(path, unread)
        case _:
            yield from _read_json_lines(path, unread)


@contextmanager
def _open_plain_or_zstd_file(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix != ".zst":
        with path.open("rb") as file:
            yield file
        return
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    try:
        with zstd.open(path, "rb") as unpacked:
            yield cast("IO[bytes]", unpacked)
    except (zstd.ZstdError, EOFError) as error:
        raise OSError(EIO, f"not a whole .zst file ({error})") from error


def _detect_json_shape(path: Path) -> str:
    with _open_plain_or_zstd_file(path) as file:
        head = file.read(_HEAD_BYTES)
        # A long first prompt may exceed the head, so more is read to see the end of the first line.
        if b"\n" not in head.lstrip(_LEADING_BYTES):
            head += file.read(_CHUNK_BYTES - len(head))
    head = head.lstrip(_LEADING_BYTES)
    if head.startswith(b"["):
        return "array"
    first_line = head.split(b"\n", 1)[0].strip()
    if not head.startswith(b"{") or first_line.endswith(b"}") or len(first_line) >= _CHUNK_BYTES - 4:
        return "lines"
    return "document" if b"\n" in head else "lines"


def _read_json_lines(path: Path, unread: Counter[str]) -> Iterator[dict[str, object]]:
    with _open_plain_or_zstd_file(path) as file:
        # Limited, because a file without line breaks would otherwise be read into memory whole.
        while line := file.readline(MAX_LINE_BYTES):
            is_whole = line.endswith(b"\n")
            if len(line) == MAX_LINE_BYTES and not is_whole:
                unread["line too long"] += 1
                while (piece := file.readline(_CHUNK_BYTES)) and not piece.endswith(b"\n"):
                    pass
                continue
            if not line.strip():
                continue
            try:
                value = json.loads(line.lstrip(b"\xef\xbb\xbf").decode("utf-8", "surrogatepass"))
            except (ValueError, RecursionError):
                unread["not JSON" if is_whole else "cut line"] += 1
                continue
            if isinstance(value, dict):
                yield value
            else:
                unread["not an object"] += 1


def _read_json_document(path: Path, unread: Counter[str]) -> Iterator[dict[str, object]]:
    """Yield one object over many lines; a file that is malformed or too large is read as lines instead."""
    try:
        with _open_plain_or_zstd_file(path) as file:
            text = file.read(MAX_DOCUMENT_BYTES + 1)
        value = json.loads(text) if len(text) <= MAX_DOCUMENT_BYTES else None
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        yield value
    else:
        yield from _read_json_lines(path, unread)


def _read_json_array_objects(path: Path, unread: Counter[str]) -> Iterator[dict[str, object]]:
    """Yield the objects of a JSON array without loading the whole file."""
    decoder = json.JSONDecoder()
    buffer, position = "", 1
    with (
        _open_plain_or_zstd_file(path) as packed,
        TextIOWrapper(packed, encoding="utf-8-sig", errors="replace") as file,
    ):
        buffer = file.read(_CHUNK_BYTES).lstrip()
        while True:
            while position < len(buffer) and buffer[position] in " \t\r\n,":
                position += 1
            if buffer[position : position + 1] == "]":
                return
            try:
                value, position = decoder.raw_decode(buffer, position)
            except RecursionError:
                unread["nested too deep"] += 1
                return
            except ValueError:
                # Twice as much each time, so a long item is not parsed over and over.
                more = file.read(max(_CHUNK_BYTES, len(buffer) - position))
                if not more or len(buffer) - position > MAX_LINE_BYTES:
                    if buffer[position:].strip():
                        unread["cut line"] += 1
                    return
                buffer, position = buffer[position:] + more, 0
                continue
            if isinstance(value, dict):
                yield value
            else:
                unread["not an object"] += 1


def string_or_empty(value: object) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def mapping_or_empty(value: object) -> Mapping[str, object]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def extract_message_text(content: object) -> str:
    """Return a text, or the joined texts of a message's parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            string_or_empty(part) or string_or_empty(mapping_or_empty(part).get("text")) for part in content
        )
    return ""


_SQLITE_MAGIC = b"SQLite format 3\x00"


class TranscriptBuilder:
    """Builds one transcript from requests, calls and results; a result is matched to its call by id."""

    def __init__(self, id: str, source: str, redactor: Redactor, *, is_side: bool = False) -> None:
        self.draft = TranscriptDraft(id=id, source=source, redactor=redactor)
        self._redactor = redactor
        self.cwd = ""  # of the calls that follow
        # Whether this is the work of a subagent.
        self.is_side = is_side
        self._stopped: UserStopKind | None = None

    def set_project_if_unknown(self, folder: str) -> None:
        """Set the working directory, unless it is known."""
        if folder and not self.draft.project:
            self.draft.project = self.redact_directory(folder)

    def redact_directory(self, folder: str) -> str:
        """Return a directory as it may be stored."""
        return self._redactor.redact(folder.removeprefix("file://")[:1000]).text

    def add_request(self, text: str, *, at: str = "") -> None:
        """Add a request of the user, which begins a turn."""
        if text.strip():
            self.draft.add_utterance(self.draft.open_turn(is_sidechain=self.is_side), text, after=self._stopped, at=at)
            self._stopped = None

    def add_call(self, id: str, name: str, args: object, *, at: str = "") -> None:
        """Add a tool call to the current turn, as a round of its own."""
        turn = self.draft.turn if self.draft.turns else self.draft.open_turn(is_sidechain=self.is_side)
        turn.round_idx += 1
        self.draft.add_call(turn, id, name or "unknown", args, at=at, cwd=self.cwd)

    def add_result(
        self, id: str, text: str, *, has_failed: bool | None = None, fields: Sequence[object] = (), at: str = ""
    ) -> None:
        """Add the result of a call; one without a call is counted as unread."""
        call = self.draft.calls.pop(id, None)
        if call is None:
            self.draft.unread["result without a call"] += 1
            return
        reading = infer_call_outcome(call.args, text, fields=fields, has_failed=has_failed)
        is_person, words = detect_user_refusal_and_words(texts=(text,))
        if reading.success is None and words:
            self.draft.add_utterance(self.draft.turn, words, after=UserStopKind.REFUSED, at=at)
        elif reading.success is None and (is_person or any(map(_is_refusal_status, fields))):
            self._stopped = UserStopKind.REFUSED
        self.draft.add_result(call, reading, text, at=at)

    def mark_interrupted(self) -> None:
        """Note that the user interrupted the agent."""
        self._stopped = self._stopped or UserStopKind.INTERRUPTED

    def yield_finished_turns_once_many(self) -> Iterator[Transcript]:
        """Yield the finished turns, once there are many."""
        if self.draft.has_enough_events_for_piece:
            yield self.draft.remove_and_return_finished_turns(without=self.draft.turns[-1:])

    def finish(self, unread: Mapping[str, int] | None = None) -> Transcript:
        """Return the transcript with all remaining turns."""
        self.draft.unread.update(unread or {})
        return self.draft.finish()


def read_transcript_by_rows(
    path: Path, talk: TranscriptBuilder, add_row: Callable[[dict[str, object]], None]
) -> Iterator[Transcript]:
    """Yield the transcript of a file in pieces; `add_row` takes each object of the file."""
    unread: Counter[str] = Counter()
    for row in read_json_objects(path, unread):
        add_row(row)
        yield from talk.yield_finished_turns_once_many()
    yield talk.finish(unread)


def read_transcripts_by_id(
    path: Path,
    source: str,
    redactor: Redactor,
    get_id: Callable[[dict[str, object]], str],
    add_row: Callable[[TranscriptDraft, dict[str, object]], None],
) -> Iterator[Transcript]:
    """Yield one transcript per run of objects with the same id, in pieces; objects without an id are unread."""
    unread: Counter[str] = Counter()
    draft: TranscriptDraft | None = None
    for row in read_json_objects(path, unread):
        if not (id := get_id(row)):
            unread["unknown row"] += 1
            continue
        if draft is None or draft.id != id:
            if draft:
                yield draft.finish()
            draft = TranscriptDraft(id=id, source=source, redactor=redactor)
        add_row(draft, row)
        if draft.has_enough_events_for_piece:
            yield draft.remove_and_return_finished_turns(without=draft.turns[-1:])
    if draft or unread:
        last = draft or TranscriptDraft(id=path.stem, source=source)
        last.unread.update(unread)
        yield last.finish()


def _is_refusal_status(fields: object) -> bool:
    return string_or_empty(mapping_or_empty(fields).get("status")).lower() in (
        "rejected",
        "cancelled",
        "canceled",
        "declined",
        "denied",
    )


def list_or_empty(value: object) -> list[object]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def parse_json_or_none(text: object) -> object:
    """Parse JSON from a column or a file; None if it is malformed."""
    try:
        return json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError):
        return None


def format_unix_timestamp(seconds: object) -> str:
    """Return a Unix timestamp in seconds or milliseconds as ISO 8601; empty if it is none."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return ""
    try:
        # Seconds of that size would be in the year 5138, so it must be milliseconds.
        return datetime.fromtimestamp(seconds / 1000 if seconds > 1e11 else seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def has_sqlite_tables(path: Path, names: Iterable[str]) -> bool:
    """Whether the file is an SQLite database with these tables."""
    if not is_sqlite_database(path):
        return False
    try:
        with open_sqlite_read_only(path) as database:
            found = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return found.issuperset(names)
    except sqlite3.Error:
        return False


def is_sqlite_database(path: Path) -> bool:
    """Whether the file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


def open_sqlite_read_only(path: Path) -> sqlite3.Connection:
    """Open a database read-only, also while another process writes to it. A view can't be read: it may be endless."""
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    database.set_authorizer(_authorize_reads_without_views)
    database.row_factory = sqlite3.Row
    return database


def _authorize_reads_without_views(
    action: int, first: str | None, second: str | None, schema: str | None, view: str | None
) -> int:
    return sqlite3.SQLITE_OK if view is None and action != sqlite3.SQLITE_RECURSIVE else sqlite3.SQLITE_DENY


def read_database_transcripts(
    path: Path, source: str, query: str, read_row: Callable[[sqlite3.Connection, sqlite3.Row], Transcript]
) -> Iterator[Transcript]:
    """Yield the transcript of each row; a database that can't be read yields one that reports the error."""
    try:
        with open_sqlite_read_only(path) as database:
            for row in database.execute(query):
                yield read_row(database, row)
    except sqlite3.Error as error:
        yield Transcript(id=path.stem, source=source, unread={f"database: {error}": 1})
