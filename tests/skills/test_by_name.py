"""What many are listed by: a changed copy says what a dictionary would, in order, and the one before it stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.skills.layers.name_map import SortedNameMap

pytestmark = pytest.mark.req("OP-05")

Names = st.integers(0, 3000).map(lambda number: f"skill-{number}")


@given(
    first=st.integers(0, 1500),
    steps=st.lists(st.dictionaries(Names, st.one_of(st.none(), st.integers(0, 9)), max_size=30), max_size=6),
    many=st.integers(0, 2000),
)
def test_changed_copies_say_what_a_dictionary_says(first: int, steps: list[dict[str, int | None]], many: int) -> None:
    known = {f"skill-{number}": number for number in range(0, 2 * first, 2)}
    now = SortedNameMap(known.items())
    everything: dict[str, int | None] = {f"skill-{number}": 1 for number in range(many)}
    for changes in [*steps, everything, *steps]:
        before, was = now, dict(now)
        now = now.with_changes(changes, {name: value for name, value in changes.items() if value is not None})
        known = {name: value for name, value in {**known, **changes}.items() if value is not None}

        assert list(now.items()) == sorted(known.items())
        assert list(now.iterate_values()) == [known[name] for name in sorted(known)]
        assert (len(now), all(name in now for name in known)) == (len(known), True)
        assert not any(name in now or now.get(name) for name in changes.keys() - known.keys())
        assert dict(before) == was


def test_everything_may_go_and_come_again() -> None:
    some = SortedNameMap({"a": 1, "b": 2}.items())

    none = some.with_changes(["a", "b", "c"], {})

    assert (dict(none), len(none), "a" in none) == ({}, 0, False)
    assert dict(none.with_changes(["a"], {"a": 3})) == {"a": 3}
