"""Whose things are meant: the user's own, or for an admin everybody's, to look at and to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from habitus import sql
from habitus.errors import Refused

if TYPE_CHECKING:
    from habitus.app.habitus import Habitus
    from habitus.memory.cortex import Cortex
    from habitus.skills.model import Author


def whose(habitus: Habitus, all_users: bool) -> str | None:
    """The user to look for; None is everybody."""
    if all_users and not habitus.settings.is_admin:
        raise Refused("Only an admin sees what is other users'.", mend="Leave --all-users out to see yours.")
    return None if all_users else habitus.settings.user


def refuse_unless_admin(habitus: Habitus, what: str, author: Author | None = None) -> None:
    """What changes things for everybody on a shared database is for admins; `author` may be the user of a session."""
    name = None if author is None or author.name == habitus.settings.signature else author.name
    if habitus.settings.database and not habitus.user(name).is_admin:
        raise Refused(f"Only an admin may {what} on a shared database.", mend="Ask one, or propose it.")


def memory_of(habitus: Habitus, all_users: bool) -> Cortex:
    """Memory with one's own lessons and those for all, or with everybody's."""
    return habitus.memory if whose(habitus, all_users) is not None else habitus.open_memory(all_users=True)


def acting_as(habitus: Habitus, user: str) -> Habitus:
    """The same home and connections in another user's name, which is borne as claimed; none of their memory comes into
    the files of this home. Not to be closed."""
    if user == habitus.settings.user:
        return habitus
    theirs = habitus.settings.model_copy(update={"user": user, "is_claimed": True})
    shared = sql.acting_as(habitus.shared, user, is_admin=theirs.is_admin)
    return type(habitus)(
        theirs, local=habitus.local, shared=shared, clock=habitus.clock, there=habitus.there, has_pages=False
    )


def acting_for_itself(habitus: Habitus) -> Habitus:
    """The same home and connections in nobody's name, which reaches every row: for what Habitus has decided it may do.
    Not to be closed."""
    shared = sql.acting_as(habitus.shared, "", is_admin=True)
    if shared is habitus.shared:
        return habitus
    return type(habitus)(habitus.settings, local=habitus.local, shared=shared, clock=habitus.clock, there=habitus.there)
