"""The tools every session has, put together from what they need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from habitus.agent.changes import Changes
from habitus.agent.memory import SessionMemory
from habitus.agent.offered_tools import Ladder
from habitus.agent.tools.making_tools import making_tools
from habitus.agent.tools.memory_tools import memory_tools
from habitus.agent.tools.reading_skills import reading_tools
from habitus.agent.tools.registry import Tool
from habitus.agent.tools.scratchpad import scratchpad
from habitus.agent.tools.turn_tools import turn_tools
from habitus.agent.tools.writing_skills import writing_tools
from habitus.agent.view import OtherFiles
from habitus.sandbox.scratchpads import CellObserver, Scratchpads
from habitus.skills.finding import Finder
from habitus.tools.tools import Tools


def standard_tools(
    changes: Changes,
    *,
    files: OtherFiles,
    ladder: Ladder,
    finder: Finder,
    pads: Scratchpads,
    cell_observers: Sequence[CellObserver] = (),
    tools: Tools,
    memory: SessionMemory,
    readable: Sequence[Path] = (),
    is_hosted: bool = False,
) -> list[Tool]:
    """Built-in tools of a conversation, some more where the loop is not ours; skills' code is offered beside them."""
    view = changes.view
    return [
        scratchpad(pads, cell_observers, [note.text for note in memory.in_scratchpad], readable),
        *reading_tools(view, files, ladder, finder),
        *writing_tools(changes),
        *memory_tools(memory, conversation=view.conversation, ask=changes.ask),
        *making_tools(tools, changes),
        *(turn_tools(view, finder) if is_hosted else ()),
    ]
