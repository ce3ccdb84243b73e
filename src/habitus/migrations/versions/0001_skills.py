"""The skill library: skills, versions, blobs, counters, intents."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "schema_compatibility",
        sa.Column("revision", sa.String, primary_key=True),
        sa.Column("oldest_reader", sa.String, nullable=False),
    )
    op.execute("INSERT INTO schema_compatibility VALUES ('0001', '0001')")
    op.create_table(
        "skills",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("layer", sa.String, nullable=False),
        sa.Column("folder", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("tree_hash", sa.String(64), nullable=False),
        sa.Column("stamp", sa.Text, nullable=False),
        sa.Column("summary", sa.Text),
        sa.Column("diagnostics", sa.Text, nullable=False),
        sa.Column("created_on", sa.String(32), nullable=False),
        sa.Column("modified_on", sa.String(32), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("archived_on", sa.String(32)),
        sa.Column("archived_as", sa.String),
        sa.Column("archived_by", sa.Text),
    )
    op.create_index("skills_by_generation", "skills", ["layer", "generation"])
    op.create_index("skills_by_name", "skills", ["layer", "name"])
    op.create_index(
        "skills_once_per_layer",
        "skills",
        ["layer", "folder"],
        unique=True,
        sqlite_where=sa.text("archived_on IS NULL"),
        postgresql_where=sa.text("archived_on IS NULL"),
    )
    op.create_table(
        "skill_versions",
        sa.Column("skill", sa.Integer, sa.ForeignKey("skills.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("tree", sa.Text, nullable=False),
        sa.Column("tree_hash", sa.String(64), nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("made_on", sa.String(32), nullable=False),
    )
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("packed", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "skill_counters",
        sa.Column("skill", sa.Integer, sa.ForeignKey("skills.id"), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("stage", sa.String(16), primary_key=True),
        sa.Column("recommended", sa.Integer, nullable=False, server_default="0"),
        sa.Column("used", sa.Integer, nullable=False, server_default="0"),
        sa.Column("succeeded", sa.Integer, nullable=False, server_default="0"),
        sa.Column("failed", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_used", sa.String(32)),
    )
    op.create_table(
        "skill_intents",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("layer", sa.String, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
    )
    op.create_table(
        "sequences",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.Integer, nullable=False),
    )
    op.create_table(
        "switches",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("set_on", sa.String(32), nullable=False),
        sa.Column("set_by", sa.String, nullable=False),
    )
    op.create_table(
        "agent_skills",
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
    op.create_table(
        "agent_skill_files",
        sa.Column("skill", sa.String, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("path", sa.String, primary_key=True),
        sa.Column("bytes", sa.LargeBinary, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("executable", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "skill_proposals",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("layer", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("base_hash", sa.String(64), nullable=False),
        sa.Column("tree", sa.Text),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("reasons", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("conversation", sa.String, nullable=False, server_default=""),
        sa.Column("made_on", sa.String(32), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("decided_on", sa.String(32)),
        sa.Column("decided_by", sa.String),
        sa.Column("decision", sa.Text),
    )
    op.create_index("skill_proposals_by_state", "skill_proposals", ["state", "id"])
    op.create_table(
        "skill_imports",
        sa.Column("layer", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("source_hash", sa.String(64), nullable=False),
        sa.Column("written_hash", sa.String(64), nullable=False),
        sa.Column("imported_on", sa.String(32), nullable=False),
    )
    op.create_table(
        "trusted_skills",
        sa.Column("root", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("tree_hash", sa.String(64), nullable=False),
        sa.Column("powers", sa.Text, nullable=False),
        sa.Column("trusted_on", sa.String(32), nullable=False),
        sa.Column("trusted_by", sa.String, nullable=False),
    )
    op.create_table(
        "indexed_skills",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("tree_hash", sa.String(64), nullable=False),
    )
