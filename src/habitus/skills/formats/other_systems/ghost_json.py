"""Two JSON files of Ghost's format: composed_skills.json (sequences of tool calls) to and from recipes, and
skills_playbook.json (lessons of self-play) in its older and newer spelling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from habitus.skills.formats.base import PlaybookLesson, SkippedEntry, UnreadableEntryError
from habitus.skills.formats.foreign_values import (
    DiagnosticCollector,
    format_iso_timestamp,
    pack_counters,
    parse_count,
    parse_flag,
    parse_fraction,
    parse_text_list,
    parse_timestamp_field,
    to_text,
    unpack_counters,
)
from habitus.skills.formats.recipes_md import Recipe, RecipeStep, list_referenced_variable_names
from habitus.skills.model import Severity
from habitus.use_counts import UsageCounts

# Our field → the source's spellings; the first one is written.
_STEP_SPELLINGS = {
    "tool": ("tool_name", "tool", "name", "action"),
    "description": ("description", "desc"),
    "params": ("param_template", "params", "parameters", "args", "arguments"),
    "save_as": ("save_as", "output_var"),
    "when": ("when", "condition"),
    "on_fail": ("on_fail", "on_error"),
    "optional": ("optional",),
}
_KNOWN_STEP_KEYS = {spelling for spellings in _STEP_SPELLINGS.values() for spelling in spellings}
_FAILURE_WORDS = {"error", "errors", "fail", "failed", "failure", "exception"}
_KNOWN_OF_COMPOSED = {
    *("name", "trigger_description", "description", "steps", "branches", "execution_mode", "status", "usage_count"),
    *("success_count", "success_rate", "last_used", "created_at", "habitus"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class GhostComposedSkill:
    """One entry: a recipe and its counters."""

    recipe: Recipe
    skill: str  # the name of its skill
    status: str = "active"
    counters: UsageCounts = field(default_factory=UsageCounts)
    created_on: datetime | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def list_named_entries(values: Any) -> list[tuple[str, Any]]:
    """Return (name, entry) pairs of a file that is an object by name, or a list."""
    if isinstance(values, dict) and isinstance(values.get("skills"), (dict, list)):
        values = values["skills"]
    if isinstance(values, dict):
        return list(values.items())
    if isinstance(values, list):
        return [(to_text(value.get("name")) if isinstance(value, dict) else "", value) for value in values]
    raise UnreadableEntryError("It holds no entries.")


def parse_composed_skill(name: str, value: Any, notes: DiagnosticCollector) -> GhostComposedSkill:
    """Parse one entry; raise `UnreadableEntryError` if it has no name or no steps."""
    if not isinstance(value, dict):
        raise UnreadableEntryError("The entry is not an object.")
    name = name or to_text(value.get("name"))
    if not name.strip():
        raise UnreadableEntryError("The entry has no name.")
    branches = value.get("branches") or {}
    if not isinstance(branches, dict):
        raise UnreadableEntryError("Its branches are no object.")
    mode, ours = to_text(value.get("execution_mode")), value.get("habitus")
    steps = _parse_steps(value.get("steps"), notes)
    if not steps:
        raise UnreadableEntryError("It has no steps.")
    sides = {branch: _parse_steps(steps, notes) for branch, steps in branches.items()}
    recipe = Recipe(
        name=name,
        prose=to_text(value.get("trigger_description") or value.get("description")),
        steps=steps,
        branches=sides,
        params=_derive_recipe_params([*steps, *(step for side in sides.values() for step in side)], ours),
        mode="" if mode == "sequential" else mode,
    )
    return GhostComposedSkill(
        recipe=recipe,
        skill=to_text(ours.get("skill")) if isinstance(ours, dict) and ours.get("skill") else name,
        status=to_text(value.get("status")) or "active",
        counters=_parse_counters(value, ours, notes),
        created_on=parse_timestamp_field(value.get("created_at"), "created_at", notes),
        extra={key: item for key, item in value.items() if key not in _KNOWN_OF_COMPOSED},
    )


def render_composed_skill(entry: GhostComposedSkill) -> dict[str, Any]:
    """Render one entry as Ghost reads it."""
    recipe, counters = entry.recipe, entry.counters
    used, succeeded = counters.used, min(counters.succeeded, counters.used)
    return {
        "name": recipe.name,
        "trigger_description": recipe.prose,
        "steps": [_render_step(step) for step in recipe.steps],
        "branches": {name: [_render_step(step) for step in steps] for name, steps in recipe.branches.items()},
        "execution_mode": recipe.mode or "sequential",
        "status": entry.status,
        "usage_count": used,
        "success_count": succeeded,
        "success_rate": succeeded / used if used else 0.0,
        "last_used": counters.last_used.timestamp() if counters.last_used else 0.0,
        "created_at": entry.created_on.timestamp() if entry.created_on else 0.0,
        **entry.extra,
        # Ghost derives parameters from the steps; their types and defaults would be lost.
        "habitus": {"skill": entry.skill, "params": dict(recipe.params), **pack_counters(counters)},
    }


def _derive_recipe_params(steps: Sequence[RecipeStep], ours: Any) -> dict[str, Any]:
    """Return the parameters: every `$name` in a step that no step saves, described as we exported it if we did."""
    saved = {to_text(step.get("save_as")) for step in steps}
    used = dict.fromkeys(name for step in steps for name in sorted(list_referenced_variable_names(step.get("params"))))
    known = ours.get("params") if isinstance(ours, dict) else None
    stated = known if isinstance(known, dict) else {}
    # No type: Ghost puts in whatever value it is given.
    return {**stated, **{name: {} for name in used if name not in saved and name not in stated}}


def _parse_counters(value: Mapping[str, Any], ours: Any, notes: DiagnosticCollector) -> UsageCounts:
    used = parse_count(value.get("usage_count"), "usage_count", notes)
    succeeded = min(parse_count(value.get("success_count"), "success_count", notes), used)
    last_used = parse_timestamp_field(value.get("last_used"), "last_used", notes)
    if isinstance(ours, dict):
        # Our own counters are more detailed; they hold as long as the source has not counted further.
        mine = unpack_counters(ours, notes)
        if (mine.used, min(mine.succeeded, mine.used)) == (used, succeeded):
            return mine
    return UsageCounts(used=used, succeeded=succeeded, failed=used - succeeded, last_used=last_used)


def _parse_steps(value: Any, notes: DiagnosticCollector) -> tuple[RecipeStep, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise UnreadableEntryError("Its steps are no list.")
    return tuple(_parse_step(number, step, notes) for number, step in enumerate(value, 1))


def _parse_step(number: int, value: Any, notes: DiagnosticCollector) -> RecipeStep:
    if isinstance(value, str):
        value = {"tool": value}
    if not isinstance(value, dict):
        raise UnreadableEntryError(f"Step {number} is not an object.")
    step: dict[str, Any] = {}
    for ours, spellings in _STEP_SPELLINGS.items():
        found = next((value[key] for key in spellings if value.get(key) not in (None, "")), None)
        if found is not None:
            step[ours] = found
    if not isinstance(step.get("tool"), str):
        raise UnreadableEntryError(f"Step {number} names no tool.")
    rest = {key: item for key, item in value.items() if key not in _KNOWN_STEP_KEYS}
    condition, target = to_text(rest.get("branch_condition")), rest.get("branch_target")
    if condition.lower() in _FAILURE_WORDS and target and "on_fail" not in step:
        step["on_fail"] = target
        del rest["branch_condition"], rest["branch_target"]
    elif condition:
        notes.add(
            f"Step {number} branches when the result says '{condition[:40]}'; results are not read for words here.",
            "Write a 'when' on an outcome or a saved value.",
            Severity.WARNING,
        )
    return {**step, **rest}


def _render_step(step: RecipeStep) -> dict[str, Any]:
    written = {_STEP_SPELLINGS[key][0] if key in _STEP_SPELLINGS else key: value for key, value in step.items()}
    written.setdefault("description", "")
    written.setdefault("param_template", {})
    target = written.get("on_fail")
    if isinstance(target, str) and "branch_condition" not in written:
        del written["on_fail"]
        written |= {"branch_condition": "error", "branch_target": target}
    return written


# Our field → the source's spellings.
_LESSON_SPELLINGS = {
    "trigger": ("trigger", "task"),
    "anti_pattern": ("anti_pattern", "mistake"),
    "correct_pattern": ("correct_pattern", "solution"),
    "helpful": ("helpful_retrievals", "helpful"),
    "last_retrieved": ("last_retrieved_at", "last_retrieved"),
    "created_on": ("timestamp", "created_at"),
}
_PLAIN_LESSON_KEYS = ("domains", "confidence", "source", "source_challenge_hash", "frequency", "retrievals", "verified")
_KNOWN_OF_LESSON = {*_PLAIN_LESSON_KEYS, *chain.from_iterable(_LESSON_SPELLINGS.values())}


def parse_playbook(values: Any, origin: str) -> Iterator[PlaybookLesson | SkippedEntry]:
    """Yield the lessons of a playbook; invalid ones are skipped with the reason."""
    if isinstance(values, dict):
        values = next((found for key in ("lessons", "playbook") if isinstance(found := values.get(key), list)), None)
    if not isinstance(values, list):
        yield SkippedEntry(origin=origin, name="", reason="It holds no list of lessons.")
        return
    for number, value in enumerate(values, 1):
        yield _parse_lesson(value, f"{origin}, lesson {number}")


def _parse_lesson(value: Any, origin: str) -> PlaybookLesson | SkippedEntry:
    if not isinstance(value, dict):
        return SkippedEntry(origin=origin, name="", reason="It is not an object.")
    trigger, fix = (
        to_text(_get_by_any_spelling(value, "trigger")),
        to_text(_get_by_any_spelling(value, "correct_pattern")),
    )
    if not trigger.strip() or not fix.strip():
        missing = "when it applies (trigger)" if not trigger.strip() else "what to do (correct_pattern)"
        return SkippedEntry(origin=origin, name=trigger[:60], reason=f"It does not say {missing}.")
    notes = DiagnosticCollector(origin)
    return PlaybookLesson(
        origin=origin,
        trigger=trigger,
        anti_pattern=to_text(_get_by_any_spelling(value, "anti_pattern")),
        correct_pattern=fix,
        domains=parse_text_list(value.get("domains"), "domains", notes),
        confidence=parse_fraction(value.get("confidence"), "confidence", notes, 0.5),
        source=to_text(value.get("source")),
        source_challenge_hash=to_text(value.get("source_challenge_hash")),
        frequency=parse_count(value.get("frequency"), "frequency", notes, 1),
        retrievals=parse_count(value.get("retrievals"), "retrievals", notes),
        helpful=parse_count(_get_by_any_spelling(value, "helpful"), "helpful", notes),
        last_retrieved=parse_timestamp_field(_get_by_any_spelling(value, "last_retrieved"), "last_retrieved", notes),
        verified=parse_flag(value.get("verified"), "verified", notes, False),
        created_on=parse_timestamp_field(_get_by_any_spelling(value, "created_on"), "created_on", notes),
        extra={key: item for key, item in value.items() if key not in _KNOWN_OF_LESSON},
    )


def _get_by_any_spelling(value: Mapping[str, Any], field: str) -> Any:
    return next((found for key in _LESSON_SPELLINGS[field] if (found := value.get(key)) not in (None, "")), None)


def render_lesson(lesson: PlaybookLesson) -> dict[str, Any]:
    """Return the lesson as Ghost reads it."""
    plain = {key: getattr(lesson, key) for key in _PLAIN_LESSON_KEYS}
    # Older readers know only the other spellings, so every one is written.
    spelled = {key: getattr(lesson, field) for field, keys in _LESSON_SPELLINGS.items() for key in keys}
    told = {**plain, **spelled, **lesson.extra}
    return {key: format_iso_timestamp(value) if isinstance(value, datetime) else value for key, value in told.items()}
