"""Publishing skills to agents that read files: which there are for somebody, and their files as they are served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from habitus.agent.view import loadable
from habitus.app.home import Home
from habitus.app.library.explaining import request_of
from habitus.app.library.selecting import select
from habitus.errors import NotFound
from habitus.files import File, without_examination
from habitus.skills.model import Summary
from habitus.skills.selection import User


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A skill's files, without secrets."""

    summary: Summary
    files: Mapping[str, bytes]


class Publisher:
    def __init__(self, home: Home, user: User) -> None:
        self._home = home
        self._user = user

    def summaries(self) -> list[Summary]:
        """Every skill that this user's agent may load, by name."""
        seen = self._home.skills.snapshot(user=self._user.name)
        chosen = select(self._home, request_of(self._home, "", self._user.name))
        names = loadable(seen) & chosen.eligible()
        return [item.summary for item in seen.listing if item.name in names and item.summary is not None]

    def skill(self, name: str) -> Published:
        found = next((one for one in self.summaries() if one.name == name), None)
        tree = None if found is None else self._home.skills.layer(found.layer).store.tree(name)
        if found is None or tree is None:
            raise NotFound(f"No skill '{name}' is served here.", mend="It may have been renamed; list them again.")
        shown = dict(sorted(without_examination(tree).items()))
        read = {path: self._read(found, path, file) for path, file in shown.items()}
        return Published(summary=found, files={path: content for path, content in read.items() if content is not None})

    def _read(self, skill: Summary, path: str, file: File) -> bytes | None:
        content = file.content
        if content is None:  # too large to be kept beside the database
            folder = self._home.skills.layer(skill.layer).store.directory(skill.name)
            try:
                content = None if folder is None else (folder / path).read_bytes()
            except OSError:
                content = None  # gone a moment ago
        return None if content is None else self._without_secrets(content)

    def _without_secrets(self, content: bytes) -> bytes:
        try:
            return self._home.redact(content.decode()).encode()
        except UnicodeDecodeError:
            return content
