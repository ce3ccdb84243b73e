"""Our own export: one event per line, `{"session", "turn", "kind", "severity", "detail", "round"}`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from habitus.events import AgentEvent, EventKind
from habitus.learning.transcripts.model import Transcript, TranscriptDraft
from habitus.learning.transcripts.reading import read_transcripts_by_id
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "habitus"


def recognizes_row(row: dict[str, object]) -> bool:
    return "session" in row and "kind" in row


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per run of lines with the same session, in pieces."""
    return read_transcripts_by_id(
        path, SOURCE, redactor, lambda row: str(row["session"]) if _is_valid_event_row(row) else "", _add_event
    )


def _is_valid_event_row(row: dict[str, object]) -> bool:
    types = {"kind": str, "detail": dict, "severity": int, "round": int}
    is_typed = all(isinstance(row[name], type_) for name, type_ in types.items() if name in row)
    return recognizes_row(row) and is_typed and row["kind"] in set(EventKind)


def _add_event(draft: TranscriptDraft, row: dict[str, Any]) -> None:
    turn = str(row.get("turn", ""))
    if not draft.turns or draft.turns[-1].id != turn:
        draft.open_turn(id=turn)
    detail = draft.redactor.redact_value(row.get("detail", {}))
    assert isinstance(detail, dict)
    event = AgentEvent(
        kind=EventKind(row["kind"]), detail=detail, severity=row.get("severity", 1), round_idx=row.get("round", 0)
    )
    draft.add_event(draft.turns[-1], event)


def render_transcript_as_lines(transcript: Transcript) -> Iterator[str]:
    """Yield the lines of a transcript, with line ends; reading them returns the same turns."""
    for turn in transcript.turns:
        for event in turn.events:
            row = {
                "session": transcript.id,
                "turn": turn.id,
                "kind": event.kind.value,
                "severity": event.severity,
                "detail": dict(event.detail),
                "round": event.round_idx,
            }
            yield json.dumps(row, ensure_ascii=False) + "\n"
