"""How to make each kind of skill store for the contract suite; a new store joins with one line here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from habitus import sql
from habitus.files import Tree
from habitus.skills.model import Skill, Stage
from habitus.skills.stores.files import DirectoryBackend
from habitus.skills.stores.in_memory import InMemorySkillStore
from habitus.skills.stores.sql import SqlBackend
from habitus.skills.stores.usage_cache import UsageCache
from habitus.skills.stores.versioned import SkillStore
from habitus.use_counts import UsageCountKey, UsageCounts
from tests.homes import migrated


def load(store: SkillStore, name: str) -> Skill:
    """A skill that must be there."""
    skill = store.load(name)
    assert skill is not None
    return skill


def read_tree(store: SkillStore, name: str, version: int | None = None) -> Tree:
    """The files of a skill that must be there."""
    tree = store.read_tree(name, version)
    assert tree is not None
    return tree


def load_all_entries(store: SkillStore) -> list[Skill]:
    """Every skill of a store with its body."""
    return [load(store, one.name) for one in store.list_summaries()]


def count(store: SkillStore, name: str = "csv-summary", *, stage: Stage = Stage.STEPS, **numbers: Any) -> None:
    """Count for a skill at its current version, as the journal does when something was used or judged."""
    summary = store.get_summary(name)
    assert summary is not None
    key = UsageCountKey(layer=store.key, item=summary.name, version=summary.version, stage=stage.value)
    UsageCache(store.engine).add_usage_counts({key: UsageCounts(**numbers)})


def counts_of(store: SkillStore, name: str = "csv-summary", **options: Any) -> dict[Stage, UsageCounts]:
    return UsageCache(store.engine).read_use_counts([store.key], [name], **options).get((store.key, name), {})


class Ticking:
    """A clock that goes on by a second at every look."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def file_store(home: Path, clock: Callable[[], datetime] | None = None, url: str = "") -> SkillStore:
    engine = sql.open_engine_with_current_schema(sql.build_sqlite_url(migrated(home / "habitus.db")))
    shelf = DirectoryBackend(home / "skills", home / "archive")
    return SkillStore(shelf, engine, layer="user", clock=clock or Ticking(), check_interval=0)


def in_memory_store(home: Path, clock: Callable[[], datetime] | None = None, url: str = "") -> InMemorySkillStore:
    return InMemorySkillStore(clock=clock or Ticking())


def sql_store(home: Path, clock: Callable[[], datetime] | None = None, url: str = "") -> SkillStore:
    engine = sql.open_engine_with_current_schema(url or sql.build_sqlite_url(migrated(home / "habitus.db")))
    return SkillStore(
        SqlBackend(engine, home / "cache"), engine, layer="user", clock=clock or Ticking(), check_interval=0
    )


STORES: dict[str, Callable[[Path, Ticking, str], SkillStore]] = {
    "files": file_store,
    "in_memory": in_memory_store,
    "sqlite": sql_store,
    "postgresql": sql_store,
}
