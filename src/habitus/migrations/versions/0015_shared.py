"""Where PostgreSQL is shared by many hosts: word of every change, and rows that only their user sees.

A transaction says in whose name it is (`sql.acting_as`). Older code does not, and would see nothing: it is refused.
"""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_TOLD = ("sequences", "agent_skills", "memory_revision")
_MINE = 'habitus_may("user")'
_OF_TURN = "EXISTS (SELECT 1 FROM turns WHERE turns.id = turn)"
_LESSON = "EXISTS (SELECT 1 FROM engrams WHERE engrams.id = {})"
# Who may see a row, change it, or make it.
_SEEN_BY = {
    "turns": _MINE,
    "turn_messages": _OF_TURN,
    "turn_events": _OF_TURN,
    "turn_selections": _OF_TURN,
    "turn_outcomes": _OF_TURN,
    "seen_skills": _MINE,
    "engrams": "scope <> 'user' OR habitus_may(owner)",
    "engram_versions": _LESSON.format("engram"),
    "search_documents": f"collection <> 'memory' OR {_LESSON.format('search_documents.id')}",
}
# Without any text, and counted over everybody: all see them, and nobody changes another's.
_COUNTED = ("exposures", "lasting_outcomes")


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    _tell_of_changes()
    op.execute(
        "CREATE OR REPLACE FUNCTION habitus_may(whose text) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT "
        "coalesce(current_setting('habitus.role', true) = 'admin', false) "
        "OR coalesce(whose = current_setting('habitus.user', true), false) $$"
    )
    for table, who in _SEEN_BY.items():
        op.execute(f"CREATE POLICY of_user ON {table} USING ({who}) WITH CHECK ({who})")
    for table in _COUNTED:
        op.execute(f"CREATE POLICY of_user ON {table} USING ({_MINE}) WITH CHECK ({_MINE})")
        op.execute(f"CREATE POLICY counted ON {table} FOR SELECT USING (true)")
    for table in (*_SEEN_BY, *_COUNTED):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute("INSERT INTO schema_compatibility VALUES ('0015', '0015')")


def _tell_of_changes() -> None:
    op.execute(
        "CREATE OR REPLACE FUNCTION habitus_tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM pg_notify('habitus_' || md5(TG_TABLE_SCHEMA), TG_TABLE_NAME); RETURN NULL; END $$"
    )
    for table in _TOLD:
        op.execute(
            f"CREATE TRIGGER {table}_told AFTER INSERT OR UPDATE OR DELETE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION habitus_tell()"
        )


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute("DELETE FROM schema_compatibility WHERE revision = '0015'")
    for table in (*_SEEN_BY, *_COUNTED):
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
        op.execute(f"DROP POLICY of_user ON {table}")
    for table in _COUNTED:
        op.execute(f"DROP POLICY counted ON {table}")
    op.execute("DROP FUNCTION habitus_may(text)")
    for table in _TOLD:
        op.execute(f"DROP TRIGGER {table}_told ON {table}")
    op.execute("DROP FUNCTION habitus_tell()")
