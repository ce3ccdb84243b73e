"""Keeps the counters of skills and recipes equal to what the journal counts from uses and judgements."""

from __future__ import annotations

from dataclasses import replace

from habitus import sql
from habitus.app.home import Home
from habitus.journal.usage import UsageCountObserver
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.model import Stage
from habitus.skills.stores.usage_cache import add_counts_by_key, list_countable_skills, read_cached_usage
from habitus.use_counts import UsageByKey, UsageCounts, UseKey


class UsageCounterUpdater(UsageCountObserver):
    """Writes every change of the counts to the counters beside the skills."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def apply_changes(self, changes: UsageByKey) -> None:
        """Add the changes to the counters in the journal's database, in its transaction."""
        home = self._home
        with sql.write_transaction(home.shared) as connection:
            for key, change in changes.items():
                if not self._is_machine_local(key):
                    add_counts_by_key(connection, key, change)
                if key.part:
                    home.recipes.add_counts(key.item, key.layer, key.part, change)

    def after_changes(self, changes: UsageByKey) -> None:
        """Add the changes of skills in the other database, and propose what new failures of steps call for."""
        # Not earlier: whoever holds a connection must not wait for another.
        if here := [key for key in changes if self._is_machine_local(key)]:
            with sql.write_transaction(self._home.local) as connection:
                for key in here:
                    add_counts_by_key(connection, key, changes[key])
        for key, change in changes.items():
            if change.failed > 0 and key.stage == Stage.STEPS.value:
                # Loads the statistics, which only failures need.
                from habitus.app.learning.due_transitions import propose_transition_after_failure

                propose_transition_after_failure(self._home, key)

    def _is_machine_local(self, key: UseKey) -> bool:
        """Whether the skill is in this machine's database while the journal is in a shared one."""
        return self._home.local is not self._home.shared and key.layer != USER_LAYER


def find_stale_usage_counters(home: Home) -> list[str]:
    """Return the skills and recipes of the shared database whose counters differ from what the journal counts."""
    with sql.read_transaction(home.shared) as connection:
        cached, there = read_cached_usage(connection), list_countable_skills(connection)
        counted: dict[UseKey, UsageCounts] = {}
        facts = home.journal.count_all_uses()
        for key, counts in facts.items():
            whole = replace(key, part="")
            counted[whole] = counted.get(whole, UsageCounts()) + counts
    none = UsageCounts()
    differing = {
        f"{key.item}@{key.layer}"
        for key in {*cached, *counted}
        if (key.layer, key.item) in there and (cached.get(key, none) - counted.get(key, none)).is_nonzero
    }
    return [*sorted(differing), *home.recipes.find_stale_counts(facts)]
