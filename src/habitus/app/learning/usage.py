"""Keeps the counters of skills and recipes equal to what the journal counts from uses and judgements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import sqlalchemy as sa

from habitus import sql
from habitus.app.home import Home
from habitus.journal.usage import UsageObserver
from habitus.skills.model import Stage
from habitus.skills.stores.usage_cache import add_counts_by_key, read_cached_usage
from habitus.use_counts import UsageByKey, UsageCounts, UseKey


class CachedUsage(UsageObserver):
    """Writes every change of the counts to the counters beside the skills."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def apply_changes(self, changes: UsageByKey) -> None:
        """Add the changes to the counters, in the transaction of the journal where both share a database."""
        home = self._home
        for key, change in changes.items():
            for engine in _list_engines(home):
                with sql.write_transaction(engine) as connection:
                    if add_counts_by_key(connection, key, change):
                        break
            if key.part:
                home.recipes.add_counts(key.item, key.layer, key.part, change)

    def after_changes(self, changes: UsageByKey) -> None:
        """Propose what new failures of steps call for."""
        for key, change in changes.items():
            if change.failed > 0 and key.stage == Stage.STEPS.value:
                # Loads the statistics, which only failures need.
                from habitus.app.learning.verdicts import propose_after_failure

                propose_after_failure(self._home, key)


def _list_engines(home: Home) -> Iterator[sa.Engine]:
    """Yield the databases with skills, the shared one first."""
    yield home.shared
    if home.local is not home.shared:
        yield home.local


def find_stale_counters(home: Home) -> list[str]:
    """Return the skills and recipes of the shared database whose counters differ from what the journal counts."""
    with sql.read_transaction(home.shared) as connection:
        cached = read_cached_usage(connection)
        counted: dict[UseKey, UsageCounts] = {}
        facts = home.journal.count_all_uses()
        for key, counts in facts.items():
            whole = replace(key, part="")
            counted[whole] = counted.get(whole, UsageCounts()) + counts
    there = {(key.layer, key.item) for key in cached}
    none = UsageCounts()
    differing = {
        f"{key.item}@{key.layer}"
        for key in {*cached, *counted}
        if (key.layer, key.item) in there and (cached.get(key, none) - counted.get(key, none)).is_nonzero
    }
    return [*sorted(differing), *home.recipes.find_stale_counts(facts)]
