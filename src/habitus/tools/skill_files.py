"""Files of a skill for its tool: a call finds them below `GIVEN`, as a cell does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from habitus.files import tree_hash
from habitus.sandbox.given import Given
from habitus.skills.library import Library
from habitus.skills.listing import Listed


class ToolFiles:
    def __init__(self, library: Library, given: Callable[[str], Given]) -> None:
        """`given` makes the place for files that have this hash, for a call that no session makes."""
        self._library = library
        self._given = given

    def folder(self, item: Listed, session: Given | None = None) -> Path | None:
        """The folder that a call may read: all that a session gives, and in any case the files of its own skill."""
        files = self._library.files(item)
        if not files.others:
            return session.folder if session is not None and session.is_used else None
        tree = files.trusted
        given = session or self._given(tree_hash(tree))
        if session is not None or not given.has_tree(item.name):
            given.put_tree(item.name, tree, folders=files.folders)
        return given.folder
