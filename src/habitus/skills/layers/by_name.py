"""Things by name, sorted, of which a changed copy costs what was changed: the rest is shared with the one before it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import TypeVar

T_co = TypeVar("T_co", covariant=True)

_PART = 256  # names that are copied when one of them changes; at most twice as many


class ByName(Mapping[str, T_co]):
    """Never changes; `after` makes another one."""

    __slots__ = ("_count", "_firsts", "_parts")

    def __init__(self, items: Iterable[tuple[str, T_co]] = ()) -> None:
        self._set(_cut(sorted(items, key=itemgetter(0))))

    def _set(self, parts: Sequence[dict[str, T_co]]) -> None:
        self._parts = parts or [{}]
        self._firsts = [next(iter(part), "") for part in self._parts]
        self._count = sum(map(len, self._parts))

    def after(self: ByName[T_co], names: Collection[str], now: Mapping[str, T_co]) -> ByName[T_co]:
        """The same where these names have what they have `now`, and are gone where that has nothing of them."""
        if not self:
            return ByName(now.items())
        touched = defaultdict[int, list[str]](list)
        for name in names:
            touched[self._at(name)].append(name)
        parts = list(self._parts)
        for at in sorted(touched, reverse=True):
            part = dict(parts[at])
            is_grown = False
            for name in touched[at]:
                if name not in now:
                    part.pop(name, None)
                else:
                    is_grown |= name not in part
                    part[name] = now[name]
            if is_grown:
                parts[at : at + 1] = _cut(sorted(part.items(), key=itemgetter(0)))
            else:
                parts[at : at + 1] = [part] if part else []
        made = ByName[T_co]()
        made._set(parts)
        return made

    def _at(self, name: str) -> int:
        return max(bisect_right(self._firsts, name) - 1, 0)

    def __getitem__(self, name: str) -> T_co:
        return self._parts[self._at(name)][name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._parts[self._at(name)]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return self._count

    def items(self) -> ItemsView[str, T_co]:
        return _Items(self)

    def in_order(self) -> Iterator[T_co]:
        """The things without their names."""
        return chain.from_iterable(part.values() for part in self._parts)


class _Items(ItemsView[str, T_co]):
    """Part by part: finding the part of each name takes longer than all else."""

    _mapping: ByName[T_co]

    def __iter__(self) -> Iterator[tuple[str, T_co]]:
        return chain.from_iterable(part.items() for part in self._mapping._parts)


def _cut(items: Sequence[tuple[str, T_co]]) -> list[dict[str, T_co]]:
    """In parts, so that one which has just been cut has room for as many again."""
    if len(items) <= 2 * _PART:
        return [dict(items)] if items else []
    return [dict(items[start : start + _PART]) for start in range(0, len(items), _PART)]
