"""The tables of the search index."""

from __future__ import annotations

import sqlalchemy as sa

from habitus.sql import metadata

# A counter that every change raises: whoever has seen a lower number knows that there is something to read.
collections = sa.Table(
    "search_collections",
    metadata,
    sa.Column("collection", sa.Text, primary_key=True),
    sa.Column("generation", sa.BigInteger, nullable=False),
)

# Long texts stand last, so that reading the rest of a row does not touch them.
documents = sa.Table(
    "search_documents",
    metadata,
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
    sa.Index("search_documents_generation", "collection", "generation"),
)

# By the digest of the embedded text: what two documents or two hosts share is embedded once per model.
vectors = sa.Table(
    "search_vectors",
    metadata,
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("vector", sa.LargeBinary, nullable=False),
)

learned = sa.Table(
    "search_learned",
    metadata,
    sa.Column("collection", sa.Text, primary_key=True),
    sa.Column("document", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("weight", sa.Float, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Index("search_learned_generation", "collection", "generation"),
)
