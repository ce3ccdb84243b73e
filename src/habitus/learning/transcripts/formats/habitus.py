"""Our own export: one event per line, `{"session", "turn", "kind", "severity", "detail", "round"}`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from habitus.events import AgentEvent, EventKind
from habitus.learning.transcripts.lines import read_objects
from habitus.learning.transcripts.model import Transcript, TranscriptDraft
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "habitus"


def looks_like(row: dict[str, object]) -> bool:
    return "session" in row and "kind" in row


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per run of lines with the same session, in pieces."""
    unread: Counter[str] = Counter()
    draft: TranscriptDraft | None = None
    for row in read_objects(path, unread):
        event = _parse_event(row, redactor) if looks_like(row) else None
        if event is None:
            unread["unknown event"] += 1
            continue
        session, turn = str(row["session"]), str(row.get("turn", ""))
        if draft is None or draft.id != session:
            if draft:
                yield draft.finish()
            draft = TranscriptDraft(id=session, source=SOURCE)
        if not draft.turns or draft.turns[-1].id != turn:
            draft.open_turn(id=turn)
        draft.unread.update(unread)
        unread.clear()
        draft.add_event(draft.turns[-1], event)
        if draft.is_large:
            yield draft.take_piece(without=draft.turns[-1:])
    if draft or unread:
        last = draft or TranscriptDraft(id=path.stem, source=SOURCE)
        last.unread.update(unread)
        yield last.finish()


def write_lines(transcript: Transcript) -> Iterator[str]:
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


def _parse_event(row: dict[str, object], redactor: Redactor) -> AgentEvent | None:
    kind, detail = row.get("kind"), row.get("detail", {})
    severity, round_idx = row.get("severity", 1), row.get("round", 0)
    if not isinstance(kind, str) or kind not in set(EventKind) or not isinstance(detail, dict):
        return None
    if not isinstance(severity, int) or not isinstance(round_idx, int):
        return None
    clean = redactor.redact_value(detail)
    assert isinstance(clean, dict)
    return AgentEvent(kind=EventKind(kind), detail=clean, severity=severity, round_idx=round_idx)
