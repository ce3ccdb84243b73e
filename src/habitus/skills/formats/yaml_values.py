"""A bounded YAML reader: texts, lists and mappings built from the parser's events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from habitus.plain_data import MAX_DEPTH, measure_nesting_depth
from habitus.skills.model import Diagnostic, MalformedFileError


def load_yaml_with_text_scalars(front: str, diagnostics: list[Diagnostic]) -> Any:
    """Return the value of a YAML text, with every scalar as text; oddities are added to `diagnostics`, without a file
    name.
    """
    builder = _YamlValueBuilder(front)
    try:
        value = builder.build_document()
    except (yaml.YAMLError, ValueError) as error:
        raise _make_malformed_yaml_error(error) from None
    diagnostics += [
        Diagnostic(file="", message=f"The field '{key[:80]}' appears twice; the last one is used.", hint="Remove one.")
        for key in builder.repeated
    ]
    return value


# The C parser is several times faster, where PyYAML was built with it.
_LOADER = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
_MAX_VALUES = 10_000


class _YamlValueBuilder:
    """Builds values from parser events. Tags are ignored; nesting and aliases are bounded before they exhaust stack
    or memory.
    """

    def __init__(self, front: str) -> None:
        self.repeated: list[str] = []
        self._events = yaml.parse(front, Loader=_LOADER)
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        # A long text may have many values honestly; the bound only has to stop aliases from multiplying them.
        self._max_values = max(_MAX_VALUES, len(front))

    def build_document(self) -> Any:
        """Return the value of the only document; raise if there is a second one."""
        next(self._events)  # the stream starts
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._build_value(next(self._events), 0)
        next(self._events)  # the document ends
        another = next(self._events)
        if not isinstance(another, yaml.StreamEndEvent):
            raise _make_yaml_error_at_event("a second document begins here", another)
        return value

    def _build_value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._resolve_alias(event, depth)
        if depth > MAX_DEPTH:
            raise _make_yaml_error_at_event(f"values are nested more than {MAX_DEPTH} deep", event)
        before = self._count
        self._count += 1
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = list(self._build_sequence_items(depth))
        else:
            value = self._build_mapping(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._count - before
        return value

    def _resolve_alias(self, event: Any, depth: int) -> Any:
        if event.anchor not in self._anchors:
            raise _make_yaml_error_at_event(f"nothing before this is called '&{event.anchor}'", event)
        value, count = self._anchors[event.anchor]
        # An alias counts as much as the value it repeats, so nested aliases can't grow exponentially.
        self._count += count
        if self._count > self._max_values or depth + measure_nesting_depth(value) > MAX_DEPTH:
            raise _make_yaml_error_at_event("aliases repeat too much", event)
        return value

    def _build_sequence_items(self, depth: int) -> Iterator[Any]:
        while not isinstance(event := next(self._events), yaml.CollectionEndEvent):
            yield self._build_value(event, depth + 1)

    def _build_mapping(self, depth: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        items = self._build_sequence_items(depth)
        for key in items:
            name = key if isinstance(key, str) else json.dumps(key)
            if name in fields:
                self.repeated.append(name)
            fields[name] = next(items)
        return fields


def _make_yaml_error_at_event(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _make_malformed_yaml_error(error: Exception) -> MalformedFileError:
    mark, opened = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    if "unexpected end of stream" in problem and opened is not None:
        # What is never closed is found at the end; the mistake is where it was opened.
        mark, problem = opened, "a quotation mark or bracket is opened there and never closed"
    where = f" (line {mark.line + 2})" if mark is not None else ""
    hint = (
        "Close it there."
        if mark is opened and mark is not None
        else "Quote the value on that line, or correct its indentation."
    )
    return MalformedFileError(f"The frontmatter is not valid YAML{where}: {problem}.", hint)
