"""What code in a scratchpad can ask of the library: read it, nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from habitus.errors import NotFound
from habitus.skills import names
from habitus.skills.library import Library


def sandbox_services(
    library: Library, may_load: Callable[[], Collection[str]]
) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
    """`skills.list(tag)` and `skills.read(name)`, with the gates that hold for the model."""

    async def listed(tag: Any) -> list[dict[str, Any]]:
        allowed = may_load()
        found = [item.summary for item in library.listing() if item.summary and item.name in allowed]
        return [
            {"name": s.name, "title": s.title, "description": s.description, "tags": list(s.tags)}
            for s in found
            if tag is None or tag in s.tags
        ]

    async def read(name: Any) -> dict[str, Any]:
        if names.canonical(str(name)) not in may_load():
            raise NotFound(f"No skill '{name}'.")
        skill = library.load(str(name))
        return {
            "name": skill.name,
            "title": skill.title,
            "description": skill.description,
            "content": skill.body,
            "tags": list(skill.tags),
        }

    return {"skills.list": listed, "skills.read": read}
