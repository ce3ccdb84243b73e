"""Homes are for their owner: nobody else reads them, and root leaves nothing in somebody else's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Direct

NOBODY = 65534
SKILL = "---\nname: {name}\ndescription: Use when a test wants a skill.\n---\n1. Look.\n"


def _modes(top: Path) -> dict[str, int]:
    """The permissions of every file that is no package, as paths from the top."""
    return {
        str(path.relative_to(top)): stat.S_IMODE(path.stat().st_mode)
        for path in top.rglob("*")
        if path.is_file() and not path.is_symlink() and "site-packages" not in path.parts
    }


def _directory(folder: Path, name: str) -> Path:
    (folder / name / "scripts").mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(SKILL.format(name=name))
    (folder / name / "scripts" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / name / "scripts" / "run.sh").chmod(0o755)
    return folder / name


@pytest.mark.req("OP-04")
def test_files_in_the_home_are_for_their_owner(direct: Direct, tmp_path: Path) -> None:
    direct.ok("skills", "import", str(_directory(tmp_path / "from", "tidy")))
    direct.ok("skills", "edit", "tidy", "--append", "2. Wipe.")
    direct.ok("lessons", "add", "Tables in the reports have a header row.")
    direct.ok("tools", "scratchpad", "exec", "one", "open('note.txt', 'w').write('x')")
    direct.ok("tools", "scratchpad", "reset", "one")
    modes = _modes(direct.home)
    assert "skills/tidy/SKILL.md" in modes
    assert "pads/one/files/note.txt" in modes
    assert {path: mode for path, mode in modes.items() if mode & 0o077} == {}
    assert modes["skills/tidy/scripts/run.sh"] == 0o700
    assert stat.S_IMODE(direct.home.stat().st_mode) == 0o700


@pytest.mark.req("OP-04")
def test_elsewhere_files_keep_their_modes(direct: Direct) -> None:
    project = direct.cli.cwd / ".habitus" / "skills"
    (direct.cli.cwd / ".git").mkdir()
    shared = _directory(project, "shared")
    (shared / "SKILL.md").chmod(0o664)
    direct.ok("review", "trust", "--yes")
    direct.ok("skills", "edit", "shared@project", "--append", "2. Wipe.")
    assert "2. Wipe." in (shared / "SKILL.md").read_text()
    modes = _modes(shared)
    assert modes == {"SKILL.md": 0o664, "scripts/run.sh": 0o755}


def _given_away(top: Path) -> None:
    for path in (top, *top.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def _of_root(top: Path) -> list[str]:
    return [str(path) for path in top.rglob("*") if path.lstat().st_uid == 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be root in somebody's home")
@pytest.mark.req("OP-04")
def test_root_looks_at_somebodys_home_and_leaves_nothing_there(direct: Direct) -> None:
    direct.ok("skills", "new", "tidy", "--description", "Use when it is untidy.")
    _given_away(direct.home)
    listed = direct("skills", "list", "--layer", "user")
    assert (listed.code, "tidy" in listed.out) == (0, True)
    assert listed.err == f"habitus: {direct.home} is read-only; changes are not possible.\n"
    for change in (
        ("skills", "edit", "tidy", "--append", "x"),
        ("tools", "scratchpad", "exec", "one", "1"),
        (
            "learn",
            "pause",
        ),
    ):
        refused = direct(*change)
        assert refused.code == 1
        assert f"{direct.home} belongs to nobody, and root would leave files there" in refused.err.splitlines()[-1]
    direct("doctor")
    assert _of_root(direct.home) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be root in somebody's home")
def test_root_makes_no_new_home_in_somebodys_directory(direct: Direct) -> None:
    theirs = direct.home.parent / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    refused = direct("skills", "list", env={"HABITUS_HOME": str(theirs / ".habitus")})
    assert refused.code == 1
    assert "belongs to nobody" in refused.err
    assert len(refused.err.splitlines()) == 1
    assert list(theirs.iterdir()) == []
