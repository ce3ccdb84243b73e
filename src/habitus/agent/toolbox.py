"""The tools every session has, put together from what they need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from habitus.agent.changes import Changes
from habitus.agent.ladder import Ladder
from habitus.agent.memory import SessionMemory
from habitus.agent.other_files import OtherFiles
from habitus.agent.tools.create_skill import create_skill
from habitus.agent.tools.create_tool import create_tool
from habitus.agent.tools.delete_skill import delete_skill
from habitus.agent.tools.edit_system_prompt import edit_system_prompt
from habitus.agent.tools.list_lessons import list_lessons
from habitus.agent.tools.list_skills import list_skills
from habitus.agent.tools.manage_skills import manage_skills
from habitus.agent.tools.memorize import memorize
from habitus.agent.tools.read_skill import read_skill
from habitus.agent.tools.recall_skill import recall_skill
from habitus.agent.tools.registry import Tool
from habitus.agent.tools.report_outcome import report_outcome
from habitus.agent.tools.scratchpad import scratchpad
from habitus.agent.tools.search_skills import search_skills
from habitus.agent.tools.switch_skill import disable_skill, enable_skill
from habitus.agent.tools.update_skill import update_skill
from habitus.agent.tools.why import why
from habitus.agent.view import View
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
) -> list[Tool]:
    """Built-in tools of every session; what comes of skills' code is offered beside them."""
    view = changes.view
    return [
        scratchpad(pads, cell_observers, [note.text for note in memory.in_scratchpad], readable),
        recall_skill(view, files, ladder),
        search_skills(finder, view),
        create_skill(changes),
        update_skill(changes),
        delete_skill(changes),
        list_skills(view),
        read_skill(view, files),
        enable_skill(changes),
        disable_skill(changes),
        memorize(memory, conversation=view.conversation, ask=changes.ask),
        list_lessons(memory.cortex, user=memory.user),
        create_tool(tools, changes),
        manage_skills(tools, changes),
        edit_system_prompt(changes),
    ]


def hosted_tools(view: View, finder: Finder) -> list[Tool]:
    """What a loop that is not ours has besides (`names.HOSTED_TOOLS`)."""
    return [report_outcome(), why(view, finder)]
