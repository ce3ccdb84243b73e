"""Sections of a prompt, each within its share of the model's context, and what did not fit."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.text import byte_length, tokens

EAGER_SHARE = 0.2  # of the context, for skills in full
ATTACHED_SHARE = 0.25  # for the text of attachments
HISTORY_SHARE = 0.8  # for everything that is sent
FITTING = 3  # skills named beside a request
NEARLY_AS_FITTING = 0.75  # of the best one's score


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One part of a prompt, as the model sees it. `budget` 0 means that it has none of its own."""

    name: str
    text: str
    budget: int = 0
    cut: tuple[str, ...] = ()  # what there was no room for

    @property
    def tokens(self) -> int:
        return tokens(self.text)


def shorten(text: str, budget: int) -> str:
    """The beginning of a text within a budget, with a mark that says how much is missing."""
    room = budget * 4
    if byte_length(text) <= room:
        return text
    kept = text.encode("utf-8", "replace")[: max(room - 60, 0)].decode("utf-8", "ignore")
    return f"{kept}\n[… {len(text) - len(kept):,} characters left out …]"
