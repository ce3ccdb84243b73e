"""Observed calls: what agents did, turn by turn, as mining looks at it; who wrote it down does not matter."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from habitus.events import CallRecord
from habitus.recipes.execution import value_of
from habitus.redact import MARKER

Path = tuple[str, ...]
_MOST_NODES = 300  # of one value that are looked at
_LONGEST_KEY = 80
_COMMANDS = ("command", "cmd")
_NUMBERED = re.compile(r"(?<!\d)\d[\w.:-]{3,60}(?<=\w)")  # a date, a version, an id


@dataclass(frozen=True, kw_only=True)
class ObservedCall(CallRecord):
    """`kind` is what two calls of a name must share besides to be the same step: of a command line its program, which
    is what it is when nothing is said."""

    success: bool | None = True
    kind: str = ""

    @cached_property
    def label(self) -> str:
        """Calls with the same label may be one step of a recipe."""
        return json.dumps([self.name, self.doing, sorted(self.arguments)], ensure_ascii=False)

    @cached_property
    def doing(self) -> str:
        return self.kind or program(self.arguments) or self.name

    @cached_property
    def leaves(self) -> Mapping[Path, str]:
        """What it was given, part by part, as keys that can be compared."""
        return {path: key for path, value in nodes(self.arguments) if path and (key := key_of(value)) is not None}

    @cached_property
    def given_paths(self) -> Mapping[str, Path]:
        return _first_paths(self.leaves)

    @cached_property
    def returned_paths(self) -> Mapping[str, Path]:
        """What it returned, each value with the shortest way to it."""
        found = ((path, key_of(value)) for path, value in nodes(value_of(self.result)) if all(map(_is_word, path)))
        return _first_paths({path: key for path, key in found if key is not None})

    @cached_property
    def rare_inputs(self) -> frozenset[str]:
        """What it was given that hardly two calls have in common by chance: long values, and numbers within texts."""
        return _telling(self.given_paths)

    @cached_property
    def rare_results(self) -> frozenset[str]:
        """The same of all that was known after it."""
        return self.rare_inputs | _telling(self.returned_paths)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedTurn:
    """One request, and the calls that were made for it. `ok` says whether it went well."""

    session: str
    turn: str
    calls: Sequence[ObservedCall] = field(default_factory=tuple)
    ok: bool = True


def program(arguments: Mapping[str, Any]) -> str:
    """The program of a command line, with what it is to do: `git commit`."""
    line = next((value for key in _COMMANDS if isinstance(value := arguments.get(key), str)), "")
    words = line.split()[:2]
    return " ".join(word for number, word in enumerate(words) if not number or word.isalpha())


def nodes(value: Any) -> Iterator[tuple[Path, Any]]:
    """A value and everything in it, the nearer ones first."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    for at in range(_MOST_NODES):
        if at >= len(waiting):
            return
        path, item = waiting[at]
        yield path, item
        if isinstance(item, Mapping):
            waiting += [((*path, str(key)), below) for key, below in item.items()]
        elif isinstance(item, list | tuple):
            waiting += [((*path, str(number)), below) for number, below in enumerate(item)]


def key_of(value: Any) -> str | None:
    """The same text for the same value; none for what says nothing, and for what a secret was taken out of."""
    if value is None or isinstance(value, bool) or value in ("", [], {}):
        return None
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    if MARKER.search(text):
        return None
    key = ("=" if isinstance(value, str) else "#") + text
    return key if len(key) <= _LONGEST_KEY else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def _telling(keys: Iterable[str]) -> frozenset[str]:
    long = {key for key in keys if len(key) >= 7 or (key.startswith("#") and len(key) >= 5)}
    return frozenset(long.union(*(_NUMBERED.findall(key) for key in keys)))


def _first_paths(found: Mapping[Path, str]) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for path, key in found.items():
        paths.setdefault(key, path)
    return paths


def _is_word(part: str) -> bool:
    """Whether a reference can name it."""
    return part.isascii() and part.replace("_", "a").isalnum()
