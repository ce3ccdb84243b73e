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
from habitus.files import KEEP_BYTES, File, file_of
from habitus.skills import names, trees
from habitus.skills.formats import disk, fitting, recipes_md, tool_json
from habitus.skills.formats.base import (
    CantTake,
    Entry,
    Format,
    Incoming,
    NotTaken,
    Outgoing,
    PlaybookLesson,
    Written,
    describe_problem,
)
from habitus.skills.formats.foreign_values import (
    Notes,
    count,
    dump_json,
    load_json,
    pack_counters,
    parse_timestamp_field,
    text,
    unpack_counters,
)
from habitus.skills.formats.other_systems import ghost_json
from habitus.skills.formats.other_systems.ghost_json import ComposedSkill
from habitus.skills.formats.tool_json import ToolContract
from habitus.skills.model import Counters, Severity, Skill, Source, Stage

REGISTRY, COMPOSED, PLAYBOOK = "skills_registry.json", "composed_skills.json", "skills_playbook.json"
TOOLS_DIR, RETIRED_DIR, COMPOSED_DIR = "acquired_skills", "retired", "composed_skills"
RETIRED = "retired"

_FILES = {REGISTRY, COMPOSED, PLAYBOOK}

# Ghost degrades a tool after this many failures in a row.
_STREAK = 3
_OFF = {RETIRED, "proposed", "disabled"}
_KNOWN = {
    *("name", "description", "parameters_schema", "parameters", "usage_count", "failure_count", "status"),
    *("content_hash", "habitus", "test_payload"),
}


class Ghost(Format):
    """Reads and writes Ghost's tools, recipes and lessons."""

    name = "ghost"

    def claims(self, path: Path, inside: Set[str]) -> bool:
        if not inside:
            return path.name in _FILES and path.is_file()
        return bool(inside & _FILES) or (bool(inside & {f"{TOOLS_DIR}/", f"{COMPOSED_DIR}/"}) and any(_places(path)))

    def read_one(self, path: Path, origin: str) -> Iterator[Entry]:
        skills: dict[str, _Parts] = {}
        for place in _places(path):
            shown = origin if path.is_file() else f"{origin}/{place.relative_to(path).as_posix()}"
            if place.name == PLAYBOOK:
                yield from _lessons(place, shown)
            elif place.name == COMPOSED:
                yield from _collect(_read_composed(place, shown), skills)
            else:
                yield from _collect(_read_registry(place, shown), skills)
        for name in sorted(skills):
            try:
                yield _incoming(name, skills[name])
            except (CantTake, Invalid) as problem:
                yield NotTaken(origin=skills[name].origin, name=name, reason=str(problem))

    def write(
        self, skills: Sequence[Outgoing], to: Path, *, lessons: Sequence[PlaybookLesson] = (), overwrite: bool = False
    ) -> Written:
        export = _Export()
        for item in skills:
            export.add(item)
        files = export.files(lessons)
        with disk.export_place(to, overwrite=overwrite) as top:
            top.mkdir()
            disk.write_tree(top, {path: file_of(content) for path, content in files.items()})
        return Written(paths=tuple(to / path for path in files), left_out=tuple(export.left_out))


def _places(path: Path) -> list[Path]:
    """Return the files of the format in a directory, or the one given."""
    if path.is_file():
        return [path]
    folders = (path, path / TOOLS_DIR, path / COMPOSED_DIR)
    return [place for name in (REGISTRY, COMPOSED, PLAYBOOK) for top in folders if (place := top / name).is_file()]


@dataclass(slots=True)
class _Parts:
    """The parts of one skill, collected from several files."""

    origin: str
    notes: Notes
    tool: _ReadTool | None = None
    recipes: list[ComposedSkill] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class _ReadTool:
    """A tool as read from the registry, with its code."""

    called: str
    entry: Mapping[str, Any]
    code: bytes
    status: str
    origin: str
    notes: Notes


@dataclass(frozen=True, kw_only=True, slots=True)
class _ReadRecipe:
    """A recipe as read from composed_skills.json."""

    entry: ComposedSkill
    origin: str
    notes: Notes


def _collect(found: Iterable[_ReadTool | _ReadRecipe | NotTaken], skills: dict[str, _Parts]) -> Iterator[Entry]:
    for item in found:
        if isinstance(item, NotTaken):
            yield item
            continue
        called = item.called if isinstance(item, _ReadTool) else item.entry.skill
        name = fitting.legal_name(called)
        parts = skills.setdefault(name, _Parts(origin=item.origin, notes=item.notes))
        if isinstance(item, _ReadRecipe):
            parts.recipes.append(item.entry)
        elif parts.tool is None:
            parts.tool = item
        else:
            reason = f"{parts.tool.origin} is called '{name}' too and came first. Rename one of them."
            yield NotTaken(origin=item.origin, name=called, reason=reason)


# Tools


def _read_registry(place: Path, origin: str) -> Iterator[_ReadTool | NotTaken]:
    try:
        entries = dict(ghost_json.entries(load_json(disk.read_file(place), REGISTRY)))
    except (CantTake, OSError) as problem:
        yield NotTaken(origin=origin, name="", reason=describe_problem(problem))
        entries = {}
    top = origin.removesuffix(f"/{REGISTRY}")
    for called, entry in entries.items():
        yield _read_tool(place.parent, called, entry, top)
    yield from _without_entry(place.parent, set(entries), top)


def _read_tool(folder: Path, called: str, entry: Any, top: str) -> _ReadTool | NotTaken:
    def not_taken(reason: str) -> NotTaken:
        return NotTaken(origin=f"{top}/{REGISTRY}", name=called, reason=reason)

    if not isinstance(entry, dict):
        return not_taken("The entry is not an object.")
    if not fitting.is_one_part(called):
        return not_taken("Its name can't be that of a file.")
    for path in (folder / f"{called}.py", folder / RETIRED_DIR / f"{called}.py"):
        try:
            code = disk.read_file(path, limit=KEEP_BYTES)
        except FileNotFoundError:
            continue
        except (CantTake, OSError) as problem:
            return not_taken(describe_problem(problem))
        is_retired = path.parent.name == RETIRED_DIR
        origin = f"{top}/{path.relative_to(folder).as_posix()}"
        status = RETIRED if is_retired else text(entry.get("status")) or "active"
        return _ReadTool(called=called, entry=entry, code=code, status=status, origin=origin, notes=Notes(origin))
    return not_taken(f"There is no {called}.py for it.")


def _without_entry(folder: Path, known: set[str], top: str) -> Iterator[_ReadTool | NotTaken]:
    """Yield the Python files that the registry doesn't list: retired ones, which may have a registry of their own,
    and strays.
    """
    for path in sorted(folder.glob("*.py")):
        if path.stem not in known:
            yield NotTaken(origin=f"{top}/{path.name}", name=path.stem, reason=f"{REGISTRY} has no entry for it.")
    retired = folder / RETIRED_DIR
    try:
        entries = dict(ghost_json.entries(load_json(disk.read_file(retired / REGISTRY), REGISTRY)))
    except (CantTake, OSError):
        entries = {}
    for path in sorted(retired.glob("*.py")):
        if path.stem not in known:
            yield _read_tool(folder, path.stem, entries.get(path.stem, {}), top)


def _incoming(name: str, parts: _Parts) -> Incoming:
    notes = parts.notes
    tool, recipes = parts.tool, parts.recipes
    counters: dict[Stage, Counters] = {}
    files: dict[str, File] = {}
    if tool is not None:
        files |= _tool_files(name, tool, notes)
        counters[Stage.CODE] = _counters(tool.entry, notes)
    if recipes:
        chunks = recipes_md.render([entry.recipe for entry in recipes], title=f"Recipes of {name}")
        files[trees.CHUNKS_FILE] = file_of(chunks)
        counters[Stage.CHUNKS] = sum((entry.counters for entry in recipes), Counters())
    status = tool.status if tool else recipes[0].status
    skill = _skill(name, tool, recipes, status, notes)
    return Incoming(
        name=name,
        tree=fitting.folder(skill, files),
        origin=parts.origin,
        format="ghost",
        counters={stage: found for stage, found in counters.items() if found != Counters()},
        enabled=status not in _OFF,
        status=status,
        created_on=min((entry.created_on for entry in recipes if entry.created_on), default=None),
        diagnostics=tuple(notes.found),
    )


def _skill(name: str, tool: _ReadTool | None, recipes: Sequence[ComposedSkill], status: str, notes: Notes) -> Skill:
    called = tool.called if tool else recipes[0].skill
    description = text(tool.entry.get("description")) if tool else recipes[0].recipe.prose
    steps = [f"Call the tool `{names.callable_name(name)}` by its name."] if tool else []
    steps += [f"Run the recipe '{' '.join(entry.recipe.name.split())}' of chunks.md." for entry in recipes]
    kept: dict[str, Any] = {"status": status if status != "active" else ""}
    if tool is not None:
        stated = text(tool.entry.get("content_hash"))
        kept["content_hash"] = stated if stated != _hash(tool.code, tool.entry) else ""
        failed = count(tool.entry.get("failure_count"), "failure_count", Notes(tool.origin))
        kept["failed_in_a_row"] = failed if status == "active" and failed >= _STREAK else None
        kept["entry"] = {key: value for key, value in tool.entry.items() if key not in _KNOWN}
    kept["recipes"] = {entry.recipe.name: extra for entry in recipes if (extra := _to_keep(entry))}
    raw = Skill(name=name, description=description, source=Source.AGENT, body="\n".join(steps))
    return fitting.fit(raw, format="ghost", called=called, frame=fitting.PLAIN_TEXT, notes=notes, kept=kept)


def _to_keep(entry: ComposedSkill) -> dict[str, Any]:
    status = {"status": entry.status} if entry.status != "active" else {}
    created = {"created_at": entry.created_on.timestamp()} if entry.created_on else {}
    return {**status, **created, **entry.extra}


def _tool_files(name: str, tool: _ReadTool, notes: Notes) -> dict[str, File]:
    entry = tool.entry
    _check_hash(tool, notes)
    payload = entry.get("test_payload")
    manifest = ToolContract(
        name=names.callable_name(name),
        description=text(entry.get("description")),
        parameters=_schema(entry, notes),
        cases=() if payload is None else ({"payload": payload},),
        hash=tool_json.hash_of(tool.code),
    )
    return {
        trees.TOOL_FILE: file_of(tool_json.render(manifest)),
        trees.TOOL_CODE: file_of(tool.code),
    }


def _schema(entry: Mapping[str, Any], notes: Notes) -> Mapping[str, Any]:
    value = entry.get("parameters_schema", entry.get("parameters"))
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if isinstance(value, dict):
        return value
    notes.say("It has no schema of its parameters; it is taken to have none.", "Write them into tool.json.")
    return tool_json.NO_PARAMETERS


def _check_hash(tool: _ReadTool, notes: Notes) -> None:
    stated = text(tool.entry.get("content_hash")).lower()
    if not stated:
        notes.say("There is no hash to check the code against.", severity=Severity.NOTE)
    elif stated not in _hashes(tool.code, tool.entry):
        notes.say("The code is not what was registered: its hash differs.", "Read it, and test it again, before use.")


def _hashes(code: bytes, entry: Mapping[str, Any]) -> set[str]:
    """Return every hash that Ghost may have stored: of the code alone, or with schema and description."""
    return {
        hashlib.new(kind, content, usedforsecurity=False).hexdigest()
        # The registry doesn't say which algorithm made the hash.
        for kind in ("md5", "sha1", "sha256")
        for content in (code, _bytes_to_hash(code, entry))
    }


def _counters(entry: Mapping[str, Any], notes: Notes) -> Counters:
    """Parse the counters; Ghost counts successes, and the failures since the last success."""
    succeeded = count(entry.get("usage_count"), "usage_count", notes)
    failed = count(entry.get("failure_count"), "failure_count", notes)
    ours = entry.get("habitus")
    # Our own counters hold only if Ghost has not counted further since the export.
    if isinstance(ours, dict) and [ours.get("usage_count"), ours.get("failure_count")] == [succeeded, failed]:
        return unpack_counters(ours, notes)
    return Counters(used=succeeded + failed, succeeded=succeeded, failed=failed)


@dataclass(frozen=True, kw_only=True, slots=True)
class _WrittenTool:
    """A tool ready for export."""

    entry: Mapping[str, Any]
    code: bytes


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def _written_tool(item: Outgoing) -> _WrittenTool | None:
    manifest, code = item.tree.get(trees.TOOL_FILE), item.tree.get(trees.TOOL_CODE)
    if manifest is None or code is None or manifest.content is None or code.content is None:
        return None
    try:
        tool = tool_json.parse(manifest.content)
    except CantTake:
        return None
    skill = item.skill
    memory = fitting.memory_of(skill, "ghost")
    status = item.status or text(memory.get("status")) or "active"
    counters = item.stage(Stage.CODE)
    extra = memory.get("entry")
    entry: dict[str, Any] = {
        "name": fitting.name_there(skill, "ghost", _identifier(skill.name)),
        "description": tool.description,
        "parameters_schema": tool.parameters,
        "usage_count": counters.succeeded,
        "failure_count": _streak(counters.failed, status, memory),
        "status": status,
        **(extra if isinstance(extra, dict) else {}),
    }
    if tool.cases and "payload" in tool.cases[0]:
        entry["test_payload"] = tool.cases[0]["payload"]
    stated = text(memory.get("content_hash"))
    entry["content_hash"] = stated if stated.lower() in _hashes(code.content, entry) else _hash(code.content, entry)
    entry["habitus"] = {
        "usage_count": entry["usage_count"],
        "failure_count": entry["failure_count"],
        **pack_counters(counters),
    }
    return _WrittenTool(entry=entry, code=code.content)


def _streak(failed: int, status: str, memory: Mapping[str, Any]) -> int:
    """Limit the failure count: Ghost retires a tool for three in a row, while ours counts all failures."""
    return failed if status != "active" or memory.get("failed_in_a_row") == failed else min(failed, _STREAK - 1)


def _hash(code: bytes, entry: Mapping[str, Any]) -> str:
    return hashlib.md5(_bytes_to_hash(code, entry), usedforsecurity=False).hexdigest()


def _bytes_to_hash(code: bytes, entry: Mapping[str, Any]) -> bytes:
    schema = json.dumps(entry.get("parameters_schema"), sort_keys=True, default=str)
    return code + (schema + text(entry.get("description"))).encode()


def _identifier(name: str) -> str:
    spelt = names.callable_name(name)
    return spelt if _IDENTIFIER.fullmatch(spelt) else f"_{spelt}"[:64]


class _Export:
    """Collects the files of an export."""

    def __init__(self) -> None:
        self.tools: dict[str, _WrittenTool] = {}
        self.recipes: dict[str, Mapping[str, Any]] = {}
        self.left_out: list[NotTaken] = []

    def add(self, item: Outgoing) -> None:
        """Add the tool and recipes of a skill; a skill with neither, or with a taken name, is skipped."""
        tool, recipes = _written_tool(item), _written_recipes(item)
        if tool is None and not recipes:
            self._leave_out(item, "It has neither a tool nor a recipe; this layout has no place for prose.")
        if tool is not None and self.tools.setdefault(tool.entry["name"], tool) is not tool:
            self._leave_out(item, f"There is another tool '{tool.entry['name']}'.")
        for recipe in recipes:
            if self.recipes.setdefault(recipe["name"], recipe) is not recipe:
                self._leave_out(item, f"There is another recipe '{recipe['name']}'.")

    def _leave_out(self, item: Outgoing, reason: str) -> None:
        self.left_out.append(NotTaken(origin=item.skill.layer, name=item.skill.name, reason=reason))

    def files(self, lessons: Sequence[PlaybookLesson]) -> dict[str, bytes]:
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
            files[PLAYBOOK] = dump_json(ghost_json.write_lessons(lessons))
        return files


# Recipes and lessons


def _read_composed(place: Path, origin: str) -> Iterator[_ReadRecipe | NotTaken]:
    try:
        entries = ghost_json.entries(load_json(disk.read_file(place), COMPOSED))
    except (CantTake, OSError) as problem:
        yield NotTaken(origin=origin, name="", reason=describe_problem(problem))
        return
    for name, value in entries:
        notes = Notes(f"{origin}: {name}")
        try:
            yield _ReadRecipe(entry=ghost_json.read_composed(name, value, notes), origin=origin, notes=notes)
        except CantTake as problem:
            yield NotTaken(origin=origin, name=name, reason=str(problem))


def _written_recipes(item: Outgoing) -> list[dict[str, Any]]:
    file = item.tree.get(trees.CHUNKS_FILE)
    notes = Notes(trees.CHUNKS_FILE)
    recipes = recipes_md.parse(file.content, notes) if file and file.content else []
    memory = fitting.memory_of(item.skill, "ghost")
    remembered = memory.get("recipes")
    skill = fitting.name_there(item.skill, "ghost", _identifier(item.skill.name))
    written = []
    for number, recipe in enumerate(recipes):
        known = remembered.get(recipe.name) if isinstance(remembered, dict) else None
        extra = dict(known) if isinstance(known, dict) else {}
        entry = ComposedSkill(
            recipe=recipe,
            skill=skill,
            status=item.status or text(extra.pop("status", "")) or "active",
            # A skill counts its recipes together, so the first one carries the counts.
            counters=item.stage(Stage.CHUNKS) if number == 0 else Counters(),
            created_on=parse_timestamp_field(extra.pop("created_at", None), "created_at", notes)
            or item.skill.created_on,
            extra=extra,
        )
        written.append(ghost_json.write_entry(entry))
    return written


def _lessons(place: Path, origin: str) -> Iterator[Entry]:
    try:
        yield from ghost_json.read_playbook(load_json(disk.read_file(place), PLAYBOOK), origin)
    except (CantTake, OSError) as problem:
        yield NotTaken(origin=origin, name="", reason=describe_problem(problem))
