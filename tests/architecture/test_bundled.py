"""The skills that come along are held to what we ask of others."""

from __future__ import annotations

from pathlib import Path

import pytest
import skills_ref

import habitus
from habitus.skills.formats import frontmatter, skill_md

BUNDLED = sorted((Path(habitus.__file__).parent / "bundled").iterdir())


def _name(folder: Path) -> str:
    return folder.name


def test_there_are_bundled_skills() -> None:
    assert {"write-a-skill", "data-summary", "debug-a-failing-script"} <= {folder.name for folder in BUNDLED}


@pytest.mark.req("SK-01")
@pytest.mark.parametrize("folder", BUNDLED, ids=_name)
def test_bundled_skill_is_written_as_we_write_skills(folder: Path) -> None:
    content = (folder / "SKILL.md").read_bytes()
    parsed = skill_md.parse_skill_md_with_diagnostics(folder.name, content)
    assert parsed.diagnostics == ()
    assert parsed.skill is not None
    assert skill_md.render_skill_md(parsed.skill) == content
    assert skills_ref.validate(folder) == []


@pytest.mark.parametrize("folder", BUNDLED, ids=_name)
def test_bundled_skill_can_be_found_and_ends_with_a_check(folder: Path) -> None:
    text = (folder / "SKILL.md").read_text(encoding="utf-8")
    skill = skill_md.parse_skill_md_with_diagnostics(folder.name, text.encode()).skill
    assert skill is not None
    assert all([skill.title, skill.description, skill.when_to_use, skill.tags, skill.license == "MIT"])
    body = frontmatter.split_front_matter(text, "SKILL.md").body
    assert len(body.splitlines()) <= 90
    assert "\n## Check" in body
