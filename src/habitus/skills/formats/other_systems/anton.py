"""Anton's format in both layouts, with counters in stats.json: SKILL.md, or meta.json, declarative.md and code/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from habitus.files import Tree, TreeFile, build_tree_file
from habitus.skills import lifecycle, names, trees
from habitus.skills.formats import conversion, disk
from habitus.skills.formats.base import ImportEntry, IncomingSkill, OutgoingSkill, UnreadableEntryError
from habitus.skills.formats.foreign_values import (
    DiagnosticCollector,
    dump_json,
    format_iso_timestamp,
    pack_counters,
    parse_storable_json_object,
    parse_timestamp_field,
    to_text,
    unpack_counters,
)
from habitus.skills.formats.skill_folder import AgentSkillsFormat
from habitus.skills.model import Manifest, Severity, Skill, SkillSource, Stage
from habitus.use_counts import UsageCounts

META_FILE, STEPS_FILE, STATS_FILE, REQUIREMENTS_FILE = "meta.json", "declarative.md", "stats.json", "requirements.txt"
CODE_FOLDER, SCRIPTS_FOLDER = "code/", "scripts/"

_STAGES = {"stage_1": Stage.STEPS, "stage_2": Stage.CHUNKS, "stage_3": Stage.CODE}
_SOURCES = {"manual": SkillSource.USER, "consolidator": SkillSource.AGENT, "builtin": SkillSource.BUNDLED}
_KNOWN = {"label", "name", "description", "when_to_use", "provenance", "created_at"}
# Remembered of a skill that came as SKILL.md, so that it is exported as one.
_SKILL_MD_LAYOUT = "SKILL.md"
_PRESENCE = {f"{stage}_present" for stage in _STAGES}


class AntonFormat(disk.SkillFolderFormat):
    """Reads and writes Anton's skills."""

    name = "anton"

    def can_read(self, path: Path, inside: Set[str]) -> bool:
        if inside & set(trees.MAIN_FILES):
            return STATS_FILE in inside and _has_json_keys(path / STATS_FILE, {"total_recalls", "stage_1"})
        return STEPS_FILE in inside or (
            META_FILE in inside and _has_json_keys(path / META_FILE, {"label", "when_to_use"})
        )

    def read_entries(self, path: Path, origin: str) -> Iterator[ImportEntry]:
        if any((path / name).is_file() for name in trees.MAIN_FILES):
            yield from map(_add_anton_values, AgentSkillsFormat().read_entries(path, origin))
            return
        notes = DiagnosticCollector(origin)
        files = disk.read_folder(path, notes)
        if STEPS_FILE not in files:
            raise UnreadableEntryError(f"There is no {STEPS_FILE} in it.")
        meta = _parse_optional_json_file(files.pop(META_FILE, None), META_FILE, notes)
        stats = _parse_optional_json_file(files.pop(STATS_FILE, None), STATS_FILE, notes)
        skill = _build_skill(path.name, meta, _decode_text(files.pop(STEPS_FILE), STEPS_FILE), files, notes)
        yield IncomingSkill(
            name=skill.name,
            tree=conversion.build_imported_skill_files(
                skill, _rename_folder_in_tree(files, CODE_FOLDER, SCRIPTS_FOLDER, notes)
            ),
            origin=origin,
            format=self.name,
            counters=_parse_counters(stats, notes),
            created_on=parse_timestamp_field(meta.get("created_at"), "created_at", notes),
            diagnostics=tuple(notes.diagnostics),
            vcs_files=tuple(notes.vcs_files),
        )

    def render_skill_folder(self, item: OutgoingSkill) -> tuple[str, Tree]:
        """Return a skill in the layout that it came in; one from elsewhere in the older, which every Anton reads."""
        if conversion.get_remembered_values(item.skill, "anton").get("layout") == _SKILL_MD_LAYOUT:
            return _render_folder_in_skill_md_layout(item)
        label = conversion.get_original_name(item.skill, "anton", names.to_tool_name(item.skill.name))
        main = trees.find_main_file(item.tree)
        own = {path: file for path, file in item.tree.items() if path != main}
        files = _rename_folder_in_tree(own, SCRIPTS_FOLDER, CODE_FOLDER, DiagnosticCollector(label))
        files[META_FILE] = build_tree_file(dump_json(_build_meta(item.skill, label, files)))
        steps = conversion.get_original_body(item.skill, "anton", conversion.TEXT_FILE_FRAME)
        # A text that begins with U+FEFF gets a byte order mark, or readers would take its first character for one.
        files[STEPS_FILE] = build_tree_file(steps.encode("utf-8-sig" if steps.startswith("\ufeff") else "utf-8"))
        files[STATS_FILE] = build_tree_file(dump_json(_build_stats(item)))
        dependencies = item.skill.manifest.dependencies
        # An equal requirements.txt keeps its comments and order.
        if _read_requirements(files, DiagnosticCollector(REQUIREMENTS_FILE)) != dependencies:
            files[REQUIREMENTS_FILE] = build_tree_file("".join(f"{name}\n" for name in dependencies).encode())
        return label, files


def _has_json_keys(path: Path, keys: Set[str]) -> bool:
    """Whether a JSON file has these keys; many tools write a meta.json or stats.json, so the name says nothing."""
    try:
        return keys <= parse_storable_json_object(disk.read_file(path, limit=2**20), path.name).keys()
    except (UnreadableEntryError, OSError):
        return False


def _add_anton_values(entry: ImportEntry) -> ImportEntry:
    """Return a SKILL.md skill with Anton's title, author, date and counters, which stand in its metadata and stats."""
    if not isinstance(entry, IncomingSkill):
        return entry
    notes, skill = DiagnosticCollector(entry.origin), entry.skill
    stated = skill.metadata
    tree = {path: file for path, file in entry.tree.items() if path != STATS_FILE}
    fitted = replace(
        skill,
        title=skill.title or stated.get("display_name", ""),
        source=_SOURCES.get(stated.get("provenance", ""), skill.source),
        provenance={**skill.provenance, "format": "anton", "layout": _SKILL_MD_LAYOUT},
    )
    return replace(
        entry,
        tree=trees.update_main_file(tree, fitted),
        format="anton",
        counters=_parse_counters(_parse_optional_json_file(entry.tree.get(STATS_FILE), STATS_FILE, notes), notes),
        created_on=parse_timestamp_field(stated.get("created_at"), "created_at", notes),
        diagnostics=(*entry.diagnostics, *notes.diagnostics),
    )


def _parse_optional_json_file(file: TreeFile | None, name: str, notes: DiagnosticCollector) -> dict[str, Any]:
    """Parse a side file; without it, or if it is damaged, the skill is still imported."""
    if file is None or file.content is None:
        notes.add(f"There is no {name}.", severity=Severity.NOTE)
        return {}
    try:
        return parse_storable_json_object(file.content, name)
    except UnreadableEntryError as problem:
        notes.add(str(problem), "Its content is lost; correct it and import again.")
        return {}


def _decode_text(file: TreeFile, name: str) -> str:
    try:
        return (file.content or b"").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableEntryError(f"{name} is not UTF-8 at byte {error.start}.") from None


def _build_skill(folder: str, meta: Mapping[str, Any], steps: str, files: Tree, notes: DiagnosticCollector) -> Skill:
    label = to_text(meta.get("label")) or folder
    if names.canonicalize_name(label) != names.canonicalize_name(folder):
        notes.add(f"The label is '{label[:80]}', the folder '{folder}'; the folder counts.", f"Write '{folder}'.")
    provenance = to_text(meta.get("provenance"))
    raw = Skill(
        name=conversion.make_legal_name(folder),
        title=to_text(meta.get("name")),
        description=to_text(meta.get("description")),
        when_to_use=to_text(meta.get("when_to_use")),
        source=_SOURCES.get(provenance, SkillSource.IMPORTED),
        manifest=Manifest(dependencies=_read_requirements(files, notes)),
        body=steps,
    )
    kept = {"said": provenance, "meta": {key: value for key, value in meta.items() if key not in _KNOWN | _PRESENCE}}
    return conversion.fit_to_skill_md(
        raw, format="anton", original_name=folder, frame=conversion.TEXT_FILE_FRAME, notes=notes, remembered=kept
    )


def _read_requirements(files: Tree, notes: DiagnosticCollector) -> tuple[str, ...]:
    file = files.get(REQUIREMENTS_FILE)
    found = []
    for line in (file.content or b"" if file else b"").decode("utf-8", "replace").splitlines():
        wanted = line.partition(" #")[0].strip()
        if not wanted or wanted.startswith("#"):
            continue
        try:
            Requirement(wanted)
        except InvalidRequirement:
            notes.add(f"{REQUIREMENTS_FILE} has a line that names no package: '{wanted[:60]}'.", severity=Severity.NOTE)
        else:
            found.append(wanted)
    return tuple(found)


def _rename_folder_in_tree(files: Tree, old: str, new: str, notes: DiagnosticCollector) -> dict[str, TreeFile]:
    """Return the files with one folder renamed; a file stays if its new name is taken."""
    moved: dict[str, TreeFile] = {}
    for path, file in files.items():
        target = new + path.removeprefix(old) if path.startswith(old) else path
        if target != path and target in files:
            notes.add(f"{path} stays where it is: there is a {target} too.", severity=Severity.NOTE)
            target = path
        moved[target] = file
    return moved


def _parse_counters(stats: Mapping[str, Any], notes: DiagnosticCollector) -> dict[Stage, UsageCounts]:
    found = {}
    for key, stage in _STAGES.items():
        values = stats.get(key)
        if values is None:
            continue
        if not isinstance(values, dict):
            notes.add(f"{STATS_FILE} has a {key} that is not an object; its counters start at 0.")
            continue
        counters = unpack_counters(values, notes)
        if counters != UsageCounts():
            found[stage] = counters
    return found


def _render_folder_in_skill_md_layout(item: OutgoingSkill) -> tuple[str, Tree]:
    skill, stated = item.skill, item.skill.metadata
    unread = DiagnosticCollector(STATS_FILE)
    is_same_day = parse_timestamp_field(stated.get("created_at"), "created_at", unread) == skill.created_on
    own = {
        "display_name": skill.title,
        "provenance": stated.get("provenance", ""),
        "created_at": stated.get("created_at", "") if is_same_day else format_iso_timestamp(skill.created_on),
    }
    # The title is in Anton's own field, and the rest is only how we remember where the skill came from.
    plain = replace(
        skill,
        title="",
        source=SkillSource.USER,
        provenance={},
        metadata={**stated, **{key: value for key, value in own.items() if value}},
    )
    tree = trees.update_main_file(item.tree, plain)
    return skill.name, {**tree, STATS_FILE: build_tree_file(dump_json(_build_stats(item)))}


def _build_meta(skill: Skill, label: str, files: Tree) -> dict[str, Any]:
    memory = conversion.get_remembered_values(skill, "anton")
    said = {source: said for said, source in _SOURCES.items()}.get(skill.source, skill.source.value)
    extra = memory.get("meta")
    return {
        "label": label,
        "name": conversion.get_original_field(skill, "title", "anton"),
        "description": conversion.get_original_field(skill, "description", "anton"),
        "when_to_use": conversion.get_original_field(skill, "when_to_use", "anton"),
        "provenance": memory.get("said", "") if memory else said,
        "created_at": format_iso_timestamp(skill.created_on),
        "stage_1_present": True,
        "stage_2_present": trees.CHUNKS_FILE in files,
        "stage_3_present": any(path.startswith(CODE_FOLDER) for path in files),
        **(extra if isinstance(extra, dict) else {}),
    }


def _build_stats(item: OutgoingSkill) -> dict[str, Any]:
    stages = {
        key: {
            **pack_counters(item.get_stage_counters(stage)),
            "confidence": _compute_confidence(item.get_stage_counters(stage)),
        }
        for key, stage in _STAGES.items()
    }
    return {"total_recalls": sum(stage["recommended"] for stage in stages.values()), **stages}


def _compute_confidence(counters: UsageCounts) -> float:
    return (
        round(lifecycle.compute_success_rate_lower_bound(counters), 4) if counters.succeeded or counters.failed else 0.0
    )
