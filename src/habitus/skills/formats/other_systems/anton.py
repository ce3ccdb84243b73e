"""Anton's format: `<label>/` with meta.json, declarative.md, chunks.md, code/, requirements.txt and stats.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from habitus.files import File, Tree, file_of
from habitus.skills import lifecycle, names, trees
from habitus.skills.formats import disk, fitting
from habitus.skills.formats.base import CantTake, Entry, Format, Incoming, Outgoing, PlaybookLesson, Written
from habitus.skills.formats.foreign_values import (
    Notes,
    dump_json,
    iso,
    load_object,
    pack_counters,
    parse_timestamp_field,
    text,
    unpack_counters,
)
from habitus.skills.model import Counters, Manifest, Severity, Skill, Source, Stage

META, STEPS, STATS, REQUIREMENTS = "meta.json", "declarative.md", "stats.json", "requirements.txt"
CODE, SCRIPTS = "code/", "scripts/"

_STAGES = {"stage_1": Stage.STEPS, "stage_2": Stage.CHUNKS, "stage_3": Stage.CODE}
_SOURCES = {"manual": Source.USER, "consolidator": Source.AGENT, "builtin": Source.BUNDLED}
_KNOWN = {"label", "name", "description", "when_to_use", "provenance", "created_at"}
_PRESENCE = {f"{stage}_present" for stage in _STAGES}


class Anton(Format):
    """Reads and writes Anton's skills."""

    name = "anton"

    def claims(self, path: Path, inside: Set[str]) -> bool:
        if inside & set(trees.MAIN_FILES):
            return False
        return STEPS in inside or (META in inside and _is_meta(path / META))

    def read_one(self, path: Path, origin: str) -> Iterator[Entry]:
        notes = Notes(origin)
        files = disk.read_folder(path, notes)
        if STEPS not in files:
            raise CantTake(f"There is no {STEPS} in it.")
        meta = _object(files.pop(META, None), META, notes)
        stats = _object(files.pop(STATS, None), STATS, notes)
        skill = _skill(path.name, meta, _text(files.pop(STEPS), STEPS), files, notes)
        yield Incoming(
            name=skill.name,
            tree=fitting.folder(skill, _with_scripts(files, notes)),
            origin=origin,
            format=self.name,
            counters=_counters(stats, notes),
            created_on=parse_timestamp_field(meta.get("created_at"), "created_at", notes),
            diagnostics=tuple(notes.found),
            control=tuple(notes.control),
        )

    def write(
        self, skills: Sequence[Outgoing], to: Path, *, lessons: Sequence[PlaybookLesson] = (), overwrite: bool = False
    ) -> Written:
        return disk.write_folders(skills, to, _folder, overwrite=overwrite)


def _is_meta(path: Path) -> bool:
    try:
        # Many tools write a meta.json; these two fields are Anton's.
        return {"label", "when_to_use"} <= load_object(disk.read_file(path, limit=2**20), META).keys()
    except (CantTake, OSError):
        return False


def _object(file: File | None, name: str, notes: Notes) -> dict[str, Any]:
    """Parse a side file; without it, or if it is damaged, the skill is still imported."""
    if file is None or file.content is None:
        notes.say(f"There is no {name}.", severity=Severity.NOTE)
        return {}
    try:
        return load_object(file.content, name)
    except CantTake as problem:
        notes.say(str(problem), "What it said is lost; correct it and import again.")
        return {}


def _text(file: File, name: str) -> str:
    try:
        return (file.content or b"").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CantTake(f"{name} is not UTF-8 at byte {error.start}.") from None


def _skill(folder: str, meta: Mapping[str, Any], steps: str, files: Tree, notes: Notes) -> Skill:
    label = text(meta.get("label")) or folder
    if names.canonical(label) != names.canonical(folder):
        notes.say(f"The label is '{label[:80]}', the folder '{folder}'; the folder counts.", f"Write '{folder}'.")
    provenance = text(meta.get("provenance"))
    raw = Skill(
        name=fitting.legal_name(folder),
        title=text(meta.get("name")),
        description=text(meta.get("description")),
        when_to_use=text(meta.get("when_to_use")),
        source=_SOURCES.get(provenance, Source.IMPORTED),
        manifest=Manifest(dependencies=_requirements(files, notes)),
        body=steps,
    )
    kept = {
        "said": provenance,
        "meta": {key: value for key, value in meta.items() if key not in _KNOWN | _PRESENCE},
    }
    return fitting.fit(raw, format="anton", called=folder, frame=fitting.TEXT_FILE, notes=notes, kept=kept)


def _requirements(files: Tree, notes: Notes) -> tuple[str, ...]:
    file = files.get(REQUIREMENTS)
    found = []
    for line in (file.content or b"" if file else b"").decode("utf-8", "replace").splitlines():
        wanted = line.partition(" #")[0].strip()
        if not wanted or wanted.startswith("#"):
            continue
        try:
            Requirement(wanted)
        except InvalidRequirement:
            notes.say(f"{REQUIREMENTS} has a line that names no package: '{wanted[:60]}'.", severity=Severity.NOTE)
        else:
            found.append(wanted)
    return tuple(found)


def _with_scripts(files: Tree, notes: Notes) -> dict[str, File]:
    """Return the files with code/ moved to scripts/, as in the standard; a file stays if its new name is taken."""
    moved: dict[str, File] = {}
    for path, file in files.items():
        target = SCRIPTS + path.removeprefix(CODE) if path.startswith(CODE) else path
        if target != path and target in files:
            notes.say(f"{path} stays where it is: there is a {target} too.", severity=Severity.NOTE)
            target = path
        moved[target] = file
    return moved


def _with_code(files: Tree) -> dict[str, File]:
    moved: dict[str, File] = {}
    for path, file in files.items():
        target = CODE + path.removeprefix(SCRIPTS) if path.startswith(SCRIPTS) else path
        # A file that was kept in code/ because of a conflict must not overwrite the other one.
        moved[path if target in files else target] = file
    return moved


def _counters(stats: Mapping[str, Any], notes: Notes) -> dict[Stage, Counters]:
    found = {}
    for key, stage in _STAGES.items():
        values = stats.get(key)
        if values is None:
            continue
        if not isinstance(values, dict):
            notes.say(f"{STATS} has a {key} that is not an object; its counters start at 0.")
            continue
        counters = unpack_counters(values, notes)
        if counters != Counters():
            found[stage] = counters
    return found


def _folder(item: Outgoing) -> tuple[str, Tree]:
    label = fitting.name_there(item.skill, "anton", names.callable_name(item.skill.name))
    main = trees.main_file(item.tree)
    files = _with_code({path: file for path, file in item.tree.items() if path != main})
    files[META] = file_of(dump_json(_meta(item.skill, label, files)))
    steps = fitting.original_body(item.skill, "anton", fitting.TEXT_FILE)
    # A text that begins with U+FEFF gets a byte order mark, or readers would take its first character for one.
    files[STEPS] = file_of(steps.encode("utf-8-sig" if steps.startswith("\ufeff") else "utf-8"))
    files[STATS] = file_of(dump_json(_stats(item)))
    dependencies = item.skill.manifest.dependencies
    # An equal requirements.txt keeps its comments and order.
    if _requirements(files, Notes(REQUIREMENTS)) != dependencies:
        files[REQUIREMENTS] = file_of("".join(f"{name}\n" for name in dependencies).encode())
    return label, files


def _meta(skill: Skill, label: str, files: Tree) -> dict[str, Any]:
    memory = fitting.memory_of(skill, "anton")
    said = {source: said for said, source in _SOURCES.items()}.get(skill.source, skill.source.value)
    extra = memory.get("meta")
    return {
        "label": label,
        "name": fitting.original(skill, "title", "anton"),
        "description": fitting.original(skill, "description", "anton"),
        "when_to_use": fitting.original(skill, "when_to_use", "anton"),
        "provenance": memory.get("said", "") if memory else said,
        "created_at": iso(skill.created_on),
        "stage_1_present": True,
        "stage_2_present": trees.CHUNKS_FILE in files,
        "stage_3_present": any(path.startswith(CODE) for path in files),
        **(extra if isinstance(extra, dict) else {}),
    }


def _stats(item: Outgoing) -> dict[str, Any]:
    stages = {
        key: {**pack_counters(item.stage(stage)), "confidence": _confidence(item.stage(stage))}
        for key, stage in _STAGES.items()
    }
    return {"total_recalls": sum(stage["recommended"] for stage in stages.values()), **stages}


def _confidence(counters: Counters) -> float:
    return round(lifecycle.reliability(counters), 4) if counters.succeeded or counters.failed else 0.0
