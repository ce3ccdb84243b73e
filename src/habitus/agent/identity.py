"""Who the assistant is: a text with a history, kept like a skill in a layer of its own that no listing shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from habitus.agent import prompt
from habitus.skills import placeholders
from habitus.skills.layers import PROMPT
from habitus.skills.library import Library
from habitus.skills.model import Skill

NAME = "identity"


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    library: Library
    fill: Mapping[str, str]  # what placeholders become

    def text(self) -> str:
        """As the library last saw it."""
        return placeholders.fill(identity_skill(self.library, look=False).body, self.fill).strip()


def identity_skill(library: Library, *, look: bool = True) -> Skill:
    """The text as somebody last wrote it, or the one that comes along."""
    written = library.layer(PROMPT).store.load(NAME, look=look)
    return written or Skill(
        name=NAME, description="Who the assistant is and how it speaks.", body=prompt.text("identity")
    )
