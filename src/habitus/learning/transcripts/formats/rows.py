"""Simple event rows, each a tool call with its result: trace, step, turn, tool, args, success, error, result_len.

A trace is one request and becomes one turn; the row's `turn` counts the model's answers and becomes the round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from habitus.learning.transcripts.lines import read_objects
from habitus.learning.transcripts.model import CallOutcome, Transcript, TranscriptDraft, infer_outcome
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "rows"


def looks_like(row: dict[str, object]) -> bool:
    return "trace" in row and "tool" in row


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per run of rows with the same trace."""
    unread: Counter[str] = Counter()
    draft: TranscriptDraft | None = None
    for row in read_objects(path, unread):
        if not looks_like(row):
            unread["unknown row"] += 1
            continue
        trace = str(row["trace"])
        if draft is None or draft.id != trace:
            if draft:
                yield draft.finish()
            draft = TranscriptDraft(id=trace, source=SOURCE, redactor=redactor)
        draft.unread.update(unread)
        unread.clear()
        _add_row(draft, row)
    if draft or unread:
        last = draft or TranscriptDraft(id=path.stem, source=SOURCE)
        last.unread.update(unread)
        yield last.finish()


def _add_row(draft: TranscriptDraft, row: dict[str, object]) -> None:
    turn, given = draft.turn, row.get("turn")
    turn.round_idx = given if isinstance(given, int) else 0
    success, error = row.get("success"), row.get("error")
    reading = CallOutcome(success=None)
    if isinstance(success, bool):
        said = error if isinstance(error, str) else ""
        reading = infer_outcome(row.get("args"), said, fields=(row,), has_failed=not success)
    draft.add_result(draft.add_call(turn, "", str(row["tool"]), row.get("args")), reading, None)
