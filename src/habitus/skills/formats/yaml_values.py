"""A bounded YAML reader: texts, lists and mappings built from the parser's events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from habitus.plain_data import MAX_DEPTH, height
from habitus.skills.model import Diagnostic, Unreadable


def load(front: str, diagnostics: list[Diagnostic]) -> Any:
    """Return the value of a YAML text, with every scalar as text; oddities are added to `diagnostics`, without a file
    name.
    """
    builder = _Builder(front)
    try:
        value = builder.document()
    except (yaml.YAMLError, ValueError) as error:
        raise _unreadable(error) from None
    diagnostics += [
        Diagnostic(file="", what=f"The field '{key[:80]}' stands twice; the last one counts.", hint="Remove one.")
        for key in builder.repeated
    ]
    return value


# The C parser is several times faster, where PyYAML was built with it.
_LOADER = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
_MAX_VALUES = 10_000


class _Builder:
    """Builds values from parser events. Tags are ignored; nesting and aliases are bounded before they exhaust stack
    or memory.
    """

    def __init__(self, front: str) -> None:
        self.repeated: list[str] = []
        self._events = yaml.parse(front, Loader=_LOADER)
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        # A long text may have many values honestly; the bound only has to stop aliases from multiplying them.
        self._most = max(_MAX_VALUES, len(front))

    def document(self) -> Any:
        """Return the value of the only document; raise if there is a second one."""
        next(self._events)  # the stream starts
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(next(self._events), 0)
        next(self._events)  # the document ends
        another = next(self._events)
        if not isinstance(another, yaml.StreamEndEvent):
            raise _refusal("a second document begins here", another)
        return value

    def _value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._repeated_value(event, depth)
        if depth > MAX_DEPTH:
            raise _refusal(f"values are nested more than {MAX_DEPTH} deep", event)
        before = self._count
        self._count += 1
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = list(self._items(depth))
        else:
            value = self._mapping(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._count - before
        return value

    def _repeated_value(self, event: Any, depth: int) -> Any:
        if event.anchor not in self._anchors:
            raise _refusal(f"nothing before this is called '&{event.anchor}'", event)
        value, count = self._anchors[event.anchor]
        # An alias counts as much as the value it repeats, so nested aliases can't grow exponentially.
        self._count += count
        if self._count > self._most or depth + height(value) > MAX_DEPTH:
            raise _refusal("aliases repeat too much", event)
        return value

    def _items(self, depth: int) -> Iterator[Any]:
        while not isinstance(event := next(self._events), yaml.CollectionEndEvent):
            yield self._value(event, depth + 1)

    def _mapping(self, depth: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        items = self._items(depth)
        for key in items:
            name = key if isinstance(key, str) else json.dumps(key)
            if name in fields:
                self.repeated.append(name)
            fields[name] = next(items)
        return fields


def _refusal(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _unreadable(error: Exception) -> Unreadable:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    where = f" (line {mark.line + 2})" if mark is not None else ""
    hint = "Quote the value on that line, or correct its indentation."
    return Unreadable(f"The frontmatter is not valid YAML{where}: {problem}.", hint)
