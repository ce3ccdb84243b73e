"""Memory put together: where engrams are kept, how they are found, and the pages that show them."""

from __future__ import annotations

from functools import partial

from habitus.app.home import Home
from habitus.app.home_directory import open_index
from habitus.memory.cortex import Cortex
from habitus.memory.stores.sql import SqlEngramStore
from habitus.memory.view_files import ViewFiles


def open_memory(home: Home, *, user: str = "", all_users: bool = False) -> Cortex:
    settings = home.settings
    files = ViewFiles(
        settings.home / "memory",
        home.local,
        clock=home.clock,
        is_durable=settings.durable,
        renderings=settings.retention.renderings,
    )
    return Cortex(
        SqlEngramStore(home.shared),
        partial(open_index, settings, home.shared, "memory"),
        redactor=home.redactor,
        clock=home.clock,
        pause=home.pause,
        mode=settings.memory,
        is_shared=home.shared is not home.local,
        user=user or settings.user,
        all_users=all_users,
        may_remove_shared=settings.is_admin or settings.database is None,
        files=files if home.has_pages and not home.is_read_only and user in ("", settings.user) else None,
        allow=home.refuse_if_read_only,
        keep=settings.retention,
        screening=home.screening,
        tell=home.notifier.lesson,
    )
