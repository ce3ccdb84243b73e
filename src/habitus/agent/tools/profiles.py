"""Profiles: the choices of tools that a loop which is not ours can be offered."""

from __future__ import annotations

from enum import StrEnum

from habitus.errors import Invalid, did_you_mean


class Profile(StrEnum):
    DEFAULT = "default"
    READ = "read"  # what changes nothing
    ALL = "all"


def profile_named(name: str) -> Profile:
    if name not in set(Profile):
        mend = did_you_mean(name, Profile) or f"There are: {', '.join(Profile)}."
        raise Invalid(f"There is no profile '{name}' of tools.", mend=mend)
    return Profile(name)
