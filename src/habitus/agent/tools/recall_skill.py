"""`recall_skill` and `read_skill`: get a skill's procedure in full."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pydantic import Field

from habitus.agent.tools.registry import Arguments, Running, Tool, returned
from habitus.errors import ToolFailed
from habitus.events import ToolResult
from habitus.skills import names
from habitus.skills.library import Library, Listed
from habitus.skills.lifecycle import best_stage
from habitus.skills.model import Skill, Stage, State
from habitus.skills.selection import companions_of


class RecallSkill(Arguments):
    name: str = Field(description="The skill's name, as the list of available skills has it.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shelf:
    """What the model may load, what waits in this conversation, what is in view already, and whom to tell of a load."""

    library: Library
    may_load: Callable[[], Collection[str]]  # names that selection left for the menu, or put into the prompt
    waiting: Callable[[], Mapping[str, Skill]]
    in_view: Callable[[], Collection[str]]
    loaded: Callable[[Skill], None]


def recall_skill(shelf: Shelf) -> Tool:
    async def run(given: RecallSkill, running: Running) -> ToolResult:
        waiting = shelf.waiting()
        name, warning = _resolved(given.name, {*shelf.may_load(), *waiting})
        if name in shelf.in_view():
            return ToolResult(content=f"{warning}The skill '{name}' is in view already; follow it from there.")
        skill = waiting.get(name) or shelf.library.load(name)
        parts = [warning + _shown(shelf.library, skill)]
        shelf.loaded(skill)
        for companion in companions_of(skill, shelf.may_load()):
            if companion not in shelf.in_view():
                other = shelf.library.load(companion)
                parts.append(_shown(shelf.library, other))
                shelf.loaded(other)
        return ToolResult(content="\n\n".join(parts))

    return Tool(
        name="recall_skill",
        description="Load the procedure of a skill from the list of available skills, to follow it in this "
        "conversation. Do this before starting work that a skill is for.",
        arguments=RecallSkill,
        run=run,
        is_parallel=True,
    )


def read_skill(shelf: Shelf) -> Tool:
    async def run(given: RecallSkill, running: Running) -> ToolResult:
        waiting = shelf.waiting()
        name, _ = _resolved(given.name, {*shelf.may_load(), *waiting})
        skill = waiting.get(name) or shelf.library.load(name)
        shelf.loaded(skill)
        return returned(
            {
                "name": skill.name,
                "title": skill.title,
                "description": skill.description,
                "content": skill.body,
                "tags": list(skill.tags),
                "source": skill.source.value,
                "version": skill.version,
            }
        )

    return Tool(
        name="read_skill",
        description="Read a skill as data: title, description, text, tags, version. Use it before update_skill.",
        arguments=RecallSkill,
        run=run,
        is_parallel=True,
    )


def _resolved(wanted: str, known: Collection[str]) -> tuple[str, str]:
    """The name that is meant, with a warning when it was another; an error that lists the names when none is near."""
    if not known:
        raise ToolFailed(
            "There are no skills yet. Work it out, and save it with create_skill when it is worth keeping."
        )
    name = names.canonical(wanted)
    if name in known:
        return name, ""
    near = names.closest_match(wanted, known)
    if near is None:
        shown = ", ".join(sorted(known)[:50])
        more = f" and {len(known) - 50} more (search_skills finds them)" if len(known) > 50 else ""
        raise ToolFailed(f"There is no skill '{wanted}'. Available: {shown}{more}.")
    return near, f"(There is no skill '{wanted}'; this is the nearest, '{near}'.)\n\n"


def _shown(library: Library, skill: Skill) -> str:
    lines = [f"# Skill: {skill.name}" + (f" ({skill.title})" if skill.title else "")]
    if skill.cue:
        lines.append(f"When: {skill.cue}")
    lines += _stages(library, skill)
    lines += ["", skill.body.strip() or "(It has no steps.)"]
    return "\n".join(lines)


def _stages(library: Library, skill: Skill) -> list[str]:
    """Which stage to try first; the steps below are the fallback."""
    if Stage.CODE not in skill.stages or not skill.version:
        return []
    tool = names.callable_name(skill.name)
    first = best_stage(skill.stages, library.counters(skill.name))
    if first is Stage.CODE:
        return [f"Try the tool `{tool}` first: it is tested. The steps are for when it fails."]
    return [f"There is a tool `{tool}` for it, too."]


def loadable(listing: list[Listed]) -> set[str]:
    """Every skill that a model may load, whatever the request."""
    return {
        item.name
        for item in listing
        if item.summary is not None and item.state is State.OK and not item.summary.manifest.disable_model_invocation
    }
