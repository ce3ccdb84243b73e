"""Istota's format: `<name>/skill.md` with its manifest in the frontmatter or skill.toml and Python modules beside it;
or the older form, `<name>.md` files with all manifests in `_index.toml`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from habitus.files import File, Tree, file_of
from habitus.skills import names, trees
from habitus.skills.formats import disk, fitting, frontmatter, frontmatter_fields, skill_md
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
from habitus.skills.formats.foreign_values import Notes
from habitus.skills.model import PLAIN_MANIFEST, Manifest, Severity, Skill, Source
from habitus.skills.trees import CLI_CODE, TOML_FILE

MAIN, CHANGELOG, INDEX = "skill.md", "CHANGELOG.md", "_index.toml"
MODULE, RUNNER = "__init__.py", "__main__.py"

_OURS = {
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
MANIFEST = tuple(field.name for field in dataclasses.fields(Manifest) if field.name not in _OURS)
_HEAD = 16 * 1024
# A directory is judged by some of its neighbours; reading all of a large one would be slow.
_NEIGHBOURS = 50


class Istota(Format):
    """Reads and writes Istota's skills."""

    name = "istota"

    def claims(self, path: Path, inside: Set[str]) -> bool:
        if INDEX in inside:
            return any(name.endswith(".md") for name in inside)
        if "SKILL.md" in inside or not inside & {MAIN, TOML_FILE}:
            return False
        return _is_own(path) or (MAIN in inside and any(_is_own(place) for place in _neighbours(path)))

    def read_one(self, path: Path, origin: str) -> Iterator[Entry]:
        if (path / INDEX).is_file():
            yield from _from_index(path, origin)
            return
        notes = Notes(origin)
        files = disk.read_folder(path, notes)
        main, toml = files.pop(MAIN, None), files.pop(TOML_FILE, None)
        yield _take_skill(path, path.name, main, toml, files, origin, notes)

    def write(
        self, skills: Sequence[Outgoing], to: Path, *, lessons: Sequence[PlaybookLesson] = (), overwrite: bool = False
    ) -> Written:
        return disk.write_folders(skills, to, _folder, overwrite=overwrite)


def _from_index(path: Path, origin: str) -> Iterator[Entry]:
    """Read the oldest form: one file per skill, and all manifests in one index."""
    try:
        index = tomllib.loads(disk.read_file(path / INDEX, limit=2**20).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CantTake(f"{INDEX} is not valid TOML: {error}.") from None
    for name, fields in index.items():
        here = f"{origin}/{name}.md"
        try:
            if not isinstance(fields, dict) or not fitting.is_one_part(name):
                raise CantTake(f"Its entry in {INDEX} is not a table of fields, or no file can have its name.")
            main = file_of(disk.read_file(path / f"{name}.md", limit=frontmatter_fields.MAX_BYTES))
            toml = file_of(_toml(fields).encode("utf-8", "replace"))
            yield _take_skill(path / name, name, main, toml, {}, here, Notes(here))
        except (CantTake, OSError) as problem:
            yield NotTaken(origin=here, name=name, reason=describe_problem(problem))


def _take_skill(
    path: Path, called: str, main: File | None, toml: File | None, files: Tree, origin: str, notes: Notes
) -> Incoming:
    parsed = skill_md.parse(
        called,
        main.content or b"" if main else b"",
        file=f"{origin}/{MAIN if main else TOML_FILE}",
        toml=toml.content if toml else None,
    )
    if parsed.skill is None:
        raise CantTake("; ".join(f"{problem.what} {problem.hint}" for problem in parsed.diagnostics[-1:]))
    skill = _fit_skill(parsed.skill, called, toml, notes)
    return Incoming(
        name=skill.name,
        tree=fitting.folder(skill, _with_cli(files, called, notes) if skill.manifest.cli else files),
        origin=origin,
        format="istota",
        changelog=_changes(path.parent / CHANGELOG, called),
        # Notes are about the standard, which the rewritten file follows.
        diagnostics=(*(d for d in parsed.diagnostics if d.severity is not Severity.NOTE), *notes.found),
        control=tuple(notes.control),
    )


def _is_own(path: Path) -> bool:
    """Whether a directory shows the format by itself, not only through its neighbours."""
    if (path / TOML_FILE).is_file():
        return True
    if not (path / MAIN).is_file():
        return False
    if (path / MODULE).is_file() or (path / RUNNER).is_file():
        return True
    try:
        with (path / MAIN).open("rb") as file:
            head = file.read(_HEAD).decode("utf-8", "replace").partition("\n---")[0]
    except OSError:
        return False
    return re.search(rf"^({'|'.join((*MANIFEST, _OLD_TRIGGERS, _CAPABILITY))})[ \t]*:", head, re.MULTILINE) is not None


def _neighbours(path: Path) -> list[Path]:
    return [place for place in sorted(path.parent.iterdir())[:_NEIGHBOURS] if place != path and place.is_dir()]


def _fit_skill(skill: Skill, folder: str, toml: File | None, notes: Notes) -> Skill:
    raw = replace(skill, source=Source.IMPORTED, manifest=replace(skill.manifest, placeholders=True))
    kept = {"toml": _toml_keys(toml)}
    return fitting.fit(raw, format="istota", called=folder, frame=fitting.PLAIN_TEXT, notes=notes, kept=kept)


def _toml_keys(toml: File | None) -> list[str]:
    if toml is None:
        return []
    values = tomllib.loads((toml.content or b"").decode())
    section = values.get("skill", values)
    return sorted(section) if isinstance(section, dict) else []


def _changes(path: Path, folder: str) -> tuple[str, ...]:
    """Return the lines of the collection's changelog that name this skill."""
    try:
        content = disk.read_file(path, limit=2**20).decode("utf-8", "replace")
    except (OSError, CantTake):
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


def _with_cli(files: Tree, folder: str, notes: Notes) -> dict[str, File]:
    shim = _shim(files, folder)
    if CLI_CODE in files or shim is None:
        if CLI_CODE not in files:
            notes.say("The manifest says 'cli: true', and there is no Python module for it.", "Add scripts/cli.py.")
        return dict(files)
    missing = _imports_from_elsewhere(files, folder)
    if missing:
        notes.say(f"Its command line imports {', '.join(missing)}, which did not come along.", "Rewrite those imports.")
    return {**files, CLI_CODE: file_of(shim)}


def _shim(files: Tree, folder: str) -> bytes | None:
    module, runner = _source(files.get(MODULE)), _source(files.get(RUNNER))
    package = json.dumps(f"istota.skills.{folder}")
    if module is not None and re.search(r"^(?:async )?def main\b|^from .* import .*\bmain\b", module, re.MULTILINE):
        return _SHIM.format(package=package, load=_LOAD_MODULE, run="main()").encode()
    if runner is not None:
        prepare = 'load(NAME, "__init__.py")' if module is not None else "sys.path.insert(0, str(TOP))"
        return _SHIM.format(package=package, load=_LOAD_RUNNER.format(prepare=prepare), run="main()").encode()
    return None


def _source(file: File | None) -> str | None:
    return None if file is None or file.content is None else file.content.decode("utf-8", "replace")


def _imports_from_elsewhere(files: Tree, folder: str) -> list[str]:
    own = f"istota.skills.{folder}"
    found: set[str] = set()
    for path, file in files.items():
        if path.endswith(".py"):
            found |= set(re.findall(r"^\s*(?:from|import)\s+(istota[\w.]*)", _source(file) or "", re.MULTILINE))
            found |= set(re.findall(r"^\s*from\s+(\.\.[\w.]*)\s+import", _source(file) or "", re.MULTILINE))
    return sorted(name for name in found if name != own and not name.startswith(own + "."))


# Writing


def _folder(item: Outgoing) -> tuple[str, Tree]:
    folder = fitting.name_there(item.skill, "istota", names.callable_name(item.skill.name))
    main = trees.main_file(item.tree)
    files = {path: file for path, file in item.tree.items() if path not in (main, TOML_FILE)}
    cli = files.get(CLI_CODE)
    # Our own shim is generated again on import, so the export leaves it out.
    if cli is not None and cli.content == _shim(files, folder):
        del files[CLI_CODE]
    elif cli is not None and item.skill.manifest.cli and MODULE not in files:
        files[MODULE] = replace(cli, executable=False)
        files.setdefault(RUNNER, file_of(b"import sys\n\nfrom . import main\n\nsys.exit(main())\n"))
    fields = _fields(item.skill, folder)
    memory = fitting.memory_of(item.skill, "istota").get("toml")
    in_toml = _moved_to_toml(fields, item.skill.manifest, memory) if isinstance(memory, list) else {}
    if in_toml:
        files[TOML_FILE] = file_of(_toml(in_toml).encode())
    body = fitting.original_body(item.skill, "istota", fitting.TEXT_FILE)
    front = "".join(f"{_key(key)}: {_yaml(value)}\n" for key, value in fields.items())
    files[MAIN] = file_of((f"---\n{front}---\n{body}" if fields else body).encode())
    return folder, files


def _moved_to_toml(fields: dict[str, Any], manifest: Manifest, keys: list[str]) -> dict[str, Any]:
    """Remove and return the fields that skill.toml used to state, including explicit defaults."""
    usual = {key: getattr(manifest, key) for key in keys if key in MANIFEST and key not in fields}
    return {key: fields.pop(key, usual.get(key)) for key in keys if key in fields or key in usual}


def _fields(skill: Skill, folder: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": folder, "description": fitting.original(skill, "description", "istota")}
    own = {
        "title": fitting.original(skill, "title", "istota"),
        "when_to_use": fitting.original(skill, "when_to_use", "istota"),
        "tags": list(fitting.original(skill, "tags", "istota")),
        "license": skill.license,
        "compatibility": skill.compatibility,
        "allowed-tools": skill.allowed_tools,
    }
    fields |= {key: value for key, value in own.items() if value}
    for name in MANIFEST:
        value = getattr(skill.manifest, name)
        if value != getattr(PLAIN_MANIFEST, name):
            fields[name] = list(value) if isinstance(value, tuple) else value
    if skill.manifest.requires_tools:
        fields[_CAPABILITY] = list(skill.manifest.requires_tools)
    if skill.metadata:
        fields["metadata"] = dict(skill.metadata)
    return fields | {key: value for key, value in skill.extra.items() if key not in fields}


_BARE = re.compile(r"[A-Za-z0-9_.][\w./ +-]*")


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_][\w.-]*", key) and key.isascii() else frontmatter.quote_value(key)


def _yaml(value: Any) -> str:
    """Render a value on one line as Istota does: plain words, lists in brackets, objects as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return f"[{', '.join(_word(item) for item in value)}]"
    if isinstance(value, str):
        return _word(value) if value else '""'
    return frontmatter.quote_value(value)


def _word(text: str) -> str:
    is_bare = _BARE.fullmatch(text) and text.isascii() and text == text.strip() and "---" not in text
    return text if is_bare else frontmatter.quote_value(text)


def _toml(fields: Mapping[str, Any]) -> str:
    return "".join(f"{_toml_key(key)} = {_toml_value(value)}\n" for key, value in fields.items())


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{', '.join(_toml_value(item) for item in value)}]"
        case dict():
            return "{" + ", ".join(f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items()) + "}"
        case int() | float():
            return json.dumps(value)
        case None:
            return '""'
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
