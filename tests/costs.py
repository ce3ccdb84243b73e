"""Counting the cost of a change: transactions, looks at the directories of skills, and YAML that is read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from habitus.skills.stores.files import DirectoryBackend


@dataclass(kw_only=True, slots=True)
class Costs:
    transactions: int = 0
    looks: Counter[str] = field(default_factory=Counter)  # by directory
    parsed: Counter[str] = field(default_factory=Counter)  # by text


@contextmanager
def counted_costs() -> Iterator[Costs]:
    """The costs of what is done inside, in any thread."""
    costs = Costs()
    look, parse = DirectoryBackend.list_folder_change_stamps, yaml.parse

    def count_begin(connection: sa.Connection) -> None:
        # A thread that hears for all what other hosts change is nobody's cost.
        costs.transactions += not threading.current_thread().name.startswith("habitus-")

    def count_look(self: DirectoryBackend, known: Mapping[str, str]) -> Mapping[str, str]:
        costs.looks[str(self.root)] += 1
        return look(self, known)

    def count_parse(text: str, **options: Any) -> Any:
        costs.parsed[text] += 1
        return parse(text, **options)

    sa.event.listen(sa.Engine, "begin", count_begin)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectoryBackend, "list_folder_change_stamps", count_look)
        patch.setattr(yaml, "parse", count_parse)
        try:
            yield costs
        finally:
            sa.event.remove(sa.Engine, "begin", count_begin)


def assert_cheap_edit(costs: Costs) -> None:
    """At most 6 transactions, every directory looked at once, the text before and the text after read once each."""
    assert 2 <= costs.transactions <= 6
    assert set(costs.looks.values()) == {1}
    assert set(costs.parsed.values()) == {1}
    assert len(costs.parsed) <= 2
