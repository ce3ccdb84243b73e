"""Access: who may use a use case, a REST route, a page or an MCP tool. Each declares it once; there is no default."""

from __future__ import annotations

from enum import IntEnum


class Access(IntEnum):
    """The least that a caller has to be. Each level may use what those before it may."""

    PUBLIC = 0  # anybody: the sign-in link and static files
    OPEN_READING = 1  # viewers; with `--open-reading` also somebody who isn't signed in, so nothing about a person
    VIEWER = 2  # somebody who is signed in
    REVIEWER = 3
    ADMIN = 4
    OWNER = 5  # the account whose home it is
