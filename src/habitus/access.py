"""Access levels: who may use a use case, a REST route, a page or an MCP tool. Each declares one; there is no
default.
"""

from __future__ import annotations

from enum import IntEnum


class Access(IntEnum):
    """The lowest level a caller needs; each level may use everything below it."""

    # Anyone: the sign-in link and static files.
    PUBLIC = 0
    # Viewers; with `--open-reading` also anonymous callers, so nothing about a person.
    OPEN_READING = 1
    # Anyone who is signed in.
    VIEWER = 2
    REVIEWER = 3
    ADMIN = 4
    # The account that owns the home.
    OWNER = 5
