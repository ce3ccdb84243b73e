"""Services for code in a scratchpad or a tool: it can read the library, nothing else."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from habitus.agent.background import in_thread
from habitus.agent.other_files import OtherFile, OtherFiles
from habitus.agent.view import View
from habitus.errors import Invalid, NotFound, Refused
from habitus.sandbox.model import MIB
from habitus.skills import names

_LARGEST = 8 * MIB


def sandbox_services(view: View) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
    """`skills.list(tag)` and `skills.read(name, path)`, with the gates that hold for the model."""
    files = OtherFiles(view)

    async def list_skills(tag: Any) -> list[dict[str, Any]]:
        allowed = view.may_load()
        found = [item.summary for item in view.snapshot.listing if item.summary and item.name in allowed]
        return [
            {"name": s.name, "title": s.title, "description": s.description, "tags": list(s.tags)}
            for s in found
            if tag is None or tag in s.tags
        ]

    async def read(argument: Any) -> dict[str, Any]:
        name, path = argument if isinstance(argument, list) and len(argument) == 2 else (argument, None)
        wanted = names.canonical(str(name))
        if wanted not in view.may_load():
            raise NotFound(f"No skill '{name}'.")
        if path is not None:
            return await in_thread(lambda: _content(files.find(wanted, str(path)), str(path)))
        skill, paths = await in_thread(lambda: (view.load(wanted), files.paths(wanted)))
        return {
            "name": skill.name,
            "title": skill.title,
            "description": skill.description,
            "content": skill.body,
            "tags": list(skill.tags),
            "files": paths,
        }

    return {"skills.list": list_skills, "skills.read": read}


def _content(found: OtherFile | tuple[str, ...], path: str) -> dict[str, str]:
    """A file as it goes over the line."""
    if not isinstance(found, OtherFile):
        raise Invalid(f"'{path}' is a folder.", mend="Read one of its files.")
    if len(found.data) > _LARGEST:
        raise Refused(f"'{path}' has {len(found.data):,} bytes; {_LARGEST // MIB} MiB is the most that is sent.")
    if found.text is not None:
        return {"text": found.text}
    return {"base64": base64.b64encode(found.data).decode()}
