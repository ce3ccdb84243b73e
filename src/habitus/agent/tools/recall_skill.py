"""`recall_skill`: get a skill's procedure in full, to follow it."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field

from habitus.agent import prompt
from habitus.agent.ladder import Ladder
from habitus.agent.other_files import OtherFiles
from habitus.agent.tools.registry import Arguments, Running, Tool
from habitus.agent.view import View
from habitus.errors import ToolFailed
from habitus.events import ToolResult
from habitus.skills import names
from habitus.skills.model import Skill
from habitus.skills.selection import companions_of
from habitus.text import block, one_line


class RecallSkill(Arguments):
    name: str = Field(description="The skill's name, as the list of available skills has it.")


def recall_skill(view: View, files: OtherFiles, ladder: Ladder) -> Tool:
    def run(given: RecallSkill, running: Running) -> ToolResult:
        waiting = view.waiting()
        name, warning = resolved(given.name, view.may_recall(), view)
        if view.is_in_view(name):
            return ToolResult(content=f"{warning}The skill '{name}' is in view already; follow it from there.")
        skill = waiting.get(name) or view.load(name)
        parts = [warning + _shown(view, files, ladder, skill)]
        view.note_loaded(skill)
        for companion in companions_of(skill, view.may_load()):
            if not view.is_in_view(companion):
                other = view.load(companion)
                parts.append(_shown(view, files, ladder, other))
                view.note_loaded(other)
        return ToolResult(content="\n\n".join(parts))

    return Tool(
        name="recall_skill",
        description="Load the procedure of a skill from the list of available skills, to follow it in this "
        "conversation. Do this before starting work that a skill is for.",
        arguments=RecallSkill,
        run=run,
        is_parallel=True,
    )


def resolved(wanted: str, known: Collection[str], view: View) -> tuple[str, str]:
    """The name that is meant, with a warning when it was another; an error that lists the names when none is near."""
    name = names.canonical(wanted)
    if name in known:
        return name, ""
    if reason := view.why_not(name):
        raise ToolFailed(f"The skill '{name}' can't be loaded now: {reason}.")
    if not known:
        raise ToolFailed(
            "There are no skills yet. Work it out, and save it with create_skill when it is worth keeping."
        )
    near = names.closest_match(wanted, known)
    if near is None:
        shown = ", ".join(sorted(known)[:50])
        more = f" and {len(known) - 50} more (search_skills finds them)" if len(known) > 50 else ""
        raise ToolFailed(f"There is no skill '{wanted}'. Available: {shown}{more}.")
    return near, f"(There is no skill '{one_line(wanted)}'; this is the nearest, '{near}'.)\n\n"


def _shown(view: View, files: OtherFiles, ladder: Ladder, skill: Skill) -> str:
    lines = [f"# Skill: {skill.name}" + (f" ({one_line(skill.title)})" if skill.title else "")]
    if origin := view.unreviewed(skill.name):
        lines.append(prompt.introduced(origin))
    if skill.cue:
        lines.append(f"When: {one_line(skill.cue)}")
    lines += ladder.first(skill)
    lines += ["", block(skill.body.strip()) or "(It has no steps.)"]
    if others := files.put(skill):
        lines += ["", others]
    return "\n".join(lines)
