"""Whose things are meant: the user's own, or for an admin everybody's, to look at and to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from habitus.errors import Refused
from habitus.settings import Settings

if TYPE_CHECKING:
    from habitus.app.home import Home
    from habitus.memory.cortex import Cortex
    from habitus.skills.model import Author


def whose(settings: Settings, all_users: bool, user: str = "") -> str | None:
    """The user to look for, who may be named; None is everybody."""
    if (all_users or user not in ("", settings.user)) and not settings.is_admin:
        raise Refused("Only an admin sees what is other users'.", mend="Leave --all-users and --user out to see yours.")
    return None if all_users else user or settings.user


def refuse_unless_admin(home: Home, what: str, author: Author | None = None) -> None:
    """What changes things for everybody on a shared database is for admins; `author` may be the user of a session."""
    name = None if author is None or author.name == home.settings.signature else author.name
    if home.settings.database and not home.user(name).is_admin:
        raise Refused(f"Only an admin may {what} on a shared database.", mend="Ask one, or propose it.")


def memory_of(home: Home, all_users: bool) -> Cortex:
    """Memory with one's own lessons and those for all, or with everybody's."""
    return home.memory if whose(home.settings, all_users) is not None else home.open_memory(all_users=True)
