"""One table with the counts of skills, for all layers and hosts, by name; filled from the uses and judgements.

What was counted before each use was kept comes along, and what other systems counted; a host that has a database of its
own for the skills of its machine keeps the rest in the shared one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"

_KEY = "layer, item, version, stage"
_BEFORE = ("recommended", "used", "succeeded", "failed")
_COUNTS = (*_BEFORE, "weak_failures", "ran_without_error")

# The strongest kind of source decides, and within a kind the latest word; a run that failed stays failed where the
# skill's steps, or another run, did the work.
_FACTS = """
WITH said AS (
    SELECT turn, kind, ROW_NUMBER() OVER (
        PARTITION BY turn
        ORDER BY CASE source_kind WHEN 'person' THEN 3 WHEN 'validator' THEN 2 ELSE 1 END DESC, at DESC, source DESC
    ) AS place
    FROM lasting_outcomes
    WHERE source_kind IN ('person', 'validator', 'program') AND weight >= 1 AND kind <> 'infra'
), signs AS (
    SELECT turn,
        MAX(CASE WHEN source = 'next turn' AND kind = 'failed' THEN 1 ELSE 0 END) AS corrected,
        MAX(CASE WHEN source <> 'next turn' AND kind = 'ok' THEN 1 ELSE 0 END) AS ran
    FROM lasting_outcomes GROUP BY turn
), judged AS (
    SELECT uses.layer, uses.item, uses.version, uses.stage, uses.manner, uses.at, signs.corrected, signs.ran,
        CASE WHEN uses.is_credited THEN 1 ELSE 0 END AS credited,
        CASE WHEN uses.result = 'failed' AND EXISTS (
            SELECT 1 FROM uses AS other
            WHERE other.turn = uses.turn AND other.layer = uses.layer AND other.item = uses.item AND other.is_credited
                AND other.origin = 'real' AND (other.manner <> 'ran' OR other.result = 'ok')
        ) THEN 'failed' ELSE COALESCE(said.kind, uses.result) END AS known
    FROM uses
    LEFT JOIN said ON said.turn = uses.turn AND said.place = 1
    LEFT JOIN signs ON signs.turn = uses.turn
    WHERE uses.origin = 'real'
)
SELECT layer, item, version, stage,
    SUM(CASE WHEN manner <> 'ran' THEN 1 ELSE 0 END) AS recommended,
    COUNT(*) AS used,
    SUM(CASE WHEN known = 'ok' THEN credited ELSE 0 END) AS succeeded,
    SUM(CASE WHEN known = 'failed' THEN credited ELSE 0 END) AS failed,
    SUM(CASE WHEN known IS NULL AND corrected = 1 THEN credited ELSE 0 END) AS weak_failures,
    SUM(CASE WHEN known IS NULL AND corrected = 0 AND ran = 1 THEN credited ELSE 0 END) AS ran_without_error,
    0 AS recommended_before, 0 AS used_before, 0 AS succeeded_before, 0 AS failed_before,
    MAX(at) AS last_used
FROM judged GROUP BY layer, item, version, stage
"""

# What the facts do not say.
_TOLD = """
SELECT layer, name AS item, skill_counters.version, stage,
    recommended, CASE WHEN skill_counters.version = 0 THEN used ELSE used_before END AS used,
    CASE WHEN skill_counters.version = 0 THEN succeeded ELSE succeeded_before END AS succeeded,
    CASE WHEN skill_counters.version = 0 THEN failed ELSE failed_before END AS failed,
    0 AS weak_failures, 0 AS ran_without_error,
    recommended AS recommended_before, used_before, succeeded_before, failed_before, last_used
FROM skill_counters JOIN skills ON skills.id = skill_counters.skill
"""


def upgrade() -> None:
    numbers = (*_COUNTS, *(f"{name}_before" for name in _BEFORE))
    op.create_table(
        "skill_counts",
        *(sa.Column(name, sa.String, primary_key=True) for name in ("layer", "item")),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("stage", sa.String(16), primary_key=True),
        *(sa.Column(name, sa.Integer, nullable=False, server_default="0") for name in numbers),
        sa.Column("last_used", sa.String(32)),
    )
    sums = {name: f"SUM({name})" for name in numbers}
    # A recommendation had no row of its own before; the uses that are kept are among those counted.
    told, kept = sums["recommended_before"], f"{sums['recommended']} - {sums['recommended_before']}"
    sums["recommended_before"] = f"CASE WHEN {told} > {kept} THEN {told} - ({kept}) ELSE 0 END"
    sums["recommended"] = f"CASE WHEN {told} > {kept} THEN {told} ELSE {kept} END"
    op.execute(
        f"INSERT INTO skill_counts ({_KEY}, {', '.join(sums)}, last_used) "
        f"SELECT {_KEY}, {', '.join(sums.values())}, MAX(last_used) "
        f"FROM ({_TOLD} UNION ALL SELECT * FROM ({_FACTS}) AS facts) AS counted GROUP BY {_KEY}"
    )
    op.drop_table("skill_counters")
    # Earlier code would count into the table that is gone.
    op.execute(f"INSERT INTO schema_compatibility VALUES ('{revision}', '{revision}')")
