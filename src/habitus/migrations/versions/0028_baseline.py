"""Every table as it stood before the first release, with the triggers and row-level security of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = None

_KINDS: dict[str, Any] = {
    "integer": sa.Integer,
    "bigint": sa.BigInteger,
    "float": sa.Float,
    "boolean": sa.Boolean,
    "string": sa.String,
    "text": sa.Text,
    "bytes": sa.LargeBinary,
    "day": sa.String(10),
    "short": sa.String(16),
    "moment": sa.String(32),
    "stamp": sa.String(40),
    "hash": sa.String(64),
}
# Columns by name and kind. Only a `null` one may be empty; the number of a `given` key is not counted up.
_TABLES = {
    "skills": """
        id: integer key, layer folder name: string, enabled: boolean default true, version: integer,
        tree_hash: hash, stamp: text, summary: text null, diagnostics: text, created_on modified_on: moment,
        generation: integer, archived_on: moment null, archived_as: string null, archived_by: text null
    """,
    "skill_versions": """
        skill: integer key references skills.id, number: integer key, tree: text, tree_hash: hash, author: text,
        made_on: moment
    """,
    "skill_switches": """
        id: integer key, skill: integer references skills.id, action: short, author: text, made_on: moment
    """,
    "blobs": "sha256: hash key, packed: bytes",
    "skill_counters": """
        skill: integer key references skills.id, version: integer key, stage: short key,
        recommended used succeeded failed: integer default 0, last_used by_presence_until: moment null
    """,
    "skill_intents": "id: integer key, layer: string, plan: text",
    "sequences": "name: string key, value: integer",
    "switches": "name: string key, set_on: moment, set_by: string",
    "agent_skill_files": """
        skill: string key, version: integer key, path: string key, bytes: bytes, sha256: hash,
        executable: boolean default false
    """,
    "skill_proposals": """
        id: integer key, layer name: string, action: short, base_hash: hash, tree: text null,
        author reasons details: text, conversation: string default '', made_on: moment, state: short,
        decided_on: moment null, decided_by: string null, decision: text null, told_on: moment null,
        host: string default '', root: text default '', base: text null
    """,
    "skill_imports": """
        layer name: string key, origin: text, source_hash written_hash: hash, imported_on: moment,
        is_finished: boolean default false, place: text default ''
    """,
    "trusted_skills": "root name: string key, tree_hash: hash, powers: text, trusted_on: moment, trusted_by: string",
    "indexed_skills": "name: string key, tree_hash: hash",
    "failed_climbs": "item: string key, stage: short key, version: integer, reason: text, tried_on: moment",
    "answered_requests": "user key: string key, asked: string, answer: text null, asked_on: moment",
    "turns": """
        id: string key, session: string, caller_id: string default '', user source_type: string,
        conversation reply_to: string default '', request usage: text, started_on: moment, ended_on: moment null
    """,
    "turn_messages": "turn: string key references turns.id cascade, number: integer key, role: string, content: text",
    "turn_events": """
        turn: string key references turns.id cascade, number: integer key, kind: string,
        severity round_idx: integer, detail: text
    """,
    "turn_selections": """
        turn: string key references turns.id cascade, number: integer key, name layer: string, version: integer,
        place: string, reason: text
    """,
    "turn_outcomes": """
        turn: string key references turns.id cascade, number: integer key, kind: string, weight: float,
        source: string, reason: text, at: moment
    """,
    "seen_skills": "user: string key, hashes: text, seen_on: moment",
    "exposures": """
        unit: string key, is_steady: boolean key, kind item: string key, version: integer key, turn user: string,
        is_offered: boolean, propensity: float, request_kind: string, tokens: integer, is_used is_ignored: boolean,
        at: moment, origin: short default real
    """,
    "lasting_outcomes": """
        turn source: string key, unit user caller_id kind: string, weight: float, began_on at: moment,
        origin: short default real
    """,
    "evidence_seed": "id: integer key given, seed: string",
    "evidence_sums": "id: integer key given, changes: integer, until: moment null, sums: bytes null",
    "search_collections": "collection: text key, generation: bigint",
    "search_documents": """
        collection id: text key, generation: bigint, digest meaning: text, says_when: boolean, codes: bytes,
        words name cue tags description body: text
    """,
    "search_vectors": "model digest: text key, vector: bytes",
    "search_learned": "collection document digest: text key, generation: bigint, weight at: float, text: text",
    "engrams": """
        id: short key, revision: bigint, state kind scope: short, owner text definition: text,
        frequency retrievals helpful: integer, last_retrieved credited_on: moment null,
        ignored missed version: integer, created_on updated_on: moment
    """,
    "engram_versions": """
        engram: short key references engrams.id cascade, number: integer key, state kind scope: short,
        owner text definition: text, made_on: moment, made_by reason: text
    """,
    "memory_revision": "id: integer key given, revision: bigint",
    "memory_views": "view: moment key, stamp: short key, lines: bytes, written_on: moment",
    "learning_spending": "day: day key, tokens calls: bigint, is_told: boolean",
    "learned_turns": "digest: hash key, how: short key, learned_on: moment",
    "studied_files": "file: text key, size changed: bigint, facts: text, studied_on: moment",
    "tool_health": """
        place name: string key, code: hash default '', streak: integer default 0, degraded_on: moment null,
        curator_runs: integer default 0, last_failure: text default '', proved_as: hash default '',
        proved_on: moment null
    """,
    "recipe_counts": "place skill recipe: string key, used succeeded failed: integer default 0, last_used: moment null",
    "granted_credentials": """
        user skill: string key, kind: short key, what: string key, content_hash: hash, granted_on: moment,
        granted_by: string
    """,
    "skill_calls": """
        id: integer key, called_on: moment, who skill: string, arguments: text, outcome: short, reason: text,
        is_refused: boolean default false, secrets: text
    """,
    "jobs": """
        id: string key, kind: string, given: text, state: short, priority: integer,
        worker model user host: string default '',
        attempt beat not_before stuck_at failures deaths: bigint default 0, plan result: text null,
        reason: text default '', added_on changed_on: bigint, begun_on begun_at: bigint default 0
    """,
    "job_parts": "job: string key references jobs.id cascade, number: integer key, result: text",
    "sign_ins": "name: string key, role link token: string, seen_on: moment null",
    "signing_keys": "name: string key, key: string",
    "improve_tasks": "skill task: string key, side: short",
    "improve_candidates": """
        id: string key, skill: string, number: integer, run: string, state: short, facts: text, user: string,
        made_on: moment
    """,
    "improve_rollouts": """
        id: string key, skill run candidate task: string, side outcome: short, round version steps: integer,
        is_new is_opened is_followed: boolean, tokens: bigint, dollars: float, record: text, at: moment
    """,
}
_INDEXES = {
    "skills": {"by_generation": "layer generation", "by_name": "layer name"},
    "skill_switches": {"by_skill": "skill id"},
    "skill_proposals": {"by_state": "state id"},
    "turns": {
        "by_session": "session started_on",
        "by_conversation": "conversation started_on",
        "by_caller": "caller_id",
        "by_time": "started_on",
    },
    "exposures": {"by_item": "kind item", "by_turn": "turn", "by_user": "user", "by_time": "at"},
    "lasting_outcomes": {"by_unit": "unit", "by_caller": "caller_id", "by_user": "user"},
    "search_documents": {"generation": "collection generation"},
    "search_learned": {"generation": "collection generation"},
    "engrams": {"by_revision": "revision", "by_state": "state"},
    "engram_versions": {"by_time": "made_on"},
    "skill_calls": {"by_time": "called_on"},
    "jobs": {"by_state": "state priority added_on"},
    "improve_rollouts": {"by_skill": "skill"},
}
# Another system may have made this one; then only the columns it lacks are added.
_AGENT_SKILLS = """
    _id: string key, title description content tags: text null, source: string null, version enabled: integer null,
    created_on modified_on: stamp null, fields: text null
"""


def upgrade() -> None:
    op.create_table("schema_compatibility", *_columns("revision: string key, oldest_reader: string"))
    # What was added since 0018 does not disturb code of that time.
    op.execute("INSERT INTO schema_compatibility VALUES ('0018', '0018')")
    for name, columns in _TABLES.items():
        op.create_table(name, *_columns(columns))
    for table, indexes in _INDEXES.items():
        for name, indexed in indexes.items():
            op.create_index(f"{table}_{name}", table, indexed.split())
    once, here = "skills_once_per_layer", sa.text("archived_on IS NULL")
    op.create_index(once, "skills", ["layer", "folder"], unique=True, sqlite_where=here, postgresql_where=here)
    _agent_skills()
    if op.get_bind().dialect.name == "postgresql":
        _tell_of_changes()
        _show_users_their_own()
        _search_in_server()


def _columns(text: str) -> Iterator[sa.Column[Any]]:
    for part in text.split(","):
        names, _, rest = part.partition(":")
        kind, *words = rest.split()
        for name in names.split():
            yield _column(name, _KINDS[kind], words)


def _column(name: str, kind: Any, words: list[str]) -> sa.Column[Any]:
    told = dict(pairwise(words))
    link = sa.ForeignKey(told.get("references", ""), ondelete="CASCADE" if "cascade" in words else None)
    default = told.get("default", "")
    return sa.Column(
        name,
        kind,
        *([link] if "references" in told else []),
        primary_key="key" in words,
        nullable="null" in words,
        autoincrement="auto" if "given" not in words else False,
        server_default={"": None, "''": "", "true": sa.true(), "false": sa.false()}.get(default, default),
    )


def _agent_skills() -> None:
    there = sa.inspect(op.get_bind())
    if not there.has_table("agent_skills"):
        op.create_table("agent_skills", *_columns(_AGENT_SKILLS))
        return
    known = {"_id", *(column["name"] for column in there.get_columns("agent_skills"))}
    for column in _columns(_AGENT_SKILLS):
        if column.name not in known:
            op.add_column("agent_skills", column)


def _tell_of_changes() -> None:
    """Word of every change to the hosts that share the database (`sql/change_notifications.py`)."""
    op.execute(
        "CREATE OR REPLACE FUNCTION habitus_tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM pg_notify('habitus_' || md5(TG_TABLE_SCHEMA), TG_TABLE_NAME); RETURN NULL; END $$"
    )
    for table in ("sequences", "agent_skills", "memory_revision", "skill_proposals", "sign_ins"):
        op.execute(
            f"CREATE TRIGGER {table}_told AFTER INSERT OR UPDATE OR DELETE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION habitus_tell()"
        )


_MINE = 'habitus_may("user")'
_OF_TURN = "EXISTS (SELECT 1 FROM turns WHERE turns.id = turn)"
_LESSON = "EXISTS (SELECT 1 FROM engrams WHERE engrams.id = {})"
_COUNTED = ("exposures", "lasting_outcomes")  # without any text, and counted over everybody
_LETS_IN = ("sign_ins", "signing_keys")  # every process lets people in; whom it lets in an admin says
# Who may change a row, or make it; and see it, unless everybody may.
_OF_USER = {
    "turns": _MINE,
    **dict.fromkeys(("turn_messages", "turn_events", "turn_selections", "turn_outcomes"), _OF_TURN),
    "seen_skills": _MINE,
    "engrams": "scope <> 'user' OR habitus_may(owner)",
    "engram_versions": _LESSON.format("engram"),
    "search_documents": f"collection <> 'memory' OR {_LESSON.format('search_documents.id')}",
    **dict.fromkeys(_COUNTED, _MINE),
    "jobs": _MINE,
    "job_parts": "EXISTS (SELECT 1 FROM jobs WHERE jobs.id = job)",
}


def _show_users_their_own() -> None:
    """A transaction says in whose name it is (`sql.get_engine_for_user`)."""
    op.execute(
        "CREATE OR REPLACE FUNCTION habitus_may(whose text) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT "
        "coalesce(current_setting('habitus.role', true) = 'admin', false) "
        "OR coalesce(whose = current_setting('habitus.user', true), false) $$"
    )
    for table, who in _OF_USER.items():
        op.execute(f"CREATE POLICY of_user ON {table} USING ({who}) WITH CHECK ({who})")
    for table in _LETS_IN:
        op.execute(f"CREATE POLICY of_admins ON {table} USING (habitus_may(NULL)) WITH CHECK (habitus_may(NULL))")
    for name, tables in {"counted": _COUNTED, "known": _LETS_IN}.items():
        for table in tables:
            op.execute(f"CREATE POLICY {name} ON {table} FOR SELECT USING (true)")
    for table in (*_OF_USER, *_LETS_IN):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")


def _search_in_server() -> None:
    """The index of a large shared library: terms as full text, vectors for pgvector where it is.

    Only PostgreSQL has it, so it is not among the declared tables; `search/postgres_index.py` alone uses it.
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
