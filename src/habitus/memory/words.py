"""How much of a model's context a lesson takes."""

from __future__ import annotations


def tokens(text: str) -> int:
    """An estimate that needs no model: four bytes a token, so that other scripts are not counted too cheaply."""
    return (len(text.encode()) + 3) // 4
