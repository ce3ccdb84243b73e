"""Editing a skill that extends another, or that can't be written: what was shown is what is edited."""

from __future__ import annotations

from pathlib import Path

import pytest
from skills_ref import validate

from tests.cli.conftest import Direct

BELOW = "---\nname: deploy\ndescription: Ships it.\n---\n\n1. Build.\n2. Ship.\n"
ABOVE = "---\nname: deploy\ntags: [mine]\nextends: true\n---\n"


def keep(root: Path, content: str, file: str = "SKILL.md") -> Path:
    path = root / "deploy" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.fixture
def extended(direct: Direct, tmp_path: Path) -> Direct:
    keep(tmp_path / "ops", BELOW)
    (direct.home / "habitus.toml").write_text(f'operator_skills = "{tmp_path / "ops"}"\n')
    keep(direct.home / "skills", ABOVE)
    return direct


def body(direct: Direct, name: str = "deploy") -> str:
    text: str = direct.json("skills", "show", name)["body"]
    return text


@pytest.mark.req("SK-13", "SK-09")
def test_an_edit_of_a_skill_that_extends_another_starts_from_what_was_shown(extended: Direct) -> None:
    extended.ok("skills", "edit", "deploy", "--append", "3. Tell them.")
    assert body(extended) == "1. Build.\n2. Ship.\n3. Tell them."
    extended.ok("skills", "edit", "deploy", "--find", "Ship", "--with", "Ship it")
    assert body(extended) == "1. Build.\n2. Ship it.\n3. Tell them."
    assert body(extended, "deploy@operator") == "1. Build.\n2. Ship."


@pytest.mark.req("SK-13", "SK-10")
def test_a_change_of_fields_leaves_the_text_to_the_skill_below(extended: Direct) -> None:
    extended.ok("skills", "edit", "deploy", "--tags", "ours")
    assert "Build" not in (extended.home / "skills/deploy/SKILL.md").read_text()
    unchanged = extended.ok("skills", "edit", "deploy", "--find", "Ship", "--with", "Ship")
    assert "is unchanged" in unchanged
    assert body(extended) == "1. Build.\n2. Ship."


@pytest.mark.req("SK-13")
def test_text_that_is_taken_away_whole_would_come_back_from_below(extended: Direct) -> None:
    ran = extended("skills", "edit", "deploy", "--replace", "")
    assert (ran.code, "would show the text below it again" in ran.err) == (1, True)


@pytest.mark.req("SK-13")
def test_the_copy_of_one_layer_is_edited_as_it_is(extended: Direct) -> None:
    extended.ok("skills", "edit", "deploy@user", "--append", "Only this.")
    assert body(extended) == "Only this."


@pytest.mark.req("SK-01", "SK-13")
@pytest.mark.parametrize(
    ("file", "content", "toml"),
    [
        ("skill.md", "1. Build.\n", 'description = "Ships <it>."\ntriggers = ["ship"]\nteam = "ops"\n'),
        ("SKILL.md", "---\nname: Deploy\ndescription: Ships <it>.\ntriggers: [ship]\nteam: ops\n---\n1. Build.\n", ""),
    ],
)
def test_an_override_of_a_lenient_skill_passes_the_strict_validator(
    direct: Direct, tmp_path: Path, file: str, content: str, toml: str
) -> None:
    keep(tmp_path / "ops", content, file)
    if toml:
        keep(tmp_path / "ops", toml, "skill.toml")
    env = {"HABITUS_OPERATOR_SKILLS": str(tmp_path / "ops")}
    direct.ok("skills", "edit", "deploy", "--append", "2. Ship.", env=env)
    written = direct.home / "skills/deploy"
    assert (validate(written), sorted(path.name for path in written.iterdir())) == ([], ["SKILL.md"])
    shown = direct.json("skills", "show", "deploy", env=env)
    assert (shown["layer"], shown["body"], shown["manifest"]["triggers"]) == ("user", "1. Build.\n2. Ship.", ["ship"])


@pytest.mark.req("SK-01", "SK-13")
def test_a_strict_skill_keeps_its_bytes_in_an_override(direct: Direct, tmp_path: Path) -> None:
    commented = BELOW.replace("---\n\n", "# Ask the operators before you change this.\n---\n\n")
    keep(tmp_path / "ops", commented)
    direct.ok(
        "skills", "edit", "deploy", "--append", "3. Tell.", env={"HABITUS_OPERATOR_SKILLS": str(tmp_path / "ops")}
    )
    assert (direct.home / "skills/deploy/SKILL.md").read_text() == commented + "3. Tell.\n"
