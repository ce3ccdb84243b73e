"""Ghost's format: skills_registry.json with one Python file per tool, composed_skills.json, skills_playbook.json."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from habitus.errors import Invalid
from habitus.files import MAX_KEPT_BYTES, TreeFile, build_tree_file
from habitus.skills import names, trees
from habitus.skills.formats import conversion, disk, recipes_md, tool_json
from habitus.skills.formats.base import (
    FormatExportResult,
    ImportEntry,
    IncomingSkill,
    OutgoingSkill,
    PlaybookLesson,
    SkillFormat,
    SkippedEntry,
    UnreadableEntryError,
    describe_read_error,
)
from habitus.skills.formats.foreign_values import (
    DiagnosticCollector,
    dump_json,
    pack_counters,
    parse_count,
    parse_storable_json,
    parse_timestamp_field,
    to_text,
    unpack_counters,
)
from habitus.skills.formats.other_systems import ghost_json
from habitus.skills.formats.other_systems.ghost_json import GhostComposedSkill
from habitus.skills.formats.tool_json import ToolContract
from habitus.skills.model import Severity, Skill, SkillSource, Stage
from habitus.use_counts import UsageCounts

REGISTRY, COMPOSED, PLAYBOOK = "skills_registry.json", "composed_skills.json", "skills_playbook.json"
TOOLS_DIR, RETIRED_DIR, COMPOSED_DIR = "acquired_skills", "retired", "composed_skills"
RETIRED = "retired"

_FILES = {REGISTRY, COMPOSED, PLAYBOOK}

# Ghost degrades a tool after this many failures in a row.
_DEGRADED_AFTER = 3
_DISABLED_STATUSES = {RETIRED, "proposed", "disabled"}
_KNOWN_KEYS = {
    *("name", "description", "parameters_schema", "parameters", "usage_count", "failure_count", "status"),
    *("content_hash", "habitus", "test_payload"),
}


class GhostFormat(SkillFormat):
    """Reads and writes Ghost's tools, recipes and lessons."""

    name = "ghost"

    def can_read(self, path: Path, names: Set[str]) -> bool:
        if not names:
            return path.name in _FILES and path.is_file()
        return bool(names & _FILES) or (
            bool(names & {f"{TOOLS_DIR}/", f"{COMPOSED_DIR}/"}) and any(_find_ghost_files(path))
        )

    def read_entries(self, path: Path, origin: str) -> Iterator[ImportEntry]:
        skills: dict[str, _GhostSkillParts] = {}
        for place in _find_ghost_files(path):
            shown = origin if path.is_file() else f"{origin}/{place.relative_to(path).as_posix()}"
            try:
                values = parse_storable_json(disk.read_file(place), place.name)
                entries = [] if place.name == PLAYBOOK else ghost_json.list_named_entries(values)
            except (UnreadableEntryError, OSError) as problem:
                yield SkippedEntry(origin=shown, name="", reason=describe_read_error(problem))
                values, entries = [], []
            if place.name == PLAYBOOK:
                yield from ghost_json.parse_playbook(values, shown)
            elif place.name == COMPOSED:
                yield from _collect_parts_and_yield_skipped(_parse_composed_skills(entries, shown), skills)
            else:
                yield from _collect_parts_and_yield_skipped(
                    _read_registry_tools(place.parent, dict(entries), shown), skills
                )
        for name in sorted(skills):
            try:
                yield _build_incoming_skill(name, skills[name])
            except (UnreadableEntryError, Invalid) as problem:
                yield SkippedEntry(origin=skills[name].origin, name=name, reason=str(problem))

    def write_skills(
        self,
        skills: Sequence[OutgoingSkill],
        to: Path,
        *,
        lessons: Sequence[PlaybookLesson] = (),
        overwrite: bool = False,
    ) -> FormatExportResult:
        export = _GhostExportBuilder()
        for item in skills:
            export.add_skill(item)
        files = export.render_files(lessons)
        with disk.open_atomic_export_path(to, overwrite=overwrite) as top:
            top.mkdir()
            disk.write_tree(top, {path: build_tree_file(content) for path, content in files.items()})
        paths, left_out = tuple(to / path for path in files), tuple(export.left_out)
        return FormatExportResult(paths=paths, left_out=left_out, lessons=len(lessons))


def _find_ghost_files(path: Path) -> list[Path]:
    """Return the files of the format in a directory, or the one given."""
    if path.is_file():
        return [path]
    folders = (path, path / TOOLS_DIR, path / COMPOSED_DIR)
    return [place for name in (REGISTRY, COMPOSED, PLAYBOOK) for top in folders if (place := top / name).is_file()]


@dataclass(slots=True)
class _GhostSkillParts:
    """The parts of one skill, collected from several files."""

    origin: str
    notes: DiagnosticCollector
    tool: _GhostTool | None = None
    recipes: list[GhostComposedSkill] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class _GhostTool:
    """A tool as read from the registry, with its code."""

    original_name: str
    entry: Mapping[str, Any]
    code: bytes
    status: str
    origin: str
    notes: DiagnosticCollector


@dataclass(frozen=True, kw_only=True, slots=True)
class _GhostRecipe:
    """A recipe as read from composed_skills.json."""

    entry: GhostComposedSkill
    origin: str
    notes: DiagnosticCollector


def _collect_parts_and_yield_skipped(
    found: Iterable[_GhostTool | _GhostRecipe | SkippedEntry], skills: dict[str, _GhostSkillParts]
) -> Iterator[ImportEntry]:
    for item in found:
        if isinstance(item, SkippedEntry):
            yield item
            continue
        called = item.original_name if isinstance(item, _GhostTool) else item.entry.skill
        name = conversion.make_legal_name(called)
        parts = skills.setdefault(name, _GhostSkillParts(origin=item.origin, notes=item.notes))
        if isinstance(item, _GhostRecipe):
            parts.recipes.append(item.entry)
        elif parts.tool is None:
            parts.tool = item
        else:
            reason = f"{parts.tool.origin} is called '{name}' too and came first. Rename one of them."
            yield SkippedEntry(origin=item.origin, name=called, reason=reason)


# Tools


def _read_registry_tools(folder: Path, entries: Mapping[str, Any], origin: str) -> Iterator[_GhostTool | SkippedEntry]:
    top = origin.removesuffix(f"/{REGISTRY}")
    for called, entry in entries.items():
        yield _read_tool(folder, called, entry, top)
    yield from _read_unregistered_tools(folder, set(entries), top)


def _read_tool(folder: Path, called: str, entry: Any, top: str) -> _GhostTool | SkippedEntry:
    def not_taken(reason: str) -> SkippedEntry:
        return SkippedEntry(origin=f"{top}/{REGISTRY}", name=called, reason=reason)

    if not isinstance(entry, dict):
        return not_taken("The entry is not an object.")
    if not conversion.is_safe_file_name(called):
        return not_taken("Its name can't be that of a file.")
    for path in (folder / f"{called}.py", folder / RETIRED_DIR / f"{called}.py"):
        try:
            code = disk.read_file(path, limit=MAX_KEPT_BYTES)
        except FileNotFoundError:
            continue
        except (UnreadableEntryError, OSError) as problem:
            return not_taken(describe_read_error(problem))
        is_retired = path.parent.name == RETIRED_DIR
        origin = f"{top}/{path.relative_to(folder).as_posix()}"
        status = RETIRED if is_retired else to_text(entry.get("status")) or "active"
        return _GhostTool(
            original_name=called,
            entry=entry,
            code=code,
            status=status,
            origin=origin,
            notes=DiagnosticCollector(origin),
        )
    return not_taken(f"There is no {called}.py for it.")


def _read_unregistered_tools(folder: Path, known: set[str], top: str) -> Iterator[_GhostTool | SkippedEntry]:
    """Yield the Python files that the registry doesn't list: retired ones, which may have a registry of their own,
    and strays.
    """
    for path in sorted(folder.glob("*.py")):
        if path.stem not in known:
            yield SkippedEntry(origin=f"{top}/{path.name}", name=path.stem, reason=f"{REGISTRY} has no entry for it.")
    retired = folder / RETIRED_DIR
    try:
        entries = dict(ghost_json.list_named_entries(parse_storable_json(disk.read_file(retired / REGISTRY), REGISTRY)))
    except (UnreadableEntryError, OSError):
        entries = {}
    for path in sorted(retired.glob("*.py")):
        if path.stem not in known:
            yield _read_tool(folder, path.stem, entries.get(path.stem, {}), top)


def _build_incoming_skill(name: str, parts: _GhostSkillParts) -> IncomingSkill:
    notes = parts.notes
    tool, recipes = parts.tool, parts.recipes
    counters: dict[Stage, UsageCounts] = {}
    files: dict[str, TreeFile] = {}
    if tool is not None:
        files |= _build_tool_files(name, tool, notes)
        counters[Stage.CODE] = _parse_counters(tool.entry, notes)
    if recipes:
        chunks = recipes_md.render_recipes([entry.recipe for entry in recipes], title=f"Recipes of {name}")
        files[trees.CHUNKS_FILE] = build_tree_file(chunks)
        counters[Stage.CHUNKS] = sum((entry.counters for entry in recipes), UsageCounts())
    status = tool.status if tool else recipes[0].status
    skill = _build_skill(name, tool, recipes, status, notes)
    return IncomingSkill(
        name=name,
        tree=conversion.build_imported_skill_files(skill, files),
        origin=parts.origin,
        format="ghost",
        counters={stage: found for stage, found in counters.items() if found != UsageCounts()},
        enabled=status not in _DISABLED_STATUSES,
        status=status,
        created_on=min((entry.created_on for entry in recipes if entry.created_on), default=None),
        diagnostics=tuple(notes.diagnostics),
    )


def _build_skill(
    name: str, tool: _GhostTool | None, recipes: Sequence[GhostComposedSkill], status: str, notes: DiagnosticCollector
) -> Skill:
    called = tool.original_name if tool else recipes[0].skill
    description = to_text(tool.entry.get("description")) if tool else recipes[0].recipe.prose
    steps = [f"Call the tool `{names.to_tool_name(name)}` by its name."] if tool else []
    steps += [f"Run the recipe '{' '.join(entry.recipe.name.split())}' of chunks.md." for entry in recipes]
    kept: dict[str, Any] = {"status": status if status != "active" else ""}
    if tool is not None:
        stated = to_text(tool.entry.get("content_hash"))
        kept["content_hash"] = stated if stated != _compute_code_hash(tool.code, tool.entry) else ""
        failed = parse_count(tool.entry.get("failure_count"), "failure_count", DiagnosticCollector(tool.origin))
        kept["failed_in_a_row"] = failed if status == "active" and failed >= _DEGRADED_AFTER else None
        kept["entry"] = {key: value for key, value in tool.entry.items() if key not in _KNOWN_KEYS}
    kept["recipes"] = {
        entry.recipe.name: extra for entry in recipes if (extra := _collect_recipe_values_to_remember(entry))
    }
    raw = Skill(name=name, description=description, source=SkillSource.AGENT, body="\n".join(steps))
    return conversion.fit_to_skill_md(
        raw, format="ghost", original_name=called, frame=conversion.PLAIN_TEXT_FRAME, notes=notes, remembered=kept
    )


def _collect_recipe_values_to_remember(entry: GhostComposedSkill) -> dict[str, Any]:
    status = {"status": entry.status} if entry.status != "active" else {}
    created = {"created_at": entry.created_on.timestamp()} if entry.created_on else {}
    return {**status, **created, **entry.extra}


def _build_tool_files(name: str, tool: _GhostTool, notes: DiagnosticCollector) -> dict[str, TreeFile]:
    entry = tool.entry
    _report_code_hash_mismatch(tool, notes)
    payload = entry.get("test_payload")
    manifest = ToolContract(
        name=names.to_tool_name(name),
        description=to_text(entry.get("description")),
        parameters=_get_parameters_schema(entry, notes),
        cases=() if payload is None else ({"payload": payload},),
        hash=tool_json.hash_code(tool.code),
    )
    return {
        trees.TOOL_FILE: build_tree_file(tool_json.render_tool_json(manifest)),
        trees.TOOL_CODE: build_tree_file(tool.code),
    }


def _get_parameters_schema(entry: Mapping[str, Any], notes: DiagnosticCollector) -> Mapping[str, Any]:
    value = entry.get("parameters_schema", entry.get("parameters"))
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if isinstance(value, dict):
        return value
    notes.add("It has no schema of its parameters; none are assumed.", "Write them into tool.json.")
    return tool_json.NO_PARAMETERS


def _report_code_hash_mismatch(tool: _GhostTool, notes: DiagnosticCollector) -> None:
    stated = to_text(tool.entry.get("content_hash")).lower()
    if not stated:
        notes.add("There is no hash to check the code against.", severity=Severity.NOTE)
    elif stated not in _compute_possible_hashes(tool.code, tool.entry):
        notes.add("The code is not what was registered: its hash differs.", "Read it, and test it again, before use.")


def _compute_possible_hashes(code: bytes, entry: Mapping[str, Any]) -> set[str]:
    """Return every hash that Ghost may have stored: of the code alone, or with schema and description."""
    return {
        hashlib.new(kind, content, usedforsecurity=False).hexdigest()
        # The registry doesn't say which algorithm made the hash.
        for kind in ("md5", "sha1", "sha256")
        for content in (code, _build_hash_input(code, entry))
    }


def _parse_counters(entry: Mapping[str, Any], notes: DiagnosticCollector) -> UsageCounts:
    """Parse the counters; Ghost counts successes, and the failures since the last success."""
    succeeded = parse_count(entry.get("usage_count"), "usage_count", notes)
    failed = parse_count(entry.get("failure_count"), "failure_count", notes)
    ours = entry.get("habitus")
    # Our own counters hold only if Ghost has not counted further since the export.
    if isinstance(ours, dict) and [ours.get("usage_count"), ours.get("failure_count")] == [succeeded, failed]:
        return unpack_counters(ours, notes)
    return UsageCounts(used=succeeded + failed, succeeded=succeeded, failed=failed)


@dataclass(frozen=True, kw_only=True, slots=True)
class _GhostToolExport:
    """A tool ready for export."""

    entry: Mapping[str, Any]
    code: bytes


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def _build_tool_export(item: OutgoingSkill) -> _GhostToolExport | None:
    manifest, code = item.tree.get(trees.TOOL_FILE), item.tree.get(trees.TOOL_CODE)
    if manifest is None or code is None or manifest.content is None or code.content is None:
        return None
    try:
        tool = tool_json.parse_tool_json(manifest.content)
    except UnreadableEntryError:
        return None
    skill = item.skill
    memory = conversion.get_remembered_values(skill, "ghost")
    status = item.status or to_text(memory.get("status")) or "active"
    counters = item.get_stage_counters(Stage.CODE)
    extra = memory.get("entry")
    entry: dict[str, Any] = {
        "name": conversion.get_original_name(skill, "ghost", _make_identifier(skill.name)),
        "description": tool.description,
        "parameters_schema": tool.parameters,
        "usage_count": counters.succeeded,
        "failure_count": _limit_failure_count(counters.failed, status, memory),
        "status": status,
        **(extra if isinstance(extra, dict) else {}),
    }
    if tool.cases and "payload" in tool.cases[0]:
        entry["test_payload"] = tool.cases[0]["payload"]
    stated = to_text(memory.get("content_hash"))
    entry["content_hash"] = (
        stated
        if stated.lower() in _compute_possible_hashes(code.content, entry)
        else _compute_code_hash(code.content, entry)
    )
    entry["habitus"] = {
        "usage_count": entry["usage_count"],
        "failure_count": entry["failure_count"],
        **pack_counters(counters),
    }
    return _GhostToolExport(entry=entry, code=code.content)


def _limit_failure_count(failed: int, status: str, memory: Mapping[str, Any]) -> int:
    """Limit the failure count: Ghost retires a tool for three in a row, while ours counts all failures."""
    return failed if status != "active" or memory.get("failed_in_a_row") == failed else min(failed, _DEGRADED_AFTER - 1)


def _compute_code_hash(code: bytes, entry: Mapping[str, Any]) -> str:
    return hashlib.md5(_build_hash_input(code, entry), usedforsecurity=False).hexdigest()


def _build_hash_input(code: bytes, entry: Mapping[str, Any]) -> bytes:
    schema = json.dumps(entry.get("parameters_schema"), sort_keys=True, default=str)
    return code + (schema + to_text(entry.get("description"))).encode()


def _make_identifier(name: str) -> str:
    spelt = names.to_tool_name(name)
    return spelt if _IDENTIFIER.fullmatch(spelt) else f"_{spelt}"[:64]


class _GhostExportBuilder:
    """Collects the files of an export."""

    def __init__(self) -> None:
        self.tools: dict[str, _GhostToolExport] = {}
        self.recipes: dict[str, Mapping[str, Any]] = {}
        self.left_out: list[SkippedEntry] = []

    def add_skill(self, item: OutgoingSkill) -> None:
        """Add the tool and recipes of a skill; a skill with neither, or with a taken name, is skipped."""
        tool, recipes = _build_tool_export(item), _build_composed_skill_entries(item)
        if tool is None and not recipes:
            self._record_left_out_part(item, "It has neither a tool nor a recipe; this layout has no place for prose.")
        if tool is not None and self.tools.setdefault(tool.entry["name"], tool) is not tool:
            self._record_left_out_part(item, f"There is another tool '{tool.entry['name']}'.")
        for recipe in recipes:
            if self.recipes.setdefault(recipe["name"], recipe) is not recipe:
                self._record_left_out_part(item, f"There is another recipe '{recipe['name']}'.")

    def _record_left_out_part(self, item: OutgoingSkill, reason: str) -> None:
        self.left_out.append(SkippedEntry(origin=item.skill.layer, name=item.skill.name, reason=reason))

    def render_files(self, lessons: Sequence[PlaybookLesson]) -> dict[str, bytes]:
        """Return the files of the export by path."""
        files: dict[str, bytes] = {}
        for place, is_retired in ((TOOLS_DIR, False), (f"{TOOLS_DIR}/{RETIRED_DIR}", True)):
            found = {name: tool for name, tool in self.tools.items() if (tool.entry["status"] == RETIRED) == is_retired}
            files |= {f"{place}/{name}.py": tool.code for name, tool in found.items()}
            # The main registry is always written, because reading recognises the directory by it.
            if found or not is_retired:
                files[f"{place}/{REGISTRY}"] = dump_json({name: tool.entry for name, tool in found.items()})
        if self.recipes:
            files[f"{COMPOSED_DIR}/{COMPOSED}"] = dump_json(self.recipes)
        if lessons:
            files[PLAYBOOK] = dump_json([ghost_json.render_lesson(lesson) for lesson in lessons])
        return files


# Recipes


def _parse_composed_skills(entries: Iterable[tuple[str, Any]], origin: str) -> Iterator[_GhostRecipe | SkippedEntry]:
    for name, value in entries:
        notes = DiagnosticCollector(f"{origin}: {name}")
        try:
            yield _GhostRecipe(entry=ghost_json.parse_composed_skill(name, value, notes), origin=origin, notes=notes)
        except UnreadableEntryError as problem:
            yield SkippedEntry(origin=origin, name=name, reason=str(problem))


def _build_composed_skill_entries(item: OutgoingSkill) -> list[dict[str, Any]]:
    file = item.tree.get(trees.CHUNKS_FILE)
    notes = DiagnosticCollector(trees.CHUNKS_FILE)
    recipes = recipes_md.parse_recipes(file.content, notes) if file and file.content else []
    memory = conversion.get_remembered_values(item.skill, "ghost")
    remembered = memory.get("recipes")
    skill = conversion.get_original_name(item.skill, "ghost", _make_identifier(item.skill.name))
    written = []
    for number, recipe in enumerate(recipes):
        known = remembered.get(recipe.name) if isinstance(remembered, dict) else None
        extra = dict(known) if isinstance(known, dict) else {}
        entry = GhostComposedSkill(
            recipe=recipe,
            skill=skill,
            status=item.status or to_text(extra.pop("status", "")) or "active",
            # A skill counts its recipes together, so the first one carries the counts.
            counters=item.get_stage_counters(Stage.CHUNKS) if number == 0 else UsageCounts(),
            created_on=parse_timestamp_field(extra.pop("created_at", None), "created_at", notes)
            or item.skill.created_on,
            extra=extra,
        )
        written.append(ghost_json.render_composed_skill(entry))
    return written
