"""Whose eyes and hands: what one person sees of memory, and what of it they may take from everybody."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.errors import Refused
from habitus.memory.model import Engram, Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewer:
    user: str
    sees_all: bool = False  # an admin who asked for what is everybody's
    may_remove_shared: bool = True

    def sees(self, engram: Engram, user: str = "") -> bool:
        """`user` is whom to look for in this one's place."""
        return engram.is_open_to(user) if user else self.sees_all or engram.is_open_to(self.user)

    def taught(self, engram: Engram) -> bool:
        """Whether a conversation of theirs taught it."""
        return self.sees_all or engram.is_of(self.user)

    def may_remove(self, engram: Engram) -> bool:
        """Whoever's conversation taught it may withdraw it, whomever it holds for."""
        is_shared = engram.scope in (Scope.WORKSPACE, Scope.GLOBAL)
        return self.may_remove_shared or not is_shared or engram.is_of(self.user)

    def may_turn_back(self, *versions: Engram) -> bool:
        """Another's stays as it is, and so does what holds for everybody unless one may take it away."""
        return all(self.sees(one) and self.may_remove(one) for one in versions)

    def check_may_remove(self, engram: Engram) -> None:
        if not self.may_remove(engram):
            what = f"'{engram.id}' holds for everybody: only an admin may take it away."
            raise Refused(what, mend="Ask one, or add what you would rather have.")
