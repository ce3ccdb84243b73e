"""The cached usage counts of skills: one table for all layers and hosts, in the database of the journal.

The journal counts from uses and judgements; here that result is stored by skill, because lists of thousands read it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.skills.model import Stage
from habitus.skills.stores.base import IMPORTED_COUNTS_VERSION
from habitus.skills.stores.tables import COUNTED_BEFORE, skill_counts
from habitus.use_counts import (
    COUNT_NAMES,
    UsageByKey,
    UsageCountKey,
    UsageCounts,
    compute_count_changes,
    sum_counts_by_key,
)

# By layer key and name.
CountsBySkill = dict[tuple[str, str], dict[Stage, UsageCounts]]


@dataclass(frozen=True, slots=True)
class UsageCache:
    """Reads and changes the cached counts in the database of the journal."""

    engine: sa.Engine
    # The database of this machine, if another one is shared: it has what was imported into layers of the machine before
    # that, which are all but the `shared_layer`.
    machine: sa.Engine | None = None
    shared_layer: str = ""

    def read_use_counts(
        self,
        layers: Collection[str],
        names: Collection[str] = (),
        *,
        version: int | None = None,
        with_imported: bool = False,
    ) -> CountsBySkill:
        """Return the counts of the skills of these layers by stage, only of these names if there are any.

        Of one version or of all; those from other systems, which have a version of their own, only if asked.
        """
        own = skill_counts.c
        every = sa.select(skill_counts).where(own.layer.in_(layers), own.item.in_(names) if names else sa.true())
        query = every.order_by(own.stage)
        if version is not None:
            query = query.where(own.version == version)
        elif not with_imported:
            query = query.where(own.version != IMPORTED_COUNTS_VERSION)
        with sql.read_transaction(self.engine) as connection:
            rows = list(connection.execute(query).mappings())
        is_asked = with_imported or version == IMPORTED_COUNTS_VERSION
        if self.machine is not None and is_asked and {*layers} - {self.shared_layer}:
            imported = every.where(own.version == IMPORTED_COUNTS_VERSION, own.layer != self.shared_layer)
            known = {(row["layer"], row["item"]) for row in rows if row["version"] == IMPORTED_COUNTS_VERSION}
            with sql.read_transaction(self.machine) as connection:
                here = connection.execute(imported.order_by(own.stage)).mappings()
                rows += [row for row in here if (row["layer"], row["item"]) not in known]
        found: CountsBySkill = {}
        for row in rows:
            stages, stage = found.setdefault((row["layer"], row["item"]), {}), Stage(row["stage"])
            counts = UsageCounts(**{name: row[name] for name in COUNT_NAMES}, last_used=row["last_used"])
            stages[stage] = stages[stage] + counts if stage in stages else counts
        return found

    def add_usage_counts(self, changes: UsageByKey) -> None:
        """Add to the counts, in the transaction that is open in this context if there is one."""
        own = skill_counts.c

        def sum_up(new: sa.ColumnCollection[str, Any]) -> Mapping[str, Any]:
            last = sa.case((new.last_used.is_(None), own.last_used), else_=new.last_used)
            return {name: own[name] + new[name] for name in COUNT_NAMES} | {"last_used": last}

        # A judgement or an erasure is no newer use.
        rows = [
            _build_row(key, counts) | ({} if counts.used > 0 else {"last_used": None})
            for key, counts in _sum_counts_by_stage(changes).items()
        ]
        with sql.write_transaction(self.engine) as connection:
            sql.upsert_rows(connection, skill_counts, rows, sum_up)

    def store_imported_counts(self, layer: str, skills: Mapping[str, Mapping[Stage, UsageCounts]]) -> None:
        """Store what another system counted for these skills of a layer."""
        rows = [
            _build_row(
                UsageCountKey(layer=layer, item=name, version=IMPORTED_COUNTS_VERSION, stage=stage.value), counts
            )
            for name, stages in skills.items()
            for stage, counts in stages.items()
        ]
        with sql.write_transaction(self.engine) as connection:
            sql.upsert_rows(connection, skill_counts, rows, lambda new: {name: new[name] for name in _VALUE_NAMES})

    def find_counts_missing_from_cache(self, facts: UsageByKey) -> dict[UsageCountKey, UsageCounts]:
        """Return by how much the counts of the journal exceed the cached ones, where they differ."""
        query = sa.select(skill_counts).where(skill_counts.c.version != IMPORTED_COUNTS_VERSION)
        with sql.read_transaction(self.engine) as connection:
            rows = connection.execute(query).mappings().all()
        cached = {
            UsageCountKey(**{name: row[name] for name in _KEY_NAMES}): UsageCounts(
                **{name: row[name] - (row[f"{name}_before"] if name in COUNTED_BEFORE else 0) for name in COUNT_NAMES}
            )
            for row in rows
        }
        return compute_count_changes(_sum_counts_by_stage(facts), cached)

    def erase_skill_counts(self, layer: str, name: str) -> None:
        """Delete the counts of an erased skill, except those of uses that are stored."""
        own = skill_counts.c
        has_no_use = sa.and_(own.recommended == own.recommended_before, own.used == own.used_before)
        is_told = sa.or_(own.version == IMPORTED_COUNTS_VERSION, has_no_use)
        for engine in filter(None, (self.engine, self.machine)):
            with sql.write_transaction(engine) as connection:
                connection.execute(skill_counts.delete().where(own.layer == layer, own.item == name, is_told))


_KEY_NAMES = ("layer", "item", "version", "stage")
_VALUE_NAMES = (*COUNT_NAMES, "last_used")


def _build_row(key: UsageCountKey, counts: UsageCounts) -> dict[str, Any]:
    return {name: getattr(key, name) for name in _KEY_NAMES} | {name: getattr(counts, name) for name in _VALUE_NAMES}


def _sum_counts_by_stage(counts: UsageByKey) -> dict[UsageCountKey, UsageCounts]:
    return sum_counts_by_key((replace(key, part=""), one) for key, one in counts.items())
