"""The database layer: engines, transactions and migrations, for SQLite and PostgreSQL alike.

Packages above declare their tables on `metadata`; `migrations/` creates them.
"""

from habitus.sql.addresses import (
    UtcDateTime,
    build_optional_columns,
    build_primary_key_columns,
    build_required_columns,
    build_sqlite_url,
    describe_database,
    get_database_key,
    metadata,
    strip_password,
)
from habitus.sql.engines import (
    DEFAULT_POOL_SIZE,
    create_engine,
    create_in_memory_engine,
    get_engine_for_user,
    get_user_and_role_of_engine,
    open_engine_with_current_schema,
)
from habitus.sql.errors import limit_busy_wait, translate_storage_errors
from habitus.sql.schema import (
    BASELINE,
    HEAD,
    find_schema_problem,
    get_oldest_schema_able_to_use_database,
    get_schema_revision,
    migrate_database,
)
from habitus.sql.transactions import (
    BATCH_SIZE,
    count_open_transactions,
    get_token_of_own_table_commits,
    has_open_write,
    insert_missing_rows,
    read_transaction,
    split_batches,
    upsert_rows,
    write_transaction,
)

__all__ = [
    "BASELINE",
    "BATCH_SIZE",
    "DEFAULT_POOL_SIZE",
    "HEAD",
    "UtcDateTime",
    "build_optional_columns",
    "build_primary_key_columns",
    "build_required_columns",
    "build_sqlite_url",
    "count_open_transactions",
    "create_engine",
    "create_in_memory_engine",
    "describe_database",
    "find_schema_problem",
    "get_database_key",
    "get_engine_for_user",
    "get_oldest_schema_able_to_use_database",
    "get_schema_revision",
    "get_token_of_own_table_commits",
    "get_user_and_role_of_engine",
    "has_open_write",
    "insert_missing_rows",
    "limit_busy_wait",
    "metadata",
    "migrate_database",
    "open_engine_with_current_schema",
    "read_transaction",
    "split_batches",
    "strip_password",
    "translate_storage_errors",
    "upsert_rows",
    "write_transaction",
]
