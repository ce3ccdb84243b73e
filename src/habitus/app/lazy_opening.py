"""A home that is not opened yet: its first listing is the one that is kept, and whatever else is asked opens it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from habitus.skills.layers.listing_cache import View, read_listing

if TYPE_CHECKING:
    from habitus.app.home import Clock
    from habitus.settings import Settings
    from habitus.skills.layers.listing import Listed
    from habitus.skills.library import Library


@dataclass(kw_only=True, slots=True)
class Unopened:
    """How a home will be opened: with the variables and the directory that the process had when it was asked for."""

    view: View
    clock: Clock
    has_pages: bool
    lock: threading.RLock = field(default_factory=threading.RLock)
    is_opening: bool = False

    def settings(self) -> Settings:
        from habitus.app.home_directory import read_settings_of  # with what checks them, for those who need them
        from habitus.settings import account_name

        return read_settings_of(self.view.environ, self.view.cwd, account=account_name())


class KeptLibrary:
    """Stands for the library until it is opened. Only the first listing is the kept one: checking that nothing has
    changed takes as long every time, and a library that is open knows."""

    def __init__(self, view: View, open_library: Callable[[], Library]) -> None:
        self._view: View | None = view
        self._open_library = open_library

    def listing(self) -> list[Listed]:
        view, self._view = self._view, None
        found = None if view is None else read_listing(view)
        return self._open_library().listing() if found is None else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open_library(), name)
