"""`list_skills`: what there is, for a model that wants the whole list."""

from __future__ import annotations

from pydantic import Field

from habitus.agent.tools.registry import Arguments, Running, Tool, returned
from habitus.agent.view import View
from habitus.events import ToolResult
from habitus.skills.model import State


class ListSkills(Arguments):
    tag: str | None = Field(default=None, description="Only the skills with this tag.")
    include_disabled: bool | None = Field(default=None, description="Those that are switched off, too.")


def list_skills(view: View) -> Tool:
    def run(given: ListSkills, running: Running) -> ToolResult:
        allowed = view.may_load()
        others = {State.GATED, *([State.DISABLED] if given.include_disabled else [])}
        found = [
            item.summary
            for item in view.snapshot.listing
            if item.summary is not None
            and (item.name in allowed or (item.state in others and not item.summary.manifest.admin_only))
        ]
        return returned(
            {
                "skills": [
                    {
                        "name": skill.name,
                        "title": skill.title,
                        "description": skill.description,
                        "tags": list(skill.tags),
                        "source": skill.source.value,
                        "version": skill.version,
                    }
                    for skill in found
                    if (given.tag is None or given.tag in skill.tags) and not skill.manifest.disable_model_invocation
                ]
            }
        )

    return Tool(
        name="list_skills",
        description="List the skills there are, with title, description and tags.",
        arguments=ListSkills,
        run=run,
        is_parallel=True,
    )
