"""Failed calls in transcripts, as cells for a post-mortem."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from habitus.events import AgentEvent, ToolCallRecord
from habitus.learning.detectors.error_signatures import make_error_signature
from habitus.learning.transcripts.study import StudiedTurn
from habitus.sandbox.model import Cell

MAX_FAILURES_PER_FILE = 12


@dataclass(slots=True)
class FailedCallCollector:
    """The failed calls of one file, one per kind of failure, and the turns they come from."""

    file: Path
    project: str = ""
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    turns: list[str] = field(default_factory=list)  # digests

    def add_turn(self, studied: StudiedTurn) -> None:
        """Add the failed calls of a turn."""
        if len(self.cells) >= MAX_FAILURES_PER_FILE:
            return
        self.project = self.project or studied.project
        found = list_failed_calls_as_cells(studied.turn.events)
        for cell in found:
            tool = cell.code.partition("(")[0]
            self.cells.setdefault((tool, make_error_signature(cell.error or "")), cell)
        if found:
            self.turns.append(studied.digest)


def list_failed_calls_as_cells(events: Sequence[AgentEvent]) -> list[Cell]:
    """Return the failed calls as cells with the call and its error."""
    return [
        Cell(
            code=f"{call.name}({call.arguments_summary})",
            description=_find_stated_intent(call.arguments_summary),
            error=call.error or "failed",
        )
        for call in ToolCallRecord.list_from_events(events)
        if call.success is False
    ]


_DESCRIPTION_ARGUMENT = re.compile(r'(?:^|, )(?:one_line_)?description="((?:[^"\\]|\\.){1,200})"')


def _find_stated_intent(args: str) -> str:
    """Return the intent that a call states about itself; empty if there is none."""
    said = _DESCRIPTION_ARGUMENT.search(args)
    return said[1] if said else ""
