"""Simple event rows, each a tool call with its result: trace, step, turn, tool, args, success, error, result_len.

A trace is one request and becomes one turn; the row's `turn` counts the model's answers and becomes the round.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from habitus.learning.transcripts.model import CallOutcome, Transcript, TranscriptDraft, infer_call_outcome
from habitus.learning.transcripts.reading import read_transcripts_by_id
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "rows"


def recognizes_row(row: dict[str, object]) -> bool:
    return "trace" in row and "tool" in row


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per run of rows with the same trace."""
    return read_transcripts_by_id(
        path, SOURCE, redactor, lambda row: str(row["trace"]) if recognizes_row(row) else "", _add_row
    )


def _add_row(draft: TranscriptDraft, row: dict[str, object]) -> None:
    turn, given = draft.turn, row.get("turn")
    turn.round_idx = given if isinstance(given, int) else 0
    success, error = row.get("success"), row.get("error")
    reading = CallOutcome(success=None)
    if isinstance(success, bool):
        said = error if isinstance(error, str) else ""
        reading = infer_call_outcome(row.get("args"), said, fields=(row,), has_failed=not success)
    draft.add_result(draft.add_call(turn, "", str(row["tool"]), row.get("args")), reading, None)
