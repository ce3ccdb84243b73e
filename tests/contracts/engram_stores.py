"""How to make each kind of engram store for the contract suite; a new store joins with one line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from habitus import sql
from habitus.memory.store import EngramStore
from tests.homes import migrated


def sql_store(home: Path, url: str) -> EngramStore:
    return EngramStore(sql.open_engine_with_current_schema(url or sql.build_sqlite_url(migrated(home / "habitus.db"))))


ENGRAM_STORES: dict[str, Callable[[Path, str], EngramStore]] = {
    "sqlite": sql_store,
    "postgresql": sql_store,
}
