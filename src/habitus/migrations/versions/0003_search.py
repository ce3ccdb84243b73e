"""The search index: documents with their vectors and terms, and the requests learned from use."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "search_collections",
        sa.Column("collection", sa.Text, primary_key=True),
        sa.Column("generation", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "search_documents",
        sa.Column("collection", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("meaning", sa.Text, nullable=False),
        sa.Column("says_when", sa.Boolean, nullable=False),
        sa.Column("codes", sa.LargeBinary, nullable=False),
        sa.Column("words", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("cue", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("search_documents_generation", "search_documents", ["collection", "generation"])
    op.create_table(
        "search_vectors",
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("vector", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "search_learned",
        sa.Column("collection", sa.Text, primary_key=True),
        sa.Column("document", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("weight", sa.Float, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("search_learned_generation", "search_learned", ["collection", "generation"])
