"""The index of a large shared library in PostgreSQL itself: terms as full text, vectors for pgvector where it is.

Only PostgreSQL has it, so it is not among the declared tables; `search/server.py` alone reads and writes it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(
        "CREATE TABLE search_skills (name text PRIMARY KEY, tree_hash text NOT NULL, digest text NOT NULL, "
        "meaning text NOT NULL, says_when boolean NOT NULL, codes bytea NOT NULL, words text NOT NULL, "
        "lexemes tsvector NOT NULL) WITH (toast_tuple_target = 128)"
    )
    # What is long lies aside, so that going through thousands of rows by name or meaning touches few pages.
    short = ", ".join(f"ALTER {column} SET STORAGE PLAIN" for column in ("name", "tree_hash", "digest", "meaning"))
    op.execute(f"ALTER TABLE search_skills {short}")
    op.execute("CREATE INDEX search_skills_by_word ON search_skills USING gin (lexemes) WITH (fastupdate = off)")
    op.execute("CREATE INDEX search_skills_by_meaning ON search_skills (meaning)")
    op.execute("CREATE TABLE search_terms (term bigint PRIMARY KEY, documents integer[] NOT NULL)")
    op.execute(
        "CREATE TABLE search_skill_vectors (model text, digest text, "
        f"vector {_pgvector() or 'bytea'} NOT NULL, PRIMARY KEY (model, digest))"
    )


def _pgvector() -> str:
    """The type of pgvector, wherever the extension is; nothing where there is none and we may not make it."""
    connection = op.get_bind()
    try:
        with connection.begin_nested():
            connection.execute(sa.text("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public"))
    except sa.exc.DBAPIError:
        pass  # not installed, or only for others to create
    where = "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
    schema = connection.execute(sa.text(f"{where} WHERE e.extname = 'vector'")).scalar()
    return f"{schema}.vector" if schema else ""


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table in ("search_skill_vectors", "search_terms", "search_skills"):
            op.execute(f"DROP TABLE {table}")
