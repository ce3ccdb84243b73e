"""Istota's format: `<name>/skill.md` with its manifest in the frontmatter or skill.toml and Python modules beside it;
or the older form, `<name>.md` files with all manifests in `_index.toml`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from habitus.files import Tree, TreeFile, build_tree_file
from habitus.skills import names, trees
from habitus.skills.formats import conversion, disk, frontmatter, frontmatter_fields, skill_md
from habitus.skills.formats.base import (
    ImportEntry,
    IncomingSkill,
    OutgoingSkill,
    SkippedEntry,
    UnreadableEntryError,
    describe_read_error,
)
from habitus.skills.formats.foreign_values import DiagnosticCollector
from habitus.skills.model import DEFAULT_MANIFEST, Manifest, Severity, Skill, SkillSource
from habitus.skills.trees import CLI_CODE, TOML_FILE

MAIN_FILE, CHANGELOG_FILE, INDEX_FILE = "skill.md", "CHANGELOG.md", "_index.toml"
MODULE_FILE, RUNNER_FILE = "__init__.py", "__main__.py"

_HABITUS_ONLY_FIELDS = {
    "extends",
    "placeholders",
    "disable_model_invocation",
    "user_invocable",
    "unreadable",
    "paths",
    "requires_tools",
}
# An older name of our triggers, and the field that is still spelt this way.
_OLD_TRIGGERS, _CAPABILITY = "keywords", "requires_capability"
MANIFEST_FIELDS = tuple(field.name for field in dataclasses.fields(Manifest) if field.name not in _HABITUS_ONLY_FIELDS)
_HEAD_BYTES = 16 * 1024
# A directory is judged by some of its neighbours; reading all of a large one would be slow.
_MAX_NEIGHBOURS = 50


class IstotaFormat(disk.SkillFolderFormat):
    """Reads and writes Istota's skills."""

    name = "istota"

    def can_read(self, path: Path, inside: Set[str]) -> bool:
        if INDEX_FILE in inside:
            return any(name.endswith(".md") for name in inside)
        if "SKILL.md" in inside or not inside & {MAIN_FILE, TOML_FILE}:
            return False
        return _is_istota_folder(path) or (
            MAIN_FILE in inside and any(_is_istota_folder(place) for place in _list_sibling_folders(path))
        )

    def read_entries(self, path: Path, origin: str) -> Iterator[ImportEntry]:
        if (path / INDEX_FILE).is_file():
            yield from _read_indexed_skills(path, origin)
            return
        notes = DiagnosticCollector(origin)
        files = disk.read_folder(path, notes)
        main, toml = files.pop(MAIN_FILE, None), files.pop(TOML_FILE, None)
        yield _build_incoming_skill(path, path.name, main, toml, files, origin, notes)

    def render_skill_folder(self, item: OutgoingSkill) -> tuple[str, Tree]:
        folder = conversion.get_original_name(item.skill, "istota", names.to_tool_name(item.skill.name))
        main = trees.find_main_file(item.tree)
        files = {path: file for path, file in item.tree.items() if path not in (main, TOML_FILE)}
        cli = files.get(CLI_CODE)
        # Our own shim is generated again on import, so the export leaves it out.
        if cli is not None and cli.content == _render_shim(files, folder):
            del files[CLI_CODE]
        elif cli is not None and item.skill.manifest.cli and MODULE_FILE not in files:
            files[MODULE_FILE] = replace(cli, executable=False)
            files.setdefault(RUNNER_FILE, build_tree_file(b"import sys\n\nfrom . import main\n\nsys.exit(main())\n"))
        fields = _build_istota_fields(item.skill, folder)
        memory = conversion.get_remembered_values(item.skill, "istota").get("toml")
        in_toml = _split_off_toml_fields(fields, item.skill.manifest, memory) if isinstance(memory, list) else {}
        if in_toml:
            files[TOML_FILE] = build_tree_file(_render_toml(in_toml).encode())
        body = conversion.get_original_body(item.skill, "istota", conversion.TEXT_FILE_FRAME)
        front = "".join(f"{_quote_key_if_needed(key)}: {_format_yaml_value(value)}\n" for key, value in fields.items())
        files[MAIN_FILE] = build_tree_file((f"---\n{front}---\n{body}" if fields else body).encode())
        return folder, files


def _read_indexed_skills(path: Path, origin: str) -> Iterator[ImportEntry]:
    """Read the oldest form: one file per skill, and all manifests in one index."""
    try:
        index = tomllib.loads(disk.read_file(path / INDEX_FILE, limit=2**20).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableEntryError(f"{INDEX_FILE} is not valid TOML: {error}.") from None
    for name, fields in index.items():
        here = f"{origin}/{name}.md"
        try:
            if not isinstance(fields, dict) or not conversion.is_safe_file_name(name):
                raise UnreadableEntryError(
                    f"Its entry in {INDEX_FILE} is not a table of fields, or no file can have its name."
                )
            main = build_tree_file(disk.read_file(path / f"{name}.md", limit=frontmatter_fields.MAX_BYTES))
            toml = build_tree_file(_render_toml(fields).encode("utf-8", "replace"))
            yield _build_incoming_skill(path / name, name, main, toml, {}, here, DiagnosticCollector(here))
        except (UnreadableEntryError, OSError) as problem:
            yield SkippedEntry(origin=here, name=name, reason=describe_read_error(problem))


def _build_incoming_skill(
    path: Path,
    original_name: str,
    main: TreeFile | None,
    toml: TreeFile | None,
    files: Tree,
    origin: str,
    notes: DiagnosticCollector,
) -> IncomingSkill:
    parsed = skill_md.parse_skill_md_with_diagnostics(
        original_name,
        main.content or b"" if main else b"",
        file=f"{origin}/{MAIN_FILE if main else TOML_FILE}",
        toml=toml.content if toml else None,
    )
    if parsed.skill is None:
        raise UnreadableEntryError("; ".join(f"{one.message} {one.hint}" for one in parsed.diagnostics[-1:]))
    skill = _fit_skill_to_skill_md(parsed.skill, original_name, toml, notes)
    return IncomingSkill(
        name=skill.name,
        tree=conversion.build_imported_skill_files(
            skill, _add_cli_shim(files, original_name, notes) if skill.manifest.cli else files
        ),
        origin=origin,
        format="istota",
        changelog=_find_changelog_lines(path.parent / CHANGELOG_FILE, original_name),
        # Notes are about the standard, which the rewritten file follows.
        diagnostics=(*(d for d in parsed.diagnostics if d.severity is not Severity.NOTE), *notes.diagnostics),
        vcs_files=tuple(notes.vcs_files),
    )


def _is_istota_folder(path: Path) -> bool:
    """Whether a directory shows the format by itself, not only through its neighbours."""
    if (path / TOML_FILE).is_file():
        return True
    if not (path / MAIN_FILE).is_file():
        return False
    if (path / MODULE_FILE).is_file() or (path / RUNNER_FILE).is_file():
        return True
    try:
        with (path / MAIN_FILE).open("rb") as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", "replace").partition("\n---")[0]
    except OSError:
        return False
    known = "|".join((*MANIFEST_FIELDS, _OLD_TRIGGERS, _CAPABILITY))
    return re.search(rf"^({known})[ \t]*:", head, re.MULTILINE) is not None


def _list_sibling_folders(path: Path) -> list[Path]:
    return [place for place in sorted(path.parent.iterdir())[:_MAX_NEIGHBOURS] if place != path and place.is_dir()]


def _fit_skill_to_skill_md(skill: Skill, folder: str, toml: TreeFile | None, notes: DiagnosticCollector) -> Skill:
    raw = replace(skill, source=SkillSource.IMPORTED, manifest=replace(skill.manifest, placeholders=True))
    kept = {"toml": _list_toml_keys(toml)}
    return conversion.fit_to_skill_md(
        raw, format="istota", original_name=folder, frame=conversion.PLAIN_TEXT_FRAME, notes=notes, remembered=kept
    )


def _list_toml_keys(toml: TreeFile | None) -> list[str]:
    if toml is None:
        return []
    values = tomllib.loads((toml.content or b"").decode())
    section = values.get("skill", values)
    return sorted(section) if isinstance(section, dict) else []


def _find_changelog_lines(path: Path, folder: str) -> tuple[str, ...]:
    """Return the lines of the collection's changelog that name this skill."""
    try:
        content = disk.read_file(path, limit=2**20).decode("utf-8", "replace")
    except (OSError, UnreadableEntryError):
        return ()
    spelt = re.escape(folder).replace("_", "[-_ ]").replace(r"\-", "[-_ ]")
    pattern = re.compile(rf"(?<![\w-]){spelt}(?![\w-])", re.IGNORECASE)
    return tuple(line.strip() for line in content.splitlines() if pattern.search(line))


# The modules stay where they are; scripts/cli.py runs them as the package they were written as.
_SHIM = '''"""The command line of this skill: its modules run as the package they were written as."""

import importlib.util
import sys
from pathlib import Path

NAME = {package}
TOP = Path(__file__).resolve().parent.parent


def load(module, file):
    spec = importlib.util.spec_from_file_location(module, TOP / file, submodule_search_locations=[str(TOP)])
    loaded = sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


{load}

if __name__ == "__main__":
    sys.exit({run})
'''
_LOAD_MODULE = """package = load(NAME, "__init__.py")
build_parser = getattr(package, "build_parser", None)
main = package.main"""
_LOAD_RUNNER = """def main():
    import runpy

    {prepare}
    runpy.run_path(str(TOP / "__main__.py"), run_name="__main__")"""


def _add_cli_shim(files: Tree, folder: str, notes: DiagnosticCollector) -> dict[str, TreeFile]:
    shim = _render_shim(files, folder)
    if CLI_CODE in files or shim is None:
        if CLI_CODE not in files:
            notes.add("The manifest says 'cli: true', and there is no Python module for it.", "Add scripts/cli.py.")
        return dict(files)
    missing = _find_imports_outside_package(files, folder)
    if missing:
        notes.add(f"Its command line imports {', '.join(missing)}, which did not come along.", "Rewrite those imports.")
    return {**files, CLI_CODE: build_tree_file(shim)}


def _render_shim(files: Tree, folder: str) -> bytes | None:
    module, runner = _decode_source(files.get(MODULE_FILE)), _decode_source(files.get(RUNNER_FILE))
    package = json.dumps(f"istota.skills.{folder}")
    if module is not None and re.search(r"^(?:async )?def main\b|^from .* import .*\bmain\b", module, re.MULTILINE):
        return _SHIM.format(package=package, load=_LOAD_MODULE, run="main()").encode()
    if runner is not None:
        prepare = 'load(NAME, "__init__.py")' if module is not None else "sys.path.insert(0, str(TOP))"
        return _SHIM.format(package=package, load=_LOAD_RUNNER.format(prepare=prepare), run="main()").encode()
    return None


def _decode_source(file: TreeFile | None) -> str | None:
    return None if file is None or file.content is None else file.content.decode("utf-8", "replace")


def _find_imports_outside_package(files: Tree, folder: str) -> list[str]:
    own = f"istota.skills.{folder}"
    found: set[str] = set()
    for path, file in files.items():
        if path.endswith(".py"):
            found |= set(re.findall(r"^\s*(?:from|import)\s+(istota[\w.]*)", _decode_source(file) or "", re.MULTILINE))
            found |= set(re.findall(r"^\s*from\s+(\.\.[\w.]*)\s+import", _decode_source(file) or "", re.MULTILINE))
    return sorted(name for name in found if name != own and not name.startswith(own + "."))


# Writing


def _split_off_toml_fields(fields: dict[str, Any], manifest: Manifest, keys: list[str]) -> dict[str, Any]:
    """Remove and return the fields that skill.toml used to state, including explicit defaults."""
    usual = {key: getattr(manifest, key) for key in keys if key in MANIFEST_FIELDS and key not in fields}
    return {key: fields.pop(key, usual.get(key)) for key in keys if key in fields or key in usual}


def _build_istota_fields(skill: Skill, folder: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": folder,
        "description": conversion.get_original_field(skill, "description", "istota"),
    }
    own = {
        "title": conversion.get_original_field(skill, "title", "istota"),
        "when_to_use": conversion.get_original_field(skill, "when_to_use", "istota"),
        "tags": list(conversion.get_original_field(skill, "tags", "istota")),
        "license": skill.license,
        "compatibility": skill.compatibility,
        "allowed-tools": skill.allowed_tools,
    }
    fields |= {key: value for key, value in own.items() if value}
    for name in MANIFEST_FIELDS:
        value = getattr(skill.manifest, name)
        if value != getattr(DEFAULT_MANIFEST, name):
            fields[name] = list(value) if isinstance(value, tuple) else value
    if skill.manifest.requires_tools:
        fields[_CAPABILITY] = list(skill.manifest.requires_tools)
    if skill.metadata:
        fields["metadata"] = dict(skill.metadata)
    return fields | {key: value for key, value in skill.extra.items() if key not in fields}


_BARE = re.compile(r"[A-Za-z0-9_.][\w./ +-]*")


def _quote_key_if_needed(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_][\w.-]*", key) and key.isascii() else frontmatter.quote_value(key)


def _format_yaml_value(value: Any) -> str:
    """Render a value on one line as Istota does: plain words, lists in brackets, objects as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return f"[{', '.join(_format_bare_or_quoted(item) for item in value)}]"
    if isinstance(value, str):
        return _format_bare_or_quoted(value) if value else '""'
    return frontmatter.quote_value(value)


def _format_bare_or_quoted(text: str) -> str:
    is_bare = _BARE.fullmatch(text) and text.isascii() and text == text.strip() and "---" not in text
    return text if is_bare else frontmatter.quote_value(text)


def _render_toml(fields: Mapping[str, Any]) -> str:
    return "".join(f"{_format_toml_key(key)} = {_format_toml_value(value)}\n" for key, value in fields.items())


def _format_toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _format_toml_value(key)


def _format_toml_value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{', '.join(_format_toml_value(item) for item in value)}]"
        case dict():
            return (
                "{"
                + ", ".join(f"{_format_toml_key(key)} = {_format_toml_value(item)}" for key, item in value.items())
                + "}"
            )
        case int() | float():
            return json.dumps(value)
        case None:
            return '""'
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
