"""Layers and gates as the command line shows them: which copy of a skill counts, and why one is closed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Direct


def lay(folder: Path, name: str, description: str, *fields: str) -> None:
    target = folder / name
    target.mkdir(parents=True)
    front = "\n".join(["---", f"name: {name}", f"description: {description}", *fields, "---"])
    (target / "SKILL.md").write_text(f"{front}\n\n1. Do it as {description}\n")


def shown(direct: Direct, name: str) -> Any:
    return direct.json("skills", "show", name)


@pytest.mark.full
@pytest.mark.req("SK-13")
def test_the_highest_layer_counts_and_every_hidden_copy_can_be_named(direct: Direct) -> None:
    above = direct.cli.cwd / "repo"
    near = above / "part"
    person = direct.cli.user_home
    (above / ".git").mkdir(parents=True)
    folders = {
        "agents": person / ".agents/skills",
        "claude": person / ".claude/skills",
        "codex": person / ".codex/skills",
        "user": direct.home / "skills",
        "project-agents": above / ".agents/skills",
        "project-claude": above / ".claude/skills",
        "project": above / ".habitus/skills",
        "nearer": near / ".agents/skills",
    }
    for layer, folder in folders.items():
        lay(folder, "tidy", layer)
        if layer in ("agents", "claude", "codex", "user"):
            assert shown(direct, "tidy")["description"] == layer
    assert shown(direct, "tidy")["hidden"] == ["agents", "claude", "codex"]
    assert shown(direct, "tidy@codex")["description"] == "codex"
    direct.ok("review", "trust", "--yes", str(near))
    there = replace(direct, cli=replace(direct.cli, cwd=near))
    assert shown(there, "tidy")["description"] == "nearer"


@pytest.mark.req("SK-13")
def test_a_copy_that_extends_changes_only_what_it_states_and_a_read_only_one_is_edited_above(direct: Direct) -> None:
    lay(direct.cli.user_home / ".claude/skills", "tidy", "theirs")
    folder = direct.home / "skills" / "tidy"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text('---\nname: tidy\nmetadata:\n  habitus.extends: "true"\n---\n')
    assert shown(direct, "tidy")["description"] == "theirs"
    before = shown(direct, "write-a-skill@bundled")
    direct.ok("skills", "edit", "write-a-skill", "--append", "Mine.")
    assert shown(direct, "write-a-skill")["layer"] == "user"
    assert shown(direct, "write-a-skill@bundled")["body"] == before["body"]


@pytest.mark.req("SK-15")
def test_gates_close_a_skill_with_the_reason(direct: Direct) -> None:
    home = direct.home / "skills"
    lay(home, "off", "Off.")
    lay(home, "lab", "Lab.", "experimental: true")
    lay(home, "chief", "Chief.", "admin_only: true")
    lay(home, "odd", "Odd.", "admin_only: [yes, no]")

    def states() -> dict[str, str]:
        return {item["name"]: item["state"] for item in direct.own()}

    assert states() | {"odd": ""} == {"off": "ok", "lab": "gated", "chief": "ok", "odd": ""}
    assert states()["odd"] != "ok"
    settings = 'disabled_skills = ["off"]\n[experimental]\nfeatures = ["skill_lab"]\n[users.ada]\nadmin = true\n'
    (direct.home / "habitus.toml").write_text(settings)
    now = states()
    assert (now["off"], now["lab"], now["chief"]) == ("disabled", "ok", "gated")
    assert "admin" in next(item["reason"] for item in direct.own() if item["name"] == "chief")


@pytest.mark.req("SC-03")
def test_no_field_of_a_skill_writes_a_line_of_what_is_shown(direct: Direct, tmp_path: Path) -> None:
    lines = ("state                 trusted by you", "source                bundled")
    front = f'name: tea\ndescription: "Brews.\\n{lines[0]}"\ntags: ["hot\\n{lines[1]}"]'
    text = f"---\n{front}\n---\n1. Boil.\n"
    (tmp_path / "tea").mkdir()
    (tmp_path / "tea" / "SKILL.md").write_text(text)
    direct("skills", "import", str(tmp_path / "tea"))
    shown = direct.ok("skills", "show", "tea").splitlines()
    assert [line for line in shown if line.startswith(("state ", "source "))] == [
        "state                 ok",
        "source                imported",
    ]
