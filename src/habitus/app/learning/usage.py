"""Keeps the counters of skills and recipes equal to what the journal counts from uses and judgements."""

from __future__ import annotations

from habitus import sql
from habitus.app.home import Home, refuse_if_read_only_or_offline, refuse_non_admin_on_shared_database
from habitus.journal.usage import UsageCountObserver, lock_use_and_judgement_tables
from habitus.skills.model import Stage
from habitus.use_counts import UsageByKey


class UsageCounterUpdater(UsageCountObserver):
    """Writes every change of the counts to the counters beside the skills."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def apply_changes(self, changes: UsageByKey) -> None:
        """Add the changes to the counters, in the transaction of the journal."""
        self._home.skills.usage.add_usage_counts(changes)
        if any(key.part for key in changes):
            self._home.recipes.add_to_cached_recipe_counts(changes)

    def after_changes(self, changes: UsageByKey) -> None:
        """Propose what new failures of steps call for."""
        for key, change in changes.items():
            if change.failed > 0 and key.stage == Stage.STEPS.value:
                # Loads the statistics, which only failures need.
                from habitus.app.learning.due_transitions import propose_transition_after_failure

                propose_transition_after_failure(self._home, key)


def find_stale_usage_counters(home: Home) -> list[str]:
    """Return the skills and recipes whose counters differ from what the journal counts."""
    with sql.read_transaction(home.shared):
        facts = home.journal.count_all_uses_from_facts()
        differing = {f"{key.item}@{key.layer}" for key in home.skills.usage.find_counts_missing_from_cache(facts)}
        return [*sorted(differing), *home.recipes.find_recipes_with_stale_counts(facts)]


def correct_usage_counters(home: Home) -> None:
    """Make the counters equal to what the journal counts."""
    refuse_if_read_only_or_offline(home)
    refuse_non_admin_on_shared_database(home, "correct the counters")
    with sql.write_transaction(home.shared) as connection:
        lock_use_and_judgement_tables(connection)
        facts = home.journal.count_all_uses_from_facts()
        home.skills.usage.add_usage_counts(home.skills.usage.find_counts_missing_from_cache(facts))
        home.recipes.correct_cached_counts_from_journal(facts)
