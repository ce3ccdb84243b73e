"""Refusals of a database, each turned into one line: what, where and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import sqlalchemy as sa

from habitus.errors import DatabaseAway, StorageFailed

# By the state that PostgreSQL gives with what it says, or by the words where there is none: SQLite has no states, and
# what a server says to one who connects comes as words alone.
_KNOWN = (
    (
        r"^53100|disk is full|no space left",
        "No space left for {where}; nothing was changed.",
        "Free some space and retry.",
    ),
    (
        r"^25006",
        "{where} takes no changes: {said}.",
        "If it is a standby, give the address of the server that it follows.",
    ),
    (r"readonly|read-only", "{where} can't be written.", "Check the permissions of its directory."),
    (r"unable to open", "{where} can't be opened.", "Check that its directory exists and is yours."),
    (r"malformed|not a database|could not decode", "{where} is damaged ({said}).", "{way_back}"),
    (r"^55P03|locked", "{where} has been busy for {waited:g} s.", "Look for a stuck habitus process, then retry."),
    (
        r"^42501|^3F000|permission denied",
        "{where} does not let this role in: {said}.",
        "Have its owner grant the role the schema and its tables.",
    ),
    (
        r"no encryption|does not support SSL|certificate",
        "{where} can't be reached as its address says: {said}.",
        "Set sslmode in HABITUS_DATABASE as the server wants it.",
    ),
    (
        r"^28|authentication|no password supplied|role .* does not exist|no pg_hba.conf entry",
        "{where} does not let this role in: {said}.",
        "Correct the name or the password in HABITUS_DATABASE.",
    ),
    (r"database .* does not exist", "{where}: {said}.", "Correct HABITUS_DATABASE, or create the database."),
)
_AWAY = r"^08|^53300|^57P|connection|resolve host|too many (clients|connections)|connection slots"
_PREFIX = re.compile(r"^.*(?:connection failed|connection is bad|FATAL): *")  # each layer names itself before it speaks


def explained(where: str, error: sa.exc.DBAPIError, *, waited: float) -> StorageFailed:
    """What a driver says, in our words; `waited` is how long a busy database was waited for."""
    said = str(error.orig).strip().splitlines()[0].rstrip(".") if error.orig else str(error)
    known = getattr(error.orig, "sqlstate", None) or said
    for pattern, what, mend in _KNOWN:
        if re.search(pattern, known, re.IGNORECASE):
            filled = {"where": where, "said": _PREFIX.sub("", said), "waited": waited, "way_back": way_back(where)}
            return StorageFailed(what.format(**filled), mend=mend.format(**filled))
    if re.search(_AWAY, known, re.IGNORECASE):  # which server it was is in what it says
        said = said.removeprefix("connection is bad: ")
        return DatabaseAway(f"The database is away: {said}.", mend="Nothing was changed; run 'habitus doctor'.")
    return StorageFailed(f"{where}: {said}.", mend="Nothing was changed; run 'habitus doctor'.")


def way_back(path: str) -> str:
    """From a damaged database file."""
    name = Path(path).name
    return (
        f"Skills on disk and memory/*.md are not touched. Put a backup of {name} in its place, or save what can be "
        f"read (sqlite3 {name} .recover | sqlite3 saved.db) and use that, or move it away to start counters, history "
        "and lessons anew."
    )
