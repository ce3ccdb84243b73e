"""How recipes fare: use, success and last use of each, counted in one table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from habitus import sql
from habitus.events import Outcome, OutcomeKind
from habitus.sql import Utc, metadata


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeCounts:
    used: int = 0
    succeeded: int = 0
    failed: int = 0
    last_used: datetime | None = None


# `place` is the skill's layer, or the folder of a project's layer.
recipe_counts = sa.Table(
    "recipe_counts",
    metadata,
    sa.Column("place", sa.String, primary_key=True),
    sa.Column("skill", sa.String, primary_key=True),
    sa.Column("recipe", sa.String, primary_key=True),
    sa.Column("used", sa.Integer, nullable=False, server_default="0"),
    sa.Column("succeeded", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failed", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_used", Utc),
)
Key = tuple[str, str, str]  # place, skill, recipe


class RecipeCounter:
    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def all(self) -> dict[Key, RecipeCounts]:
        with sql.reading(self._engine) as connection:
            rows = connection.execute(sa.select(recipe_counts)).mappings()
            return {
                (row["place"], row["skill"], row["recipe"]): RecipeCounts(
                    used=row["used"], succeeded=row["succeeded"], failed=row["failed"], last_used=row["last_used"]
                )
                for row in rows
            }

    def ran(self, key: Key, outcome: Outcome, now: datetime) -> None:
        """It was used; what went wrong around it counts neither way."""
        named = dict(zip(("place", "skill", "recipe"), key, strict=True))
        table = recipe_counts.c
        with sql.writing(self._engine, lock="recipe_counts") as connection:
            sql.insert_missing(connection, recipe_counts, [named])
            mine = [table[name] == value for name, value in named.items()]
            connection.execute(
                recipe_counts.update()
                .where(*mine)
                .values(
                    used=table.used + 1,
                    succeeded=table.succeeded + (outcome.kind is OutcomeKind.OK),
                    failed=table.failed + (outcome.kind is OutcomeKind.FAILED),
                    last_used=now,
                )
            )
