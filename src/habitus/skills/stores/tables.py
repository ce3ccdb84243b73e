"""The tables of the skill library. `migrations/` creates them; a test compares the two."""

from __future__ import annotations

import sqlalchemy as sa

from habitus.sql import UtcDateTime, metadata, optional_columns, primary_key_columns, required_columns
from habitus.use_counts import COUNT_NAMES

# One row per skill that is or was in a layer. Bodies and files are blobs, referenced by the tree of each version.
skills = sa.Table(
    "skills",
    metadata,
    *primary_key_columns(sa.Integer, "id"),
    *required_columns(sa.String, "layer", "folder", "name"),
    *required_columns(sa.Boolean, "enabled", default=sa.true()),
    *required_columns(sa.Integer, "version", "generation"),
    *required_columns(sa.String(64), "tree_hash"),
    *required_columns(sa.Text, "stamp", "diagnostics"),
    # The summary as JSON; NULL when the skill is broken.
    *optional_columns(sa.Text, "summary", "archived_by"),
    *required_columns(UtcDateTime, "created_on", "modified_on"),
    *optional_columns(UtcDateTime, "archived_on"),
    # Its directory in the archive, if it has one.
    *optional_columns(sa.String, "archived_as"),
    sa.Index("skills_by_generation", "layer", "generation"),
    sa.Index("skills_by_name", "layer", "name"),
    sa.Index(
        "skills_once_per_layer",
        "layer",
        "folder",
        unique=True,
        # The migration has the same clause for PostgreSQL; here it would make every command load that dialect.
        sqlite_where=sa.text("archived_on IS NULL"),
    ),
)

versions = sa.Table(
    "skill_versions",
    metadata,
    sa.Column("skill", sa.Integer, sa.ForeignKey("skills.id"), primary_key=True),
    *primary_key_columns(sa.Integer, "number"),
    # The tree as JSON: path → [sha256, size, executable].
    *required_columns(sa.Text, "tree", "author"),
    *required_columns(sa.String(64), "tree_hash"),
    *required_columns(UtcDateTime, "made_on"),
)

# Lifecycle events: who enabled, disabled, archived or restored a skill.
lifecycle_events = sa.Table(
    "skill_switches",
    metadata,
    *primary_key_columns(sa.Integer, "id"),
    sa.Column("skill", sa.Integer, sa.ForeignKey("skills.id"), nullable=False),
    *required_columns(sa.String(16), "action"),
    *required_columns(sa.Text, "author"),
    *required_columns(UtcDateTime, "made_on"),
    sa.Index("skill_switches_by_skill", "skill", "id"),
)

blobs = sa.Table(
    "blobs",
    metadata,
    *primary_key_columns(sa.String(64), "sha256"),
    *required_columns(sa.LargeBinary, "packed"),
)

# What each version of a skill was counted; the key of a layer is unique across projects. A cache of what the journal
# counts, except version 0, which another system counted, and what the columns `*_before` say was counted before it kept
# each use.
COUNTED_BEFORE = ("recommended", "used", "succeeded", "failed")
skill_counts = sa.Table(
    "skill_counts",
    metadata,
    *primary_key_columns(sa.String, "layer", "item"),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    *primary_key_columns(sa.String(16), "stage"),
    *required_columns(sa.Integer, *COUNT_NAMES, default="0"),
    *required_columns(sa.Integer, *(f"{name}_before" for name in COUNTED_BEFORE), default="0"),
    *optional_columns(UtcDateTime, "last_used"),
)

# Write-ahead records. After a crash, the next process that takes the write lock completes them.
pending_writes = sa.Table(
    "skill_intents",
    metadata,
    *primary_key_columns(sa.Integer, "id"),
    *required_columns(sa.String, "layer"),
    *required_columns(sa.Text, "plan"),
)

# Named counters that only grow.
sequences = sa.Table(
    "sequences",
    metadata,
    *primary_key_columns(sa.String, "name"),
    *required_columns(sa.Integer, "value"),
)

# Skills stored in the database: the columns of the `agent_skills` table that other systems read and write, and our
# further fields as JSON.
agent_skills = sa.Table(
    "agent_skills",
    metadata,
    *primary_key_columns(sa.String, "_id"),
    *optional_columns(sa.Text, "title", "description", "content", "tags", "fields"),
    *optional_columns(sa.String, "source"),
    *optional_columns(sa.Integer, "version", "enabled"),
    *optional_columns(sa.String(40), "created_on", "modified_on"),
)

agent_skill_files = sa.Table(
    "agent_skill_files",
    metadata,
    *primary_key_columns(sa.String, "skill"),
    *primary_key_columns(sa.Integer, "version"),
    *primary_key_columns(sa.String, "path"),
    *required_columns(sa.LargeBinary, "bytes"),
    *required_columns(sa.String(64), "sha256"),
    *required_columns(sa.Boolean, "executable", default=sa.false()),
)

# Pending changes to skills, and the decisions about them.
proposals = sa.Table(
    "skill_proposals",
    metadata,
    *primary_key_columns(sa.Integer, "id"),
    *required_columns(sa.String, "layer", "name"),
    *required_columns(sa.String(16), "action", "state"),
    # Of the files it changes; empty for a new skill.
    *required_columns(sa.String(64), "base_hash"),
    # The reasons why it needs review and the details of what else applying it needs are JSON.
    *required_columns(sa.Text, "author", "reasons", "details"),
    # The host whose directory it changes, which is the root; empty for shared skills.
    *required_columns(sa.String, "conversation", "host", default=""),
    *required_columns(sa.Text, "root", default=""),
    *required_columns(UtcDateTime, "made_on"),
    # The base holds the files it changes, for hosts that can't read them.
    *optional_columns(sa.Text, "tree", "decision", "base"),
    *optional_columns(sa.String, "decided_by"),
    # The agent is told about a rejection.
    *optional_columns(UtcDateTime, "decided_on", "told_on"),
    sa.Index("skill_proposals_by_state", "state", "id"),
)

# Imported skills with their hashes: a second import changes nothing, and a local edit is never overwritten.
imports = sa.Table(
    "skill_imports",
    metadata,
    *primary_key_columns(sa.String, "layer", "name"),
    *required_columns(sa.Text, "origin"),
    # Of the files as fetched, and as saved.
    *required_columns(sa.String(64), "source_hash", "written_hash"),
    *required_columns(UtcDateTime, "imported_on"),
    *required_columns(sa.Boolean, "is_finished", default=sa.false()),
    # The exact location, for programs; empty in old rows.
    *required_columns(sa.Text, "place", default=""),
)

# Trusted content: one row per skill of a trusted root, and one with an empty name for the root itself.
trusted_skills = sa.Table(
    "trusted_skills",
    metadata,
    *primary_key_columns(sa.String, "root", "name"),
    *required_columns(sa.String(64), "tree_hash"),
    # JSON: the powers it had then.
    *required_columns(sa.Text, "powers"),
    *required_columns(UtcDateTime, "trusted_on"),
    *required_columns(sa.String, "trusted_by"),
)

# The skills in the search index, with the content that was indexed.
indexed_skills = sa.Table(
    "indexed_skills",
    metadata,
    *primary_key_columns(sa.String, "name"),
    *required_columns(sa.String(64), "tree_hash"),
)
