"""Skills of another loader's layout, read in place as an operator's layer: the same as when they are imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Direct

BARE = "# Coffee run\n\nBuys coffee for the office.\n\n1. Ask who is in.\n"
OLD = """---
name: notes
description: Writes notes.
keywords: [memo, jot down]
triggers: [notes]
requires_capability: notebook
---

1. Write.
"""


def operators(direct: Direct, tmp_path: Path) -> Path:
    """A folder of skills that is the operator's layer."""
    top = tmp_path / "ops"
    for name, file, content in (("coffee_run", "SKILL.md", BARE), ("notes", "skill.md", OLD)):
        (top / name).mkdir(parents=True)
        (top / name / file).write_text(content)
    (top / "plain").mkdir()
    (top / "plain/SKILL.md").write_text(OLD.replace("name: notes", "name: plain"))
    (top / "table").mkdir()
    (top / "table/skill.toml").write_text('description = "Lays tables."\nkeywords = ["cutlery"]\n')
    (top / "table/skill.md").write_text("1. Forks left.\n")
    (direct.home / "habitus.toml").write_text(f'operator_skills = "{top}"\n')
    return top


def shown(direct: Direct, name: str) -> dict[str, Any]:
    found = direct.json("skills", "show", name)
    skill = found.get("skill", found)
    assert isinstance(skill, dict)
    return skill


@pytest.mark.req("SK-13", "SK-03", "SK-02")
def test_old_fields_and_bare_files_are_read_in_place_as_they_are_imported(direct: Direct, tmp_path: Path) -> None:
    top = operators(direct, tmp_path)
    fields = ("title", "description", "body", "triggers", "requires_tools")

    def told(name: str) -> list[Any]:
        skill = shown(direct, name)
        return [skill.get(field, skill.get("manifest", {}).get(field)) for field in fields]

    names = ("coffee-run", "notes", "table")
    in_place = {name: told(name) for name in names}
    assert in_place["coffee-run"][:2] == ["Coffee run", "Buys coffee for the office."]
    assert in_place["notes"][3:] == [["notes", "memo", "jot down"], ["notebook"]]
    assert in_place["table"][3] == ["cutlery"]
    assert told("plain")[3:] == [["notes"], None]  # in the standard's own file they are somebody's extra fields

    (direct.home / "habitus.toml").unlink()
    direct.json("skills", "import", str(top))
    assert {name: told(name) for name in names} == in_place


@pytest.mark.req("SK-02")
def test_a_bare_file_says_so_and_gets_its_frontmatter_with_the_first_edit(direct: Direct, tmp_path: Path) -> None:
    operators(direct, tmp_path)
    assert "It came without frontmatter" in direct("skills", "lint", "coffee-run").out
    direct.ok("skills", "edit", "coffee-run", "--append", "2. Pay.")
    edited = (direct.home / "skills/coffee-run/SKILL.md").read_text()
    assert edited.startswith("---\n")
    assert "Buys coffee for the office." in edited
    assert edited.endswith("1. Ask who is in.\n2. Pay.\n")
    assert "without frontmatter" not in direct("skills", "lint", "coffee-run").out
