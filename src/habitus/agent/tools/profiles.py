"""Profiles: which of the built-in tools a loop that is not ours is offered, by the name of the choice."""

from __future__ import annotations

from collections.abc import Collection

from habitus.errors import Invalid, did_you_mean
from habitus.skills.names import BUILT_IN_TOOLS

DEFAULT = "default"
ALL = "all"
READ_ONLY = frozenset({"search_skills", "recall_skill", "read_skill", "list_skills", "list_lessons", "why"})

_PROFILES = {
    DEFAULT: frozenset(
        {
            *("search_skills", "recall_skill", "create_skill", "update_skill"),
            *("memorize", "list_lessons", "report_outcome", "why"),
        }
    ),
    "read": READ_ONLY,
    ALL: BUILT_IN_TOOLS,
}


def in_profile(tool: str, profile: str | Collection[str]) -> bool:
    """Whether a tool belongs to a profile, or to a choice of names. The code of skills is in every profile."""
    if not isinstance(profile, str):
        return tool in profile
    if profile not in _PROFILES:
        mend = did_you_mean(profile, _PROFILES) or f"There are: {', '.join(_PROFILES)}."
        raise Invalid(f"There is no profile '{profile}' of tools.", mend=mend)
    return tool in _PROFILES[profile] or tool not in BUILT_IN_TOOLS
