"""The health of tools in the database: changed by pure functions under the write lock, by any number of processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager

import sqlalchemy as sa

from habitus import sql
from habitus.tools.lifecycle import Health
from habitus.tools.tables import tool_health

_FIELDS = [field.name for field in dataclasses.fields(Health)]


class ToolHealth:
    """`place` tells the layers of several projects apart; `name` is that of the skill."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def all(self) -> dict[tuple[str, str], Health]:
        with sql.reading(self._engine) as connection:
            rows = connection.execute(sa.select(tool_health)).mappings()
            return {(row["place"], row["name"]): Health(**{f: row[f] for f in _FIELDS}) for row in rows}

    def get(self, place: str, name: str) -> Health:
        return self.all().get((place, name), Health())

    def change(self, place: str, name: str, change: Callable[[Health], Health]) -> tuple[Health, Health]:
        """Apply a decision to what is known at that moment; what it was before and after."""
        key = {"place": place, "name": name}
        mine = (tool_health.c.place == place, tool_health.c.name == name)
        with self.writing() as connection:
            sql.insert_missing(connection, tool_health, [key])
            row = connection.execute(sa.select(tool_health).where(*mine)).mappings().one()
            before = Health(**{field: row[field] for field in _FIELDS})
            after = change(before)
            if after != before:
                values = {field: getattr(after, field) for field in _FIELDS}
                connection.execute(tool_health.update().where(*mine).values(values))
        return before, after

    def writing(self) -> AbstractContextManager[sa.Connection]:
        """A transaction in which several changes belong together."""
        return sql.writing(self._engine, lock="tool_health")
