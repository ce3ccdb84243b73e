"""The tools every session has, put together from what they need."""

from __future__ import annotations

from collections.abc import Sequence

from habitus.agent.changes import Changes
from habitus.agent.session import Session
from habitus.agent.tools.create_skill import create_skill
from habitus.agent.tools.delete_skill import delete_skill
from habitus.agent.tools.edit_system_prompt import edit_system_prompt
from habitus.agent.tools.list_skills import list_skills
from habitus.agent.tools.recall_skill import Shelf, read_skill, recall_skill
from habitus.agent.tools.registry import Tool
from habitus.agent.tools.scratchpad import scratchpad
from habitus.agent.tools.search_skills import search_skills
from habitus.agent.tools.switch_skill import disable_skill, enable_skill
from habitus.agent.tools.update_skill import update_skill
from habitus.sandbox.scratchpads import CellObserver, Scratchpads
from habitus.skills.finding import Finder


def standard_tools(
    session: Session,
    *,
    changes: Changes,
    finder: Finder,
    pads: Scratchpads,
    cell_observers: Sequence[CellObserver] = (),
    cell_lessons: Sequence[str] = (),
) -> list[Tool]:
    library = changes.library
    shelf = Shelf(
        library=library,
        may_load=session.may_load,
        waiting=session.waiting_skills,
        in_view=session.in_view,
        loaded=session.note_loaded,
    )
    return [
        scratchpad(pads, cell_observers, cell_lessons),
        recall_skill(shelf),
        search_skills(finder, library, session.may_load),
        create_skill(changes),
        update_skill(changes),
        delete_skill(changes),
        list_skills(library),
        read_skill(shelf),
        enable_skill(changes),
        disable_skill(changes),
        edit_system_prompt(changes),
    ]
