"""The tables of the skill library. `migrations/` creates them; a test compares the two."""

from __future__ import annotations

import sqlalchemy as sa

from habitus.sql import UtcDateTime, build_optional_columns, build_primary_key_columns, build_required_columns, metadata
from habitus.use_counts import COUNT_NAMES

# One row per skill that is or was in a layer. Bodies and files are blobs, referenced by the tree of each version.
skills = sa.Table(
    "skills",
    metadata,
    *build_primary_key_columns(sa.Integer, "id"),
    *build_required_columns(sa.String, "layer", "folder", "name"),
    *build_required_columns(sa.Boolean, "enabled", default=sa.true()),
    *build_required_columns(sa.Integer, "version", "generation"),
    *build_required_columns(sa.String(64), "tree_hash"),
    *build_required_columns(sa.Text, "stamp", "diagnostics"),
    # The summary as JSON; NULL when the skill is broken.
    *build_optional_columns(sa.Text, "summary", "archived_by"),
    *build_required_columns(UtcDateTime, "created_on", "modified_on"),
    *build_optional_columns(UtcDateTime, "archived_on"),
    # Its directory in the archive, if it has one.
    *build_optional_columns(sa.String, "archived_as"),
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
    *build_primary_key_columns(sa.Integer, "number"),
    # The tree as JSON: path → [sha256, size, executable].
    *build_required_columns(sa.Text, "tree", "author"),
    *build_required_columns(sa.String(64), "tree_hash"),
    *build_required_columns(UtcDateTime, "made_on"),
)

# Lifecycle events: who enabled, disabled, archived or restored a skill.
lifecycle_events = sa.Table(
    "skill_switches",
    metadata,
    *build_primary_key_columns(sa.Integer, "id"),
    sa.Column("skill", sa.Integer, sa.ForeignKey("skills.id"), nullable=False),
    *build_required_columns(sa.String(16), "action"),
    *build_required_columns(sa.Text, "author"),
    *build_required_columns(UtcDateTime, "made_on"),
    sa.Index("skill_switches_by_skill", "skill", "id"),
)

blobs = sa.Table(
    "blobs",
    metadata,
    *build_primary_key_columns(sa.String(64), "sha256"),
    *build_required_columns(sa.LargeBinary, "packed"),
)

# What each version of a skill was counted; the key of a layer is unique across projects. A cache of what the journal
# counts, except version 0, which another system counted, and what the columns `*_before` say was counted before it kept
# each use.
COUNTED_BEFORE = ("recommended", "used", "succeeded", "failed")
skill_counts = sa.Table(
    "skill_counts",
    metadata,
    *build_primary_key_columns(sa.String, "layer", "item"),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    *build_primary_key_columns(sa.String(16), "stage"),
    *build_required_columns(sa.Integer, *COUNT_NAMES, default="0"),
    *build_required_columns(sa.Integer, *(f"{name}_before" for name in COUNTED_BEFORE), default="0"),
    *build_optional_columns(UtcDateTime, "last_used"),
)

# Write-ahead records. After a crash, the next process that takes the write lock completes them.
pending_writes = sa.Table(
    "skill_intents",
    metadata,
    *build_primary_key_columns(sa.Integer, "id"),
    *build_required_columns(sa.String, "layer"),
    *build_required_columns(sa.Text, "plan"),
)

# Named counters that only grow.
sequences = sa.Table(
    "sequences",
    metadata,
    *build_primary_key_columns(sa.String, "name"),
    *build_required_columns(sa.Integer, "value"),
)

# Skills stored in the database: the columns of the `agent_skills` table that other systems read and write, and our
# further fields as JSON.
agent_skills = sa.Table(
    "agent_skills",
    metadata,
    *build_primary_key_columns(sa.String, "_id"),
    *build_optional_columns(sa.Text, "title", "description", "content", "tags", "fields"),
    *build_optional_columns(sa.String, "source"),
    *build_optional_columns(sa.Integer, "version", "enabled"),
    *build_optional_columns(sa.String(40), "created_on", "modified_on"),
)

agent_skill_files = sa.Table(
    "agent_skill_files",
    metadata,
    *build_primary_key_columns(sa.String, "skill"),
    *build_primary_key_columns(sa.Integer, "version"),
    *build_primary_key_columns(sa.String, "path"),
    *build_required_columns(sa.LargeBinary, "bytes"),
    *build_required_columns(sa.String(64), "sha256"),
    *build_required_columns(sa.Boolean, "executable", default=sa.false()),
)

# Pending changes to skills, and the decisions about them.
proposals = sa.Table(
    "skill_proposals",
    metadata,
    *build_primary_key_columns(sa.Integer, "id"),
    *build_required_columns(sa.String, "layer", "name"),
    *build_required_columns(sa.String(16), "action", "state"),
    # Of the files it changes; empty for a new skill.
    *build_required_columns(sa.String(64), "base_hash"),
    # The reasons why it needs review and the details of what else applying it needs are JSON.
    *build_required_columns(sa.Text, "author", "reasons", "details"),
    # The host whose directory it changes, which is the root; empty for shared skills.
    *build_required_columns(sa.String, "conversation", "host", default=""),
    *build_required_columns(sa.Text, "root", default=""),
    *build_required_columns(UtcDateTime, "made_on"),
    # The base holds the files it changes, for hosts that can't read them.
    *build_optional_columns(sa.Text, "tree", "decision", "base"),
    *build_optional_columns(sa.String, "decided_by"),
    # The agent is told about a rejection.
    *build_optional_columns(UtcDateTime, "decided_on", "told_on"),
    sa.Index("skill_proposals_by_state", "state", "id"),
)

# Imported skills with their hashes: a second import changes nothing, and a local edit is never overwritten.
imports = sa.Table(
    "skill_imports",
    metadata,
    *build_primary_key_columns(sa.String, "layer", "name"),
    *build_required_columns(sa.Text, "origin"),
    # Of the files as fetched, and as saved.
    *build_required_columns(sa.String(64), "source_hash", "written_hash"),
    *build_required_columns(UtcDateTime, "imported_on"),
    *build_required_columns(sa.Boolean, "is_finished", default=sa.false()),
    # The exact location, for programs; empty in old rows.
    *build_required_columns(sa.Text, "place", default=""),
)

# Trusted content: one row per skill of a trusted root, and one with an empty name for the root itself.
trusted_skills = sa.Table(
    "trusted_skills",
    metadata,
    *build_primary_key_columns(sa.String, "root", "name"),
    *build_required_columns(sa.String(64), "tree_hash"),
    # JSON: the powers it had then.
    *build_required_columns(sa.Text, "powers"),
    *build_required_columns(UtcDateTime, "trusted_on"),
    *build_required_columns(sa.String, "trusted_by"),
)

# The skills in the search index, with the content that was indexed.
indexed_skills = sa.Table(
    "indexed_skills",
    metadata,
    *build_primary_key_columns(sa.String, "name"),
    *build_required_columns(sa.String(64), "tree_hash"),
)
