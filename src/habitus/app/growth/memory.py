"""Memory put together: where engrams are kept, how they are found, and the pages that show them."""

from __future__ import annotations

from functools import partial

from habitus.app.habitus import Habitus
from habitus.app.home import open_index
from habitus.memory.cortex import Cortex
from habitus.memory.stores.sql import SqlEngramStore
from habitus.memory.view_files import ViewFiles


def open_memory(habitus: Habitus, *, user: str = "", all_users: bool = False) -> Cortex:
    settings = habitus.settings
    files = ViewFiles(
        settings.home / "memory",
        habitus.local,
        clock=habitus.clock,
        is_durable=settings.durable,
        renderings=settings.retention.renderings,
    )
    return Cortex(
        SqlEngramStore(habitus.shared),
        partial(open_index, settings, habitus.shared, "memory"),
        redactor=habitus.redactor,
        clock=habitus.clock,
        pause=habitus.pause,
        mode=settings.memory,
        is_shared=habitus.shared is not habitus.local,
        user=user or settings.user,
        all_users=all_users,
        may_remove_shared=settings.is_admin or settings.database is None,
        files=files if habitus.has_pages and not habitus.is_read_only and user in ("", settings.user) else None,
        allow=habitus.refuse_if_read_only,
        keep=settings.retention,
        screening=habitus.screening,
        tell=habitus.notifier.lesson,
    )
