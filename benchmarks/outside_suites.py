"""Tests that other projects wrote for skills, run against the reading, writing and naming of Habitus.

    pip download --no-deps --no-binary :all: skills-ref==0.1.1 && tar xzf skills_ref-*.tar.gz
    python benchmarks/outside_suites.py skills-ref skills_ref-0.1.1/tests

    pip download --no-deps --no-binary :all: anton-agent==2.26.9.27.1 && tar xzf anton_agent-*.tar.gz
    pip install ./anton_agent-2.26.9.27.1 pytest-asyncio && cd anton_agent-2.26.9.27.1
    python benchmarks/outside_suites.py anton tests/test_{skills_store,recall_skill,skills_e2e}.py

    pip install agno==3.1.10, and copy libs/agno/tests/unit/skills of agno's repository
    python benchmarks/outside_suites.py agno skills/test_validator.py skills/loaders/test_local.py

Before pytest collects the tests, the modules under test are replaced by ours: skills-ref's parser, validator and
prompt; Anton's store and slugs, which its own tools and prompts then use; agno's validator and its loader of folders.
Verdicts are ours: what a test sees as an error is a diagnostic of ours or its absence. Only its words are translated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import sys
import types
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from habitus.files import Tree, build_tree_file
from habitus.skills import names, trees
from habitus.skills.choosing import menu
from habitus.skills.formats import disk, frontmatter, skill_md
from habitus.skills.formats.base import IncomingSkill, OutgoingSkill, SkillFormat, UnreadableEntryError
from habitus.skills.formats.frontmatter_fields import STANDARD_KEYS
from habitus.skills.formats.other_systems.anton import AntonFormat
from habitus.skills.formats.skill_folder import AgentSkillsFormat
from habitus.skills.model import Diagnostic, MalformedFileError, Skill, Stage
from habitus.skills.stores.files import DirectoryBackend
from habitus.use_counts import UsageCounts

# What we say of a file → the words by which the tests recognise the same verdict.
_THEIR_WORDS = {
    r"name .*spelt|says name|legal name|is spelt": "Skill name must be lowercase; exceeds 64 character limit; cannot "
    "start or end with a hyphen; consecutive hyphens; invalid characters; must match skill name",
    r"no name": "Missing required field in frontmatter: name; it must be non-empty",
    r"no description": "Missing required field in frontmatter: description; it must be non-empty",
    r"description has \d+": "Description exceeds 1024 character limit",
    r"compatibility has \d+": "Compatibility exceeds 500 character limit",
    r"no field": "Unexpected fields in frontmatter",
    r"no frontmatter": "SKILL.md must start with YAML frontmatter (---)",
    r"never closed": "SKILL.md frontmatter not properly closed with ---",
    r"not valid YAML": "Invalid YAML in frontmatter",
    r"not fields": "SKILL.md frontmatter must be a YAML mapping",
}


def _translate(diagnostic: Diagnostic) -> str:
    said = next((words for ours, words in _THEIR_WORDS.items() if re.search(ours, diagnostic.message)), "")
    return f"{said} [{diagnostic.message}]"


def _find_main_file(folder: Path) -> Path | None:
    name = trees.find_main_file(path.name for path in folder.iterdir()) if folder.is_dir() else None
    return folder / name if name else None


def validate_folder(folder: Path) -> list[str]:
    """Return what we say about a skill folder, in the words of the tests."""
    main = _find_main_file(folder)
    if main is None:
        problem = "Path does not exist" if not folder.exists() else "Missing required file: SKILL.md"
        return [problem if folder.is_dir() or not folder.exists() else f"Not a directory: {folder}"]
    return [*map(_translate, skill_md.parse_skill_md_with_diagnostics(folder.name, main.read_bytes()).diagnostics)]


def replace_skills_ref() -> None:
    """Put our reading, validating and menu where skills-ref has its own."""

    class ParseError(Exception):
        """Raised for a file that can't be read."""

    class ValidationError(Exception):
        """Raised for a file without a required field."""

    def parse_frontmatter(content: str) -> tuple[Mapping[str, Any], str]:
        try:
            parts = frontmatter.split_front_matter(content, "SKILL.md")
            if parts.front is None:
                raise MalformedFileError("There is no frontmatter.", "", file="SKILL.md")
            return frontmatter.parse_fields_with_diagnostics(parts.front, "SKILL.md")[0], parts.body
        except MalformedFileError as error:
            raise ParseError(_translate(error.diagnostic)) from None

    def read_properties(folder: Path) -> types.SimpleNamespace:
        main = _find_main_file(folder)
        if main is None:
            raise ParseError(f"SKILL.md not found in {folder}")
        parsed = skill_md.parse_skill_md_with_diagnostics(folder.name, main.read_bytes())
        if missing := [found for found in map(_translate, parsed.diagnostics) if "Missing required" in found]:
            raise ValidationError(missing[0])
        assert parsed.skill is not None
        fields = {name: getattr(parsed.skill, name) for name in ("name", "description", "license", "allowed_tools")}
        standard = {name.replace("_", "-"): value for name, value in fields.items()}
        return types.SimpleNamespace(**fields, metadata=dict(parsed.skill.metadata), to_dict=lambda: standard)

    def to_prompt(folders: list[Path]) -> str:
        skills = [entry.skill for folder in folders if (entry := _read_folder(AgentSkillsFormat(), folder))]
        return menu.compose_menu(skills, 10_000, dict).text

    parser = {"ParseError": ParseError, "ValidationError": ValidationError, "find_skill_md": _find_main_file}
    _add_module("skills_ref", {})
    _add_module(
        "skills_ref.parser", {**parser, "parse_frontmatter": parse_frontmatter, "read_properties": read_properties}
    )
    _add_module("skills_ref.validator", {"validate": validate_folder})
    _add_module("skills_ref.prompt", {"to_prompt": to_prompt})


def _add_module(name: str, contents: Mapping[str, Any]) -> None:
    sys.modules[name] = module = types.ModuleType(name)
    vars(module).update(contents)


def _read_folder(format: SkillFormat, folder: Path) -> IncomingSkill | None:
    """Read one skill folder in a format; None if it can't be read."""
    with contextlib.suppress(UnreadableEntryError, OSError):
        for entry in format.read_entries(folder, folder.name):
            return entry if isinstance(entry, IncomingSkill) else None
    return None


_STAGES = {"stage_1": Stage.STEPS, "stage_2": Stage.CHUNKS, "stage_3": Stage.CODE}


class AntonSkillStore:
    """Anton's store over our format of its folders: every call reads and writes the files."""

    def __init__(self, root: Path, **others: object) -> None:
        self.root = Path(root)

    def save(self, skill: Any) -> Path:
        """Write a skill; the counters of one that is there stay."""
        name = names.canonicalize_and_check_name(skill.label)
        stored = self._read(name)
        ours = Skill(
            name=name,
            title=skill.name,
            description=skill.description,
            provenance={"format": "anton", "layout": "SKILL.md"},
            metadata={"provenance": skill.provenance, "created_at": skill.created_at},
            body=skill.declarative_md,
        )
        tree = {"SKILL.md": build_tree_file(skill_md.render_skill_md(ours))}
        return self._write(ours, tree, stored.counters if stored else {})

    def _write(self, skill: Skill, tree: Tree, counters: Mapping[Stage, UsageCounts]) -> Path:
        name, files = AntonFormat().render_skill_folder(OutgoingSkill(skill=skill, tree=tree, counters=counters))
        disk.write_tree(self.root / name, files)
        return self.root / name

    def _read(self, label: str) -> IncomingSkill | None:
        return _read_folder(AntonFormat(), self.root / names.canonicalize_name(label))

    def _read_all(self) -> Iterator[IncomingSkill]:
        for folder in sorted(self.root.iterdir()) if self.root.is_dir() else ():
            if entry := _read_folder(AntonFormat(), folder):
                yield entry

    def load(self, label: str) -> Any:
        """Return Anton's record of a skill; None if it can't be read."""
        entry = self._read(label)
        return _build_anton_record(entry) if entry else None

    def list_all(self) -> list[Any]:
        """Return every readable skill."""
        return [_build_anton_record(entry) for entry in self._read_all()]

    def list_summaries(self) -> list[dict[str, str]]:
        """Return label, name and description of every readable skill."""
        return [
            {"label": entry.name, "name": entry.skill.title, "description": entry.skill.description}
            for entry in self._read_all()
        ]

    def delete(self, label: str) -> bool:
        """Remove a skill; False if there is none."""
        found = (self.root / label).is_dir()
        if found:
            shutil.rmtree(self.root / label)
        return found

    def increment_recommended(self, label: str, *, stage: int = 1) -> None:
        """Count one recall of a stage."""
        if f"stage_{stage}" not in _STAGES:
            raise ValueError(stage)
        if entry := self._read(label):
            kept = dict(entry.counters)
            one = UsageCounts(recommended=1, last_used=datetime.now(UTC))
            kept[_STAGES[f"stage_{stage}"]] = kept.get(_STAGES[f"stage_{stage}"], UsageCounts()) + one
            self._write(entry.skill, entry.tree, kept)

    def closest_match(self, label: str) -> str | None:
        """Return the closest name; None if none is close."""
        return names.find_closest_name(label, [entry.name for entry in self._read_all()])


def _build_anton_record(entry: IncomingSkill) -> Any:
    from anton.core.memory import skills as anton

    counts = {key: entry.counters.get(stage, UsageCounts()) for key, stage in _STAGES.items()}
    stages = {
        key: anton.StageStats(
            recommended=count.recommended,
            used=count.used,
            last_used=count.last_used.isoformat() if count.last_used else "",
        )
        for key, count in counts.items()
    }
    skill = entry.skill
    return anton.Skill(
        label=entry.name,
        name=skill.title,
        description=skill.description,
        declarative_md=skill.body,
        created_at=skill.metadata.get("created_at", ""),
        provenance=skill.metadata.get("provenance", ""),
        stats=anton.SkillStats(total_recalls=sum(one.recommended for one in counts.values()), **stages),
    )


def replace_anton() -> None:
    """Put our format, names and search for a close name into Anton's store."""
    from anton.core.memory import skills as anton

    def make_unique_label(base: str, store: AntonSkillStore) -> str:
        return names.make_unique_name(base, lambda name: store.load(name) is not None)

    vars(anton).update(SkillStore=AntonSkillStore, slugify=names.slugify, make_unique_label=make_unique_label)


def replace_agno() -> None:
    """Put our diagnostics into agno's validator, and our reading of folders into its loader."""
    from agno.skills import validator
    from agno.skills.errors import SkillValidationError
    from agno.skills.loaders import local
    from agno.skills.skill import Skill as AgnoSkill

    def validate_fields(fields: Mapping[str, object], folder: Path | None = None, only: str = "") -> list[str]:
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in fields.items())
        named = folder.name if folder else str(fields.get("name") or "").strip() or "unnamed"
        found = skill_md.parse_skill_md_with_diagnostics(named, f"---\n{text}---\nDo it.\n".encode()).diagnostics
        return [words for one in found if only in (words := _translate(one)).lower()]

    def validate_name(name: str, folder: Path | None = None) -> list[str]:
        return validate_fields({"name": name}, folder, "name")

    def load(self: Any) -> list[Any]:
        if not self.path.exists():
            raise FileNotFoundError(f"Skills path does not exist: {self.path}")
        found = []
        layer = DirectoryBackend(self.path, self.path / ".archive").list_folder_change_stamps({})
        for folder in [self.path] if _find_main_file(self.path) else [self.path / name for name in layer]:
            if not _find_main_file(folder):
                continue
            if self.validate and (errors := validate_folder(folder)):
                raise SkillValidationError("invalid", errors=errors)
            if entry := _read_folder(AgentSkillsFormat(), folder):
                found.append(build_agno_record(folder, entry))
        return found

    def build_agno_record(folder: Path, entry: IncomingSkill) -> Any:
        skill = entry.skill
        inside = {
            top: sorted(path.removeprefix(f"{top}/") for path in entry.tree if path.startswith(f"{top}/"))
            for top in ("scripts", "references")
        }
        return AgnoSkill(
            name=skill.name,
            description=skill.description,
            instructions=skill.body,
            source_path=str(folder),
            metadata=dict(skill.metadata),
            license=skill.license,
            **inside,
        )

    vars(validator).update(
        _validate_name=validate_name,
        _validate_description=lambda text: validate_fields({"name": "x", "description": text}, None, "description"),
        _validate_compatibility=lambda text: validate_fields({"compatibility": text}, None, "compatibility"),
        _validate_metadata_fields=lambda fields: validate_fields(fields, None, "unexpected"),
        validate_metadata=validate_fields,
        validate_skill_directory=validate_folder,
        MAX_SKILL_NAME_LENGTH=names.MAX_NAME_LENGTH,
        ALLOWED_FIELDS={*STANDARD_KEYS},
    )
    local.LocalSkills.load = load


REPLACEMENTS = {"skills-ref": replace_skills_ref, "anton": replace_anton, "agno": replace_agno}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=REPLACEMENTS)
    parser.add_argument("tests", nargs="+", type=Path, help="test files or directories of the suite")
    args = parser.parse_args()
    REPLACEMENTS[args.suite]()
    sys.exit(pytest.main(["-q", "--tb=line", *map(str, args.tests)]))


if __name__ == "__main__":
    main()
