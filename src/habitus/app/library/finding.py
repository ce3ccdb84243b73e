"""Search over skills put together: the index of this home, and that of a shared library too large for memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa

from habitus import search
from habitus.app import home_directory
from habitus.errors import StorageFailed
from habitus.settings import Settings
from habitus.skills.finding import Finder
from habitus.skills.layers import USER
from habitus.skills.shared_index import SharedIndex

if TYPE_CHECKING:
    from habitus.app.home import Home


def open_finder(home: Home) -> Finder:
    """One view of the directories makes one index, so it is kept with what is known of this machine."""
    settings, local = home.settings, home.local
    return Finder(
        home.skills,
        local,
        partial(home_directory.open_index, settings, local),
        redacted=home.redacted,
        shared=_shared_index(home.settings, home.shared),
    )


def _shared_index(settings: Settings, shared: sa.Engine) -> SharedIndex | None:
    """Only PostgreSQL searches by itself."""
    url = settings.database
    if not url or sa.make_url(url).get_backend_name() != "postgresql":
        return None
    open_server = partial(_open_server, shared)
    return SharedIndex(USER, above=settings.search.server_above, open_server=open_server)


def _open_server(shared: sa.Engine, embedder: search.Embedder) -> search.ServerIndex:
    if shared.dialect.name != "postgresql":  # what stands in for it here has no index
        raise StorageFailed("The database is away, and the index of its skills with it.", mend="Retry when it is back.")
    return search.ServerIndex(shared, embedder)
