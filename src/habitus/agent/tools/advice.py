"""Errors as a model reads them: what a person would type is said as what a tool does, or is left to the person."""

from __future__ import annotations

import re

from habitus.errors import HabitusError, UserError

_COMMAND = re.compile(r"\bhabitus ([a-z]+ [a-z]+|[a-z]+)")
_POINTER = re.compile(r"; (?:see|run) (?='habitus )")
_TOOLS = {
    "skills list": "list_skills shows what there is.",
    "tools list": "manage_skills lists them.",
    "lessons list": "list_lessons shows them.",
}


def advised(error: HabitusError) -> str:
    """What went wrong, and a mend that the model can follow."""
    if not isinstance(error, UserError) or (typed := _COMMAND.search(error.mend)) is None:
        return explained(str(error))
    mend = _TOOLS.get(typed[1]) or f"Only a person can do that; tell them: {error.mend}"
    return f"{explained(error.message)} {mend}"


def explained(reason: str) -> str:
    """Why something is not to be had, with the command that changes it left to the person."""
    return _POINTER.sub("; only a person can change that, tell them: ", reason)
