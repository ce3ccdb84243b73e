"""An immutable mapping by name, sorted, whose changed copies share everything that did not change."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import TypeVar

T_co = TypeVar("T_co", covariant=True)

# Copying a part costs as much as its size; smaller parts make the list of parts longer. At most twice this.
_PART_SIZE = 256


class SortedNameMap(Mapping[str, T_co]):
    """A sorted, immutable mapping from names to values; `with_changes` returns a changed copy."""

    __slots__ = ("_count", "_firsts", "_parts")

    def __init__(self, items: Iterable[tuple[str, T_co]] = ()) -> None:
        self._set_parts(_split_parts(sorted(items, key=itemgetter(0))))

    def _set_parts(self, parts: Sequence[dict[str, T_co]]) -> None:
        self._parts = parts or [{}]
        self._firsts = [next(iter(part), "") for part in self._parts]
        self._count = sum(map(len, self._parts))

    def with_changes(self: SortedNameMap[T_co], names: Collection[str], now: Mapping[str, T_co]) -> SortedNameMap[T_co]:
        """Return a copy in which these names have their value from `now`; names missing there are removed."""
        if not self:
            return SortedNameMap(now.items())
        touched = defaultdict[int, list[str]](list)
        for name in names:
            touched[self._find_part_index(name)].append(name)
        parts = list(self._parts)
        # From the back, so that splitting a part does not shift those still to be changed.
        for at in sorted(touched, reverse=True):
            part = dict(parts[at])
            is_grown = False
            for name in touched[at]:
                if name not in now:
                    part.pop(name, None)
                else:
                    # Only a new name disturbs the order within a part.
                    is_grown |= name not in part
                    part[name] = now[name]
            if is_grown:
                parts[at : at + 1] = _split_parts(sorted(part.items(), key=itemgetter(0)))
            else:
                parts[at : at + 1] = [part] if part else []
        made = SortedNameMap[T_co]()
        made._set_parts(parts)
        return made

    def _find_part_index(self, name: str) -> int:
        return max(bisect_right(self._firsts, name) - 1, 0)

    def __getitem__(self, name: str) -> T_co:
        return self._parts[self._find_part_index(name)][name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._parts[self._find_part_index(name)]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return self._count

    def items(self) -> ItemsView[str, T_co]:
        return _SortedNameMapItems(self)

    def iterate_values(self) -> Iterator[T_co]:
        """Iterate over the values in the order of their names."""
        return chain.from_iterable(part.values() for part in self._parts)


class _SortedNameMapItems(ItemsView[str, T_co]):
    """Iterates part by part, because looking up the part of each name would dominate."""

    _mapping: SortedNameMap[T_co]

    def __iter__(self) -> Iterator[tuple[str, T_co]]:
        return chain.from_iterable(part.items() for part in self._mapping._parts)


def _split_parts(items: Sequence[tuple[str, T_co]]) -> list[dict[str, T_co]]:
    """Split items into parts with room to double before the next split."""
    if len(items) <= 2 * _PART_SIZE:
        return [dict(items)] if items else []
    return [dict(items[start : start + _PART_SIZE]) for start in range(0, len(items), _PART_SIZE)]
