"""One edit of a text, as a model writes it: the same five operations wherever there is a text to change."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from habitus.agent.tools.registry import Arguments
from habitus.skills.edits import Edit, Operation


class EditArguments(Arguments):
    operation: Literal["replace", "find_replace", "append", "prepend", "delete"] | None = Field(
        default=None, description="What to do with the text; without one it stays as it is."
    )
    content: str | None = Field(
        default=None,
        description="The whole new text (replace), the text to add (append, prepend) or to remove (delete).",
    )
    find: str | None = Field(default=None, description="For find_replace: the exact text that stands there.")
    replace: str | None = Field(default=None, description="For find_replace: what to put in its place.")
    replace_all: bool | None = Field(default=None, description="For find_replace: every place, not only the first.")

    @property
    def edit(self) -> Edit:
        return Edit(
            operation=None if self.operation is None else Operation(self.operation),
            content=self.content,
            find=self.find,
            replace=self.replace,
            replace_all=bool(self.replace_all),
        )
