"""The tables of the skill library. `migrations/` creates them; a test compares the two."""

from __future__ import annotations

import sqlalchemy as sa

from habitus.sql import UtcDateTime, metadata

# One row per skill that is or was in a layer. Bodies and files are blobs, referenced by the tree of each version.
skills = sa.Table(
    "skills",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("layer", sa.String, nullable=False),
    sa.Column("folder", sa.String, nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("tree_hash", sa.String(64), nullable=False),
    sa.Column("stamp", sa.Text, nullable=False),
    sa.Column("summary", sa.Text),  # JSON; NULL when the skill is broken
    sa.Column("diagnostics", sa.Text, nullable=False),
    sa.Column("created_on", UtcDateTime, nullable=False),
    sa.Column("modified_on", UtcDateTime, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("archived_on", UtcDateTime),
    sa.Column("archived_as", sa.String),  # its directory in the archive, if it has one
    sa.Column("archived_by", sa.Text),
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
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("tree", sa.Text, nullable=False),  # JSON: path → [sha256, size, executable]
    sa.Column("tree_hash", sa.String(64), nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("made_on", UtcDateTime, nullable=False),
)

# Lifecycle events: who enabled, disabled, archived or restored a skill.
lifecycle_events = sa.Table(
    "skill_switches",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("skill", sa.Integer, sa.ForeignKey("skills.id"), nullable=False),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("made_on", UtcDateTime, nullable=False),
    sa.Index("skill_switches_by_skill", "skill", "id"),
)

blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("sha256", sa.String(64), primary_key=True),
    sa.Column("packed", sa.LargeBinary, nullable=False),
)

counters = sa.Table(
    "skill_counters",
    metadata,
    sa.Column("skill", sa.Integer, sa.ForeignKey("skills.id"), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("stage", sa.String(16), primary_key=True),
    sa.Column("recommended", sa.Integer, nullable=False, server_default="0"),
    sa.Column("used", sa.Integer, nullable=False, server_default="0"),
    sa.Column("succeeded", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failed", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_used", UtcDateTime),
    sa.Column("by_presence_until", UtcDateTime),  # read by older releases only
    sa.Column("weak_failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("ran_without_error", sa.Integer, nullable=False, server_default="0"),
    # Counted before the journal kept each use; the rest is a cache of what the journal counts.
    sa.Column("used_before", sa.Integer, nullable=False, server_default="0"),
    sa.Column("succeeded_before", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failed_before", sa.Integer, nullable=False, server_default="0"),
)

# Write-ahead records. After a crash, the next process that takes the write lock completes them.
pending_writes = sa.Table(
    "skill_intents",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("layer", sa.String, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
)

# Named counters that only grow.
sequences = sa.Table(
    "sequences",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("value", sa.Integer, nullable=False),
)

# Skills stored in the database: the columns of the `agent_skills` table that other systems read and write, and our
# further fields as JSON.
agent_skills = sa.Table(
    "agent_skills",
    metadata,
    sa.Column("_id", sa.String, primary_key=True),
    sa.Column("title", sa.Text),
    sa.Column("description", sa.Text),
    sa.Column("content", sa.Text),
    sa.Column("tags", sa.Text),
    sa.Column("source", sa.String),
    sa.Column("version", sa.Integer),
    sa.Column("enabled", sa.Integer),
    sa.Column("created_on", sa.String(40)),
    sa.Column("modified_on", sa.String(40)),
    sa.Column("fields", sa.Text),
)

agent_skill_files = sa.Table(
    "agent_skill_files",
    metadata,
    sa.Column("skill", sa.String, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("path", sa.String, primary_key=True),
    sa.Column("bytes", sa.LargeBinary, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("executable", sa.Boolean, nullable=False, server_default=sa.false()),
)

# Pending changes to skills, and the decisions about them.
proposals = sa.Table(
    "skill_proposals",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("layer", sa.String, nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("base_hash", sa.String(64), nullable=False),  # of the files it changes; empty for a new skill
    sa.Column("tree", sa.Text),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("reasons", sa.Text, nullable=False),  # JSON: why it needs review
    sa.Column("details", sa.Text, nullable=False),  # JSON: what else applying it needs
    sa.Column("conversation", sa.String, nullable=False, server_default=""),
    sa.Column("made_on", UtcDateTime, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("decided_on", UtcDateTime),
    sa.Column("decided_by", sa.String),
    sa.Column("decision", sa.Text),
    sa.Column("told_on", UtcDateTime),  # when the agent was told about the rejection
    sa.Column(
        "host", sa.String, nullable=False, server_default=""
    ),  # whose directory it changes; empty for shared skills
    sa.Column("root", sa.Text, nullable=False, server_default=""),  # that directory
    sa.Column("base", sa.Text),  # the files it changes, for hosts that can't read them
    sa.Index("skill_proposals_by_state", "state", "id"),
)

# Imported skills with their hashes: a second import changes nothing, and a local edit is never overwritten.
imports = sa.Table(
    "skill_imports",
    metadata,
    sa.Column("layer", sa.String, primary_key=True),
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("source_hash", sa.String(64), nullable=False),  # of the files as fetched
    sa.Column("written_hash", sa.String(64), nullable=False),  # of the files as saved
    sa.Column("imported_on", UtcDateTime, nullable=False),
    sa.Column("is_finished", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("place", sa.Text, nullable=False, server_default=""),  # exact location, for programs; empty in old rows
)

# Trusted content: one row per skill of a trusted root, and one with an empty name for the root itself.
trusted_skills = sa.Table(
    "trusted_skills",
    metadata,
    sa.Column("root", sa.String, primary_key=True),
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("tree_hash", sa.String(64), nullable=False),
    sa.Column("powers", sa.Text, nullable=False),  # JSON: the powers it had then
    sa.Column("trusted_on", UtcDateTime, nullable=False),
    sa.Column("trusted_by", sa.String, nullable=False),
)

# The skills in the search index, with the content that was indexed.
indexed_skills = sa.Table(
    "indexed_skills",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("tree_hash", sa.String(64), nullable=False),
)
