"""Turns repeated calls into one recipe, which must replay on the calls it came from.

Arguments that never vary become literals, values of earlier arguments or results become references, and the rest become
parameters. Text that varies in part keeps the rest: `sales-${month}.csv`. Redacted text never becomes a literal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from habitus.recipes.execution import (
    RecipePlan,
    compile_recipe_into_plan,
    format_value_as_text_or_json,
    look_up_value_at_path,
    parse_step_result,
    replace_references_with_values,
)
from habitus.recipes.sequences import ComparableToolCall, Path, compute_comparison_key_of_value
from habitus.redact import MARKER
from habitus.skills.formats import recipes_md
from habitus.skills.formats.foreign_values import DiagnosticCollector
from habitus.skills.formats.recipes_md import Recipe
from habitus.text import clean_to_one_line

# One call for each step.
Calls = Sequence[ComparableToolCall]
# A longer list is compared as a whole.
_MAX_LIST_ITEMS = 20
# Shorter values would be found in any text by chance.
_MIN_PART_CHARACTERS = 3
_MAX_EXAMPLE_CHARACTERS = 40
_TOKEN = re.compile(r"\ue000\d+\ue001|\d+(?:[-:./T]\d+)*|[^\W\d_]+|.", re.DOTALL)
_SHAPES = {"date": r"\d{4}-\d\d-\d\d", "month": r"\d{4}-(?:0\d|1[012])", "version": r"\d+\.\d+\.\d+"}
_MARK = re.compile(r"\ue000(\d+)\ue001")


@dataclass(frozen=True, kw_only=True, slots=True)
class AlignedRecipe:
    """A recipe with the parameter values of each occurrence, and the number of its known arguments and parameters."""

    recipe: Recipe
    occurrence_params: tuple[Mapping[str, Any], ...]
    # Arguments that are literals or references.
    known_count: int
    # Parameters.
    parameter_count: int


def align_occurrences_into_recipe(name: str, occurrences: Sequence[Calls]) -> AlignedRecipe:
    """Align occurrences, each with one call per step, into the recipe they have in common."""
    alignment = _RecipeAligner(occurrences)
    steps = [alignment.build_step(number) for number in range(len(occurrences[0]))]
    for number, saved in alignment.saved.items():
        steps[number]["save_as"] = saved
    params = {name: _describe_parameter_values(values) for name, values in alignment.params.items()}
    return AlignedRecipe(
        recipe=Recipe(name=name, steps=tuple(steps), params=params),
        occurrence_params=tuple(
            {name: values[member] for name, values in alignment.params.items()} for member in range(len(occurrences))
        ),
        known_count=alignment.known,
        parameter_count=len(alignment.params),
    )


def can_recipe_replay_calls(recipe: Recipe, params: Mapping[str, Any], calls: Calls) -> bool:
    """Return whether the recipe, written and parsed again, makes exactly these calls."""
    made, is_sound = _render_and_recompile_recipe(recipe)
    if not is_sound or len(made.steps) != len(calls) or set(params) != {one.name for one in made.parameters}:
        return False
    values = dict(params)
    for step, call in zip(made.steps, calls, strict=True):
        if step.tool != call.name or _to_json(replace_references_with_values(step.params, values)) != _to_json(
            call.arguments
        ):
            return False
        if step.save_as:
            values[step.save_as] = parse_step_result(call.result)
    return True


def _render_and_recompile_recipe(recipe: Recipe) -> tuple[RecipePlan, bool]:
    notes = DiagnosticCollector("chunks.md")
    read = recipes_md.parse_recipes(recipes_md.render_recipes([recipe]), notes)
    if len(read) != 1 or notes.diagnostics:
        return RecipePlan(name=recipe.name, description=""), False
    made, problems = compile_recipe_into_plan(read[0])
    return made, not problems


def _to_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


class _RecipeAligner:
    def __init__(self, occurrences: Sequence[Calls]) -> None:
        self._occurrences = occurrences
        self._results = [[parse_step_result(call.result) for call in calls] for calls in occurrences]
        self.params: dict[str, list[Any]] = {}
        # Step number → name of its saved result.
        self.saved: dict[int, str] = {}
        self.known = 0

    def build_step(self, number: int) -> dict[str, Any]:
        calls = [calls[number] for calls in self._occurrences]
        given = {
            key: self._choose_literal_reference_or_parameter(number, (key,), [call.arguments[key] for call in calls])
            for key in calls[0].arguments
        }
        return {"tool": calls[0].name, **({"params": given} if given else {})}

    def _choose_literal_reference_or_parameter(self, step: int, path: Path, values: Sequence[Any]) -> Any:
        """Return the literal, reference or parameter for these values, one of each occurrence."""
        has_secret = any(isinstance(value, str) and MARKER.search(value) for value in values)
        if has_secret:
            return self._add_parameter_and_return_reference(step, path, values)
        if len({_to_json(value) for value in values}) == 1 and not MARKER.search(_to_json(values[0])):
            self.known += 1
            return _escape_references(values[0])
        if reference := self._find_reference_to_earlier_value(step, values):
            self.known += 1
            return reference
        first = values[0]
        if isinstance(first, Mapping) and all(isinstance(v, Mapping) and v.keys() == first.keys() for v in values):
            return {
                key: self._choose_literal_reference_or_parameter(
                    step, (*path, str(key)), [value[key] for value in values]
                )
                for key in first
            }
        if _are_short_lists_of_one_length(values):
            items = enumerate(zip(*values, strict=True))
            return [
                self._choose_literal_reference_or_parameter(step, (*path, str(number)), item) for number, item in items
            ]
        if all(isinstance(value, str) for value in values):
            return self._build_template_of_varying_texts(step, path, values)
        return self._add_parameter_and_return_reference(step, path, values)

    def _find_reference_to_earlier_value(self, step: int, values: Sequence[Any]) -> str:
        """Return a reference to an earlier argument or result with the same value in every occurrence; empty if
        none.
        """
        keys = [compute_comparison_key_of_value(value) for value in values]
        if None in keys:
            return ""
        for name, known in self.params.items():
            if keys == [compute_comparison_key_of_value(value) for value in known]:
                return f"${name}"
        # The latest result is the most likely source.
        for earlier in reversed(range(step)):
            path = self._occurrences[0][earlier].result_path_by_value.get(str(keys[0]))
            if path is not None and all(
                compute_comparison_key_of_value(look_up_value_at_path(results[earlier], path)[0]) == key
                for results, key in zip(self._results, keys, strict=True)
            ):
                return self._build_result_reference(earlier, path)
        return ""

    def _build_result_reference(self, step: int, path: Path) -> str:
        if step not in self.saved:
            self.saved[step] = self._choose_free_name(_make_identifier(self._occurrences[0][step].name), str(step + 1))
        name = self.saved[step]
        return f"${{{'.'.join((name, *path))}}}" if path else f"${name}"

    def _add_parameter_and_return_reference(self, step: int, path: Path, values: Sequence[Any]) -> str:
        by_key = next((word for part in reversed(path) if not (word := _make_identifier(part)).isdigit()), "value")
        named = next((name for name, shape in _SHAPES.items() if _all_match_pattern(values, shape)), by_key)
        name = self._choose_free_name(named, _make_identifier(self._occurrences[0][step].name))
        self.params[name] = list(values)
        return f"${{{name}}}"

    def _choose_free_name(self, name: str, more: str) -> str:
        taken = {*self.params, *self.saved.values()}
        wished = [name, f"{name}_{more}", *(f"{name}_{number}" for number in range(2, len(taken) + 4))]
        return next(one for one in wished if one not in taken)

    def _build_template_of_varying_texts(self, step: int, path: Path, values: Sequence[str]) -> str:
        """Return varying texts as one text: known values as references, and the varying middle as one parameter."""
        # Private-use characters mark references below, so such a text can't be marked.
        if any("\ue000" in value for value in values):
            return self._add_parameter_and_return_reference(step, path, values)
        marked, references = self._replace_known_parts_with_marks(step, values)
        start, end = _find_common_beginning_and_end([_TOKEN.findall(text) for text in marked])
        middles = [text[len(start) : len(text) - len(end)] for text in marked]
        has_words = references or re.search(r"\w\w", _MARK.sub("", start + end))
        if any(middles) and (not has_words or any("\ue000" in middle for middle in middles)):
            return self._add_parameter_and_return_reference(step, path, values)
        self.known += 1
        middle = ""
        if any(middles):
            middle = self._find_reference_to_earlier_value(step, middles) or self._add_parameter_and_return_reference(
                step, path, middles
            )
            middle = middle if middle.startswith("${") else f"${{{middle[1:]}}}"
        used = {int(found) for found in _MARK.findall(start + end)}
        names = {at: self._build_result_reference(*references[at]) for at in used if isinstance(references[at], tuple)}

        def put(match: re.Match[str]) -> str:
            at = int(match[1])
            name = names.get(at) or f"${references[at]}"
            return name if name.startswith("${") else f"${{{name[1:]}}}"

        return _MARK.sub(put, _escape_references(start)) + middle + _MARK.sub(put, _escape_references(end))

    def _replace_known_parts_with_marks(
        self, step: int, values: Sequence[str]
    ) -> tuple[list[str], list[str | tuple[int, Path]]]:
        """Replace parts that equal the same parameter or result in all texts with marks."""
        known: list[tuple[str | tuple[int, Path], list[str]]] = [
            (name, [format_value_as_text_or_json(value) for value in one]) for name, one in self.params.items()
        ]
        for earlier in reversed(range(step)):
            for path in self._occurrences[0][earlier].result_path_by_value.values():
                parts = [look_up_value_at_path(results[earlier], path)[0] for results in self._results]
                if all(isinstance(part, str | int | float) and not isinstance(part, bool) for part in parts):
                    known.append(((earlier, path), [format_value_as_text_or_json(part) for part in parts]))
        texts = list(values)
        references: list[str | tuple[int, Path]] = []
        # Longest first, because a short value may be part of a longer one.
        for reference, parts in sorted(known, key=lambda one: -min(map(len, one[1]))):
            is_long = all(len(part) >= _MIN_PART_CHARACTERS and not MARKER.search(part) for part in parts)
            if is_long and len(set(parts)) > 1 and all(part in text for part, text in zip(parts, texts, strict=True)):
                mark = f"\ue000{len(references)}\ue001"
                texts = [text.replace(part, mark) for part, text in zip(parts, texts, strict=True)]
                references.append(reference)
        return texts, references


def _find_common_beginning_and_end(texts: Sequence[Sequence[str]]) -> tuple[str, str]:
    """Return the common beginning and end in whole words, numbers and dates; the two never overlap."""
    shortest = min(map(len, texts))
    start = 0
    while start < shortest and len({text[start] for text in texts}) == 1:
        start += 1
    end = 0
    while end < shortest - start and len({text[-1 - end] for text in texts}) == 1:
        end += 1
    first = texts[0]
    return "".join(first[:start]), "".join(first[len(first) - end :])


def _escape_references(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, Mapping):
        return {key: _escape_references(item) for key, item in value.items()}
    return [_escape_references(item) for item in value] if isinstance(value, list | tuple) else value


def _are_short_lists_of_one_length(values: Sequence[Any]) -> bool:
    """Return whether all values are short lists of one length."""
    lengths = {len(value) if isinstance(value, list) else -1 for value in values}
    return len(lengths) == 1 and 0 <= lengths.pop() <= _MAX_LIST_ITEMS


def _all_match_pattern(values: Sequence[Any], shape: str) -> bool:
    return all(isinstance(value, str) and re.fullmatch(shape, value) for value in values)


def _make_identifier(text: str) -> str:
    """Turn a text into a name that a reference can use."""
    word = re.sub(r"\W+|_+", "_", text, flags=re.ASCII).strip("_").lower()
    return f"_{word}" if word[:1].isdigit() and not word.isdigit() else word or "value"


_TYPES = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def _describe_parameter_values(values: Sequence[Any]) -> Any:
    """Describe a parameter by an example or two, and its type if it is not text."""
    if any(MARKER.search(_to_json(value)) for value in values):
        return "A secret, which nobody wrote down"
    shown = dict.fromkeys(clean_to_one_line(format_value_as_text_or_json(value)) for value in values)
    examples = [text for text in shown if 0 < len(text) <= _MAX_EXAMPLE_CHARACTERS][:2]
    means = f"For example {', '.join(examples)}" if examples else "It differs every time"
    if all(isinstance(value, str) for value in values):
        return means
    kinds = {_TYPES.get(type(value), "") for value in values}
    kinds = {"number"} if kinds == {"integer", "number"} else kinds
    return {**({"type": kinds.pop()} if len(kinds) == 1 and "" not in kinds else {}), "description": means}
