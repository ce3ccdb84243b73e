"""The cached usage counts of skills, in one table for all layers of a database.

The journal counts from uses and judgements; here that result is stored beside the skills, because lists of thousands
read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.skills.model import Stage
from habitus.skills.stores.base import IMPORTED_COUNTS_VERSION
from habitus.skills.stores.tables import counters, skills
from habitus.use_counts import COUNT_NAMES, UsageCounts, UseKey

_CARRIED = ("used", "succeeded", "failed")


def add_counts(
    connection: sa.Connection,
    skill: int,
    version: int,
    stage: Stage,
    plus: Mapping[str, int],
    last_used: datetime | None,
) -> None:
    """Add to the counters of a skill at a version."""
    key = {"skill": skill, "version": version, "stage": stage.value}
    # The row may be missing; inserting it first lets the update be one atomic addition.
    sql.insert_missing_rows(connection, counters, [key])
    values: dict[str, Any] = {name: counters.c[name] + number for name, number in plus.items()}
    if last_used is not None:
        values["last_used"] = last_used
    connection.execute(
        counters.update().where(*(counters.c[name] == value for name, value in key.items())).values(values)
    )


def add_counts_by_key(connection: sa.Connection, key: UseKey, plus: UsageCounts) -> bool:
    """Add to the counters of a skill by its layer and name, also of an archived one; False if it is not here."""
    mine = sa.select(skills.c.id).where(skills.c.layer == key.layer, skills.c.name == key.item)
    newest = mine.order_by(skills.c.archived_on.is_not(None), skills.c.id.desc()).limit(1)
    found = connection.execute(newest).scalar()
    if found is None:
        return False
    numbers = {name: getattr(plus, name) for name in COUNT_NAMES}
    last_used = plus.last_used if plus.used > 0 else None
    add_counts(connection, found, key.version, Stage(key.stage), numbers, last_used)
    return True


def list_countable_skills(connection: sa.Connection) -> set[tuple[str, str]]:
    """Return the layer and name of every skill whose uses are counted here, archived ones too."""
    return {(layer, name) for layer, name in connection.execute(sa.select(skills.c.layer, skills.c.name))}


def read_cached_usage(connection: sa.Connection) -> dict[UseKey, UsageCounts]:
    """Return the cached counts of every skill without those counted before the journal kept each use."""
    query = sa.select(counters, skills.c.layer, skills.c.name).join(skills)
    found: dict[UseKey, UsageCounts] = {}
    for row in connection.execute(query.where(counters.c.version != IMPORTED_COUNTS_VERSION)).mappings():
        key = UseKey(layer=row["layer"], item=row["name"], version=row["version"], stage=row["stage"])
        counted = {name: row[name] - (row[f"{name}_before"] if name in _CARRIED else 0) for name in COUNT_NAMES}
        found[key] = found.get(key, UsageCounts()) + UsageCounts(**counted)
    return found
