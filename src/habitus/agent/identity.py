"""Who the assistant is: a text with a history, kept like a skill in a layer of its own that no listing shows."""

from __future__ import annotations

from collections.abc import Mapping

from habitus.agent import prompt
from habitus.skills import placeholders
from habitus.skills.library import Library
from habitus.skills.model import Skill

LAYER = "prompt"
NAME = "identity"


def identity_skill(library: Library) -> Skill:
    """The text as somebody last wrote it, or the one that comes along."""
    written = library.layer(LAYER).store.load(NAME)
    return written or Skill(
        name=NAME, description="Who the assistant is and how it speaks.", body=prompt.text("identity")
    )


def identity_text(library: Library, fill: Mapping[str, str]) -> str:
    return placeholders.fill(identity_skill(library).body, fill).strip()
