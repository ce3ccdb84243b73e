"""Services for code in a scratchpad or a tool: it can read the library, nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from habitus.agent.background import in_thread
from habitus.agent.view import View
from habitus.errors import NotFound
from habitus.skills import names


def sandbox_services(view: View) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
    """`skills.list(tag)` and `skills.read(name)`, with the gates that hold for the model."""

    async def listed(tag: Any) -> list[dict[str, Any]]:
        allowed = view.may_load()
        found = [item.summary for item in view.snapshot.listing if item.summary and item.name in allowed]
        return [
            {"name": s.name, "title": s.title, "description": s.description, "tags": list(s.tags)}
            for s in found
            if tag is None or tag in s.tags
        ]

    async def read(name: Any) -> dict[str, Any]:
        if names.canonical(str(name)) not in view.may_load():
            raise NotFound(f"No skill '{name}'.")
        skill = await in_thread(lambda: view.load(str(name)))
        return {
            "name": skill.name,
            "title": skill.title,
            "description": skill.description,
            "content": skill.body,
            "tags": list(skill.tags),
        }

    return {"skills.list": listed, "skills.read": read}
