"""Every table as it stood before the first release, with the triggers and row-level security of PostgreSQL."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = None

_Columns = list[sa.Column[Any]]
_SHORT, _MOMENT, _HASH = sa.String(16), sa.String(32), sa.String(64)


def upgrade() -> None:
    op.create_table("schema_compatibility", *_key(sa.String, "revision"), *_always(sa.String, "oldest_reader"))
    op.execute("INSERT INTO schema_compatibility VALUES ('0018', '0018')")
    _skills()
    _agent_skills()
    _reviews_and_imports()
    _journal()
    _evidence()
    _search()
    _memory()
    _learning()
    _tools()
    if op.get_bind().dialect.name == "postgresql":
        _tell_of_changes()
        _show_users_their_own()
        _search_in_server()


def _key(kind: Any, *names: str, **how: Any) -> _Columns:
    return [sa.Column(name, kind, primary_key=True, **how) for name in names]


def _always(kind: Any, *names: str, default: Any = None) -> _Columns:
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names]


def _optional(kind: Any, *names: str) -> _Columns:
    return [sa.Column(name, kind) for name in names]


def _index(table: str, **columns: str) -> None:
    for name, indexed in columns.items():
        op.create_index(f"{table}_{name}", table, indexed.split())


def _skills() -> None:
    op.create_table(
        "skills",
        *_key(sa.Integer, "id"),
        *_always(sa.String, "layer", "folder", "name"),
        *_always(sa.Boolean, "enabled", default=sa.true()),
        *_always(sa.Integer, "version"),
        *_always(_HASH, "tree_hash"),
        *_always(sa.Text, "stamp"),
        *_optional(sa.Text, "summary"),
        *_always(sa.Text, "diagnostics"),
        *_always(_MOMENT, "created_on", "modified_on"),
        *_always(sa.Integer, "generation"),
        *_optional(_MOMENT, "archived_on"),
        *_optional(sa.String, "archived_as"),
        *_optional(sa.Text, "archived_by"),
    )
    _index("skills", by_generation="layer generation", by_name="layer name")
    once, here = "skills_once_per_layer", sa.text("archived_on IS NULL")
    op.create_index(once, "skills", ["layer", "folder"], unique=True, sqlite_where=here, postgresql_where=here)
    op.create_table(
        "skill_versions",
        sa.Column("skill", sa.Integer, sa.ForeignKey("skills.id"), primary_key=True),
        *_key(sa.Integer, "number"),
        *_always(sa.Text, "tree"),
        *_always(_HASH, "tree_hash"),
        *_always(sa.Text, "author"),
        *_always(_MOMENT, "made_on"),
    )
    op.create_table(
        "skill_switches",
        *_key(sa.Integer, "id"),
        sa.Column("skill", sa.Integer, sa.ForeignKey("skills.id"), nullable=False),
        *_always(_SHORT, "action"),
        *_always(sa.Text, "author"),
        *_always(_MOMENT, "made_on"),
    )
    _index("skill_switches", by_skill="skill id")
    op.create_table("blobs", *_key(_HASH, "sha256"), *_always(sa.LargeBinary, "packed"))
    op.create_table(
        "skill_counters",
        sa.Column("skill", sa.Integer, sa.ForeignKey("skills.id"), primary_key=True),
        *_key(sa.Integer, "version"),
        *_key(_SHORT, "stage"),
        *_always(sa.Integer, "recommended", "used", "succeeded", "failed", default="0"),
        *_optional(_MOMENT, "last_used"),
    )
    op.create_table("skill_intents", *_key(sa.Integer, "id"), *_always(sa.String, "layer"), *_always(sa.Text, "plan"))
    op.create_table("sequences", *_key(sa.String, "name"), *_always(sa.Integer, "value"))
    op.create_table("switches", *_key(sa.String, "name"), *_always(_MOMENT, "set_on"), *_always(sa.String, "set_by"))


def _agent_skills() -> None:
    """Another system may have made this table; then only the columns it lacks are added."""
    columns = [
        *_key(sa.String, "_id"),
        *_optional(sa.Text, "title", "description", "content", "tags"),
        *_optional(sa.String, "source"),
        *_optional(sa.Integer, "version", "enabled"),
        *_optional(sa.String(40), "created_on", "modified_on"),
        *_optional(sa.Text, "fields"),
    ]
    there = sa.inspect(op.get_bind())
    if there.has_table("agent_skills"):
        known = {"_id", *(column["name"] for column in there.get_columns("agent_skills"))}
        for column in columns:
            if column.name not in known:
                op.add_column("agent_skills", column)
    else:
        op.create_table("agent_skills", *columns)
    op.create_table(
        "agent_skill_files",
        *_key(sa.String, "skill"),
        *_key(sa.Integer, "version"),
        *_key(sa.String, "path"),
        *_always(sa.LargeBinary, "bytes"),
        *_always(_HASH, "sha256"),
        *_always(sa.Boolean, "executable", default=sa.false()),
    )


def _reviews_and_imports() -> None:
    op.create_table(
        "skill_proposals",
        *_key(sa.Integer, "id"),
        *_always(sa.String, "layer", "name"),
        *_always(_SHORT, "action"),
        *_always(_HASH, "base_hash"),
        *_optional(sa.Text, "tree"),
        *_always(sa.Text, "author", "reasons", "details"),
        *_always(sa.String, "conversation", default=""),
        *_always(_MOMENT, "made_on"),
        *_always(_SHORT, "state"),
        *_optional(_MOMENT, "decided_on"),
        *_optional(sa.String, "decided_by"),
        *_optional(sa.Text, "decision"),
        *_optional(_MOMENT, "told_on"),
        *_always(sa.String, "host", default=""),
        *_always(sa.Text, "root", default=""),
        *_optional(sa.Text, "base"),
    )
    _index("skill_proposals", by_state="state id")
    op.create_table(
        "skill_imports",
        *_key(sa.String, "layer", "name"),
        *_always(sa.Text, "origin"),
        *_always(_HASH, "source_hash", "written_hash"),
        *_always(_MOMENT, "imported_on"),
        *_always(sa.Boolean, "is_finished", default=sa.false()),
    )
    op.create_table(
        "trusted_skills",
        *_key(sa.String, "root", "name"),
        *_always(_HASH, "tree_hash"),
        *_always(sa.Text, "powers"),
        *_always(_MOMENT, "trusted_on"),
        *_always(sa.String, "trusted_by"),
    )
    op.create_table("indexed_skills", *_key(sa.String, "name"), *_always(_HASH, "tree_hash"))
    op.create_table(
        "failed_climbs",
        *_key(sa.String, "item"),
        *_key(_SHORT, "stage"),
        *_always(sa.Integer, "version"),
        *_always(sa.Text, "reason"),
        *_always(_MOMENT, "tried_on"),
    )
    op.create_table(
        "answered_requests",
        *_key(sa.String, "user", "key"),
        *_always(sa.String, "asked"),
        *_optional(sa.Text, "answer"),
        *_always(_MOMENT, "asked_on"),
    )


def _journal() -> None:
    op.create_table(
        "turns",
        *_key(sa.String, "id"),
        *_always(sa.String, "session"),
        *_always(sa.String, "caller_id", default=""),
        *_always(sa.String, "user", "source_type"),
        *_always(sa.String, "conversation", "reply_to", default=""),
        *_always(sa.Text, "request", "usage"),
        *_always(_MOMENT, "started_on"),
        *_optional(_MOMENT, "ended_on"),
    )
    _index("turns", by_session="session started_on", by_conversation="conversation started_on")
    _index("turns", by_caller="caller_id", by_time="started_on")
    _of_turn("messages", *_always(sa.String, "role"), *_always(sa.Text, "content"))
    _of_turn(
        "events",
        *_always(sa.String, "kind"),
        *_always(sa.Integer, "severity", "round_idx"),
        *_always(sa.Text, "detail"),
    )
    _of_turn(
        "selections",
        *_always(sa.String, "name", "layer"),
        *_always(sa.Integer, "version"),
        *_always(sa.String, "place"),
        *_always(sa.Text, "reason"),
    )
    _of_turn(
        "outcomes",
        *_always(sa.String, "kind"),
        *_always(sa.Float, "weight"),
        *_always(sa.String, "source"),
        *_always(sa.Text, "reason"),
        *_always(_MOMENT, "at"),
    )
    op.create_table("seen_skills", *_key(sa.String, "user"), *_always(sa.Text, "hashes"), *_always(_MOMENT, "seen_on"))


def _of_turn(name: str, *columns: sa.Column[Any]) -> None:
    turn = sa.Column("turn", sa.String, sa.ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True)
    op.create_table(f"turn_{name}", turn, *_key(sa.Integer, "number"), *columns)


def _evidence() -> None:
    op.create_table(
        "exposures",
        *_key(sa.String, "unit"),
        *_key(sa.Boolean, "is_steady"),
        *_key(sa.String, "kind", "item"),
        *_key(sa.Integer, "version"),
        *_always(sa.String, "turn", "user"),
        *_always(sa.Boolean, "is_offered"),
        *_always(sa.Float, "propensity"),
        *_always(sa.String, "request_kind"),
        *_always(sa.Integer, "tokens"),
        *_always(sa.Boolean, "is_used", "is_ignored"),
        *_always(_MOMENT, "at"),
    )
    _index("exposures", by_item="kind item", by_turn="turn", by_user="user")
    op.create_table(
        "lasting_outcomes",
        *_key(sa.String, "turn", "source"),
        *_always(sa.String, "unit", "user", "caller_id", "kind"),
        *_always(sa.Float, "weight"),
        *_always(_MOMENT, "began_on", "at"),
    )
    _index("lasting_outcomes", by_unit="unit", by_caller="caller_id", by_user="user")
    op.create_table("evidence_seed", *_key(sa.Integer, "id", autoincrement=False), *_always(sa.String, "seed"))


def _search() -> None:
    op.create_table("search_collections", *_key(sa.Text, "collection"), *_always(sa.BigInteger, "generation"))
    op.create_table(
        "search_documents",
        *_key(sa.Text, "collection", "id"),
        *_always(sa.BigInteger, "generation"),
        *_always(sa.Text, "digest", "meaning"),
        *_always(sa.Boolean, "says_when"),
        *_always(sa.LargeBinary, "codes"),
        *_always(sa.Text, "words", "name", "cue", "tags", "description", "body"),
    )
    _index("search_documents", generation="collection generation")
    op.create_table("search_vectors", *_key(sa.Text, "model", "digest"), *_always(sa.LargeBinary, "vector"))
    op.create_table(
        "search_learned",
        *_key(sa.Text, "collection", "document", "digest"),
        *_always(sa.BigInteger, "generation"),
        *_always(sa.Float, "weight", "at"),
        *_always(sa.Text, "text"),
    )
    _index("search_learned", generation="collection generation")


def _memory() -> None:
    op.create_table(
        "engrams",
        *_key(_SHORT, "id"),
        *_always(sa.BigInteger, "revision"),
        *_always(_SHORT, "state", "kind", "scope"),
        *_always(sa.Text, "owner", "text", "definition"),
        *_always(sa.Integer, "frequency", "retrievals", "helpful"),
        *_optional(_MOMENT, "last_retrieved", "credited_on"),
        *_always(sa.Integer, "ignored", "missed", "version"),
        *_always(_MOMENT, "created_on", "updated_on"),
    )
    _index("engrams", by_revision="revision", by_state="state")
    op.create_table(
        "engram_versions",
        sa.Column("engram", _SHORT, sa.ForeignKey("engrams.id", ondelete="CASCADE"), primary_key=True),
        *_key(sa.Integer, "number"),
        *_always(_SHORT, "state", "kind", "scope"),
        *_always(sa.Text, "owner", "text", "definition"),
        *_always(_MOMENT, "made_on"),
        *_always(sa.Text, "made_by", "reason"),
    )
    _index("engram_versions", by_time="made_on")
    op.create_table(
        "memory_revision", *_key(sa.Integer, "id", autoincrement=False), *_always(sa.BigInteger, "revision")
    )
    op.create_table(
        "memory_views",
        *_key(sa.String(32), "view"),
        *_key(_SHORT, "stamp"),
        *_always(sa.LargeBinary, "lines"),
        *_always(_MOMENT, "written_on"),
    )


def _learning() -> None:
    op.create_table(
        "learning_spending",
        *_key(sa.String(10), "day"),
        *_always(sa.BigInteger, "tokens", "calls"),
        *_always(sa.Boolean, "is_told"),
    )
    op.create_table("learned_turns", *_key(_HASH, "digest"), *_key(_SHORT, "how"), *_always(_MOMENT, "learned_on"))
    op.create_table(
        "studied_files",
        *_key(sa.Text, "file"),
        *_always(sa.BigInteger, "size", "changed"),
        *_always(sa.Text, "facts"),
        *_always(_MOMENT, "studied_on"),
    )


def _tools() -> None:
    op.create_table(
        "tool_health",
        *_key(sa.String, "place", "name"),
        *_always(_HASH, "code", default=""),
        *_always(sa.Integer, "streak", default="0"),
        *_optional(_MOMENT, "degraded_on"),
        *_always(sa.Integer, "curator_runs", default="0"),
        *_always(sa.Text, "last_failure", default=""),
        *_always(_HASH, "proved_as", default=""),
        *_optional(_MOMENT, "proved_on"),
    )
    op.create_table(
        "recipe_counts",
        *_key(sa.String, "place", "skill", "recipe"),
        *_always(sa.Integer, "used", "succeeded", "failed", default="0"),
        *_optional(_MOMENT, "last_used"),
    )
    op.create_table(
        "granted_credentials",
        *_key(sa.String, "user", "skill"),
        *_key(_SHORT, "kind"),
        *_key(sa.String, "what"),
        *_always(_HASH, "content_hash"),
        *_always(_MOMENT, "granted_on"),
        *_always(sa.String, "granted_by"),
    )
    op.create_table(
        "skill_calls",
        *_key(sa.Integer, "id"),
        *_always(_MOMENT, "called_on"),
        *_always(sa.String, "who", "skill"),
        *_always(sa.Text, "arguments"),
        *_always(_SHORT, "outcome"),
        *_always(sa.Text, "reason"),
        *_always(sa.Boolean, "is_refused", default=sa.false()),
        *_always(sa.Text, "secrets"),
    )
    _index("skill_calls", by_time="called_on")


def _tell_of_changes() -> None:
    """Word of every change to the hosts that share the database (`sql/notifications.py`)."""
    op.execute(
        "CREATE OR REPLACE FUNCTION habitus_tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM pg_notify('habitus_' || md5(TG_TABLE_SCHEMA), TG_TABLE_NAME); RETURN NULL; END $$"
    )
    for table in ("sequences", "agent_skills", "memory_revision", "skill_proposals"):
        op.execute(
            f"CREATE TRIGGER {table}_told AFTER INSERT OR UPDATE OR DELETE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION habitus_tell()"
        )


_MINE = 'habitus_may("user")'
_OF_TURN = "EXISTS (SELECT 1 FROM turns WHERE turns.id = turn)"
_LESSON = "EXISTS (SELECT 1 FROM engrams WHERE engrams.id = {})"
# Who may see a row, change it, or make it.
_SEEN_BY = {
    "turns": _MINE,
    **dict.fromkeys(("turn_messages", "turn_events", "turn_selections", "turn_outcomes"), _OF_TURN),
    "seen_skills": _MINE,
    "engrams": "scope <> 'user' OR habitus_may(owner)",
    "engram_versions": _LESSON.format("engram"),
    "search_documents": f"collection <> 'memory' OR {_LESSON.format('search_documents.id')}",
}
# Without any text, and counted over everybody: all see them, and nobody changes another's.
_COUNTED = ("exposures", "lasting_outcomes")


def _show_users_their_own() -> None:
    """A transaction says in whose name it is (`sql.acting_as`)."""
    op.execute(
        "CREATE OR REPLACE FUNCTION habitus_may(whose text) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT "
        "coalesce(current_setting('habitus.role', true) = 'admin', false) "
        "OR coalesce(whose = current_setting('habitus.user', true), false) $$"
    )
    for table, who in {**_SEEN_BY, **dict.fromkeys(_COUNTED, _MINE)}.items():
        op.execute(f"CREATE POLICY of_user ON {table} USING ({who}) WITH CHECK ({who})")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    for table in _COUNTED:
        op.execute(f"CREATE POLICY counted ON {table} FOR SELECT USING (true)")


def _search_in_server() -> None:
    """The index of a large shared library: terms as full text, vectors for pgvector where it is.

    Only PostgreSQL has it, so it is not among the declared tables; `search/server.py` alone reads and writes it.
    """
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
        f"vector {_pgvector_type() or 'bytea'} NOT NULL, PRIMARY KEY (model, digest))"
    )


def _pgvector_type() -> str:
    """The type of pgvector, wherever the extension is; nothing where there is none and we may not make it."""
    connection = op.get_bind()
    with suppress(sa.exc.DBAPIError), connection.begin_nested():  # not installed, or only for others to create
        connection.execute(sa.text("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public"))
    where = "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
    schema = connection.execute(sa.text(f"{where} WHERE e.extname = 'vector'")).scalar()
    return f"{schema}.vector" if schema else ""
