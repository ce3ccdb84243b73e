"""What code in the sandbox may ask about skills: `skills.list` and `skills.read`."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from habitus.agent.background import run_in_thread
from habitus.agent.library.supporting_files import SupportingFile, SupportingFileReaderAndPlacer
from habitus.agent.library.view import LibraryView
from habitus.errors import Invalid, NotFound, Refused
from habitus.sandbox.model import MIB
from habitus.skills import names

_LARGEST = 8 * MIB


def build_skill_services_for_sandbox(view: LibraryView) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
    """Return the `skills.list(tag)` and `skills.read(name, path)` services, with the model's access rules."""
    files = SupportingFileReaderAndPlacer(view)

    async def list_skills(tag: Any) -> list[dict[str, Any]]:
        allowed = view.list_loadable_skill_names()
        found = [item.summary for item in view.snapshot.listing if item.summary and item.name in allowed]
        return [
            {"name": s.name, "title": s.title, "description": s.description, "tags": list(s.tags)}
            for s in found
            if tag is None or s.has_tag(tag)
        ]

    async def read(argument: Any) -> dict[str, Any]:
        name, path = argument if isinstance(argument, list) and len(argument) == 2 else (argument, None)
        wanted = names.canonicalize_name(str(name))
        if wanted not in view.list_loadable_skill_names():
            raise NotFound(f"No skill '{name}'.")
        if path is not None:
            return await run_in_thread(
                lambda: _encode_file_for_sandbox(files.find_file_or_list_folder(wanted, str(path)), str(path))
            )
        skill, paths = await run_in_thread(lambda: (view.load_skill(wanted), files.list_first_file_paths(wanted)))
        return {
            "name": skill.name,
            "title": skill.title,
            "description": skill.description,
            "content": skill.body,
            "tags": list(skill.tags),
            "files": paths,
        }

    return {"skills.list": list_skills, "skills.read": read}


def _encode_file_for_sandbox(found: SupportingFile | tuple[str, ...], path: str) -> dict[str, str]:
    """Encode a file for transport."""
    if not isinstance(found, SupportingFile):
        raise Invalid(f"'{path}' is a folder.", hint="Read one of its files.")
    if len(found.data) > _LARGEST:
        raise Refused(f"'{path}' has {len(found.data):,} bytes; {_LARGEST // MIB} MiB is the most that is sent.")
    if found.text is not None:
        return {"text": found.text}
    return {"base64": base64.b64encode(found.data).decode()}
