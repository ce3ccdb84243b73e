"""The database layer: engines, transactions and migrations, for SQLite and PostgreSQL alike.

Packages above declare their tables on `metadata`; `migrations/` creates them.
"""

from habitus.sql.addresses import (
    Utc,
    columns,
    key_of,
    keys,
    metadata,
    place,
    sqlite_url,
    without_password,
    workspace_of,
)
from habitus.sql.engines import CONNECTIONS, acting_as, acts_as, create_all_in_memory, create_engine, open_engine
from habitus.sql.errors import patience, storage_errors
from habitus.sql.schema import BASELINE, HEAD, migrate, oldest_reader, revision, unusable
from habitus.sql.transactions import (
    insert_missing,
    is_writing,
    last_commit,
    open_transactions,
    reading,
    upsert,
    writing,
)

__all__ = [
    "BASELINE",
    "CONNECTIONS",
    "HEAD",
    "Utc",
    "acting_as",
    "acts_as",
    "columns",
    "create_all_in_memory",
    "create_engine",
    "insert_missing",
    "is_writing",
    "key_of",
    "keys",
    "last_commit",
    "metadata",
    "migrate",
    "oldest_reader",
    "open_engine",
    "open_transactions",
    "patience",
    "place",
    "reading",
    "revision",
    "sqlite_url",
    "storage_errors",
    "unusable",
    "upsert",
    "without_password",
    "workspace_of",
    "writing",
]
