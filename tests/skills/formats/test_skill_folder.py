from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from skills_ref import validate

from habitus.errors import Refused
from habitus.files import TreeFile, build_tree_file
from habitus.skills.formats import disk
from habitus.skills.formats.base import IncomingSkill, OutgoingSkill, SkippedEntry
from habitus.skills.formats.detect import read_entries
from habitus.skills.formats.skill_folder import AgentSkillsFormat
from habitus.skills.model import Skill
from tests.skills.formats.made import (
    again,
    any_text,
    contents,
    fresh,
    law,
    of_kind,
    only,
    outgoing,
    plain_skill,
    reasons,
    skills,
    some_text,
    write_files,
)

pytestmark = pytest.mark.req("SK-18", "SK-19")

FORMAT = AgentSkillsFormat()

SKILL = "---\nname: {0}\ndescription: Does {0}.\n---\n\nDo it.\n"


def test_a_checkout_with_many_skills(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "README.md": "# Hello",
        "skills/one/SKILL.md": SKILL.format("one"),
        "skills/one/examples/inner/SKILL.md": SKILL.format("inner"),
        "skills/deep/er/two/skill.md": SKILL.format("two"),
        ".claude/skills/three/SKILL.md": SKILL.format("three"),
        ".git/x/SKILL.md": SKILL.format("x"),
        "node_modules/y/SKILL.md": SKILL.format("y"),
        ".habitus-half/z/SKILL.md": SKILL.format("z"),
        "broken/SKILL.md": "---\nname: broken",
        "bare/SKILL.md": "# Bare\n\nJust text.",
        "latin/SKILL.md": b"---\nname: latin\ndescription: caf\xe9\n---\n",
    }
    entries = list(read_entries(write_files(tmp_path / "repo", files)))
    found = {entry.name: entry.origin for entry in of_kind(entries, IncomingSkill)}
    assert found == {
        "bare": "repo/bare",
        "one": "repo/skills/one",
        "inner": "repo/skills/one/examples/inner",
        "two": "repo/skills/deep/er/two",
        "three": "repo/.claude/skills/three",
    }
    assert set(reasons(entries)) == {"broken", "latin"}


def test_a_skill_keeps_its_bytes(tmp_path: Path) -> None:
    files = {
        "SKILL.md": b"\xef\xbb\xbf---\r\nname: Other\r\ndescription: a: b\r\n---\r\n\r\nText\r\n",
        "assets/x.bin": bytes(range(256)),
    }
    write_files(tmp_path / "theirs/My_Skill", files)
    entry = only(read_entries(tmp_path / "theirs"))
    assert entry.name == "my-skill"
    assert contents(entry.tree) == files
    assert entry.diagnostics


def test_copies_and_namesakes(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "a/one/SKILL.md": SKILL.format("one"),
        "b/one/SKILL.md": SKILL.format("one"),
        "c/One/SKILL.md": SKILL.format("other"),
    }
    entries = list(read_entries(write_files(tmp_path / "repo", files)))
    assert [entry.origin for entry in of_kind(entries, IncomingSkill)] == ["repo/a/one"]
    assert [entry.reason for entry in of_kind(entries, SkippedEntry)] == [
        "It is a copy of repo/a/one.",
        "repo/a/one is called 'one' too and came first. Rename one of them, or take --keep-both.",
    ]


def test_links_and_devices_are_left_out(tmp_path: Path) -> None:
    top = write_files(tmp_path / "one", {"SKILL.md": SKILL.format("one")})
    (top / "secrets").symlink_to("/etc/passwd")
    (top / "loop").symlink_to(top)
    os.mkfifo(top / "pipe")
    entry = only(read_entries(top))
    assert set(entry.tree) == {"SKILL.md"}
    assert len([d for d in entry.diagnostics if "left out" in d.message]) == 3
    (tmp_path / "two").mkdir()
    (tmp_path / "two/SKILL.md").symlink_to(top / "SKILL.md")
    assert reasons(read_entries(tmp_path / "two")) == {"two": "SKILL.md is a link; it was left out."}


@pytest.mark.full
def test_a_folder_that_is_too_large(tmp_path: Path) -> None:
    many = write_files(tmp_path / "many", {"SKILL.md": SKILL.format("many")})
    for number in range(disk.MAX_FILES):
        (many / str(number)).touch()
    big = write_files(tmp_path / "big", {"SKILL.md": SKILL.format("big")})
    with (big / "video.mp4").open("wb") as file:
        file.truncate(disk.MAX_BYTES + 1)
    assert reasons(read_entries(tmp_path)) == {
        "many": "There are more than 5,000 files in it.",
        "big": "It is larger than 64 MB.",
    }


def test_a_markdown_upload_with_frontmatter(tmp_path: Path) -> None:
    write_files(tmp_path, {"upload.md": SKILL.format("named-inside")})
    entry = only(read_entries(tmp_path / "upload.md"))
    assert entry.name == "named-inside"
    assert contents(entry.tree) == {"SKILL.md": SKILL.format("named-inside").encode()}


@pytest.mark.parametrize(
    ("file", "content", "name", "title", "description"),
    [
        (
            "Weekly Report.md",
            "# The Report\n\nHow it is\nmade.\n\nMore.",
            "weekly-report",
            "The Report",
            "How it is made.",
        ),
        ("README.md", "# Excel <Reports>\n\n- first\n", "excel-reports", "Excel <Reports>", "first"),
        ("skill.md", "Title\n=====\n\nText.", "title", "Title", "Title ====="),
        ("notes.md", "```\ncode\n```\n", "notes", "", "Notes"),
        ("named.md", "---\nname: Other One\n---\n# T\n", "other-one", "T", "T"),
        ("日本.md", "やること。", "日本", "", "やること。"),
    ],
)
def test_a_bare_markdown_upload(
    tmp_path: Path, file: str, content: str, name: str, title: str, description: str
) -> None:
    write_files(tmp_path, {file: content})
    entry = only(read_entries(tmp_path / file))
    assert (entry.skill.title, entry.skill.description) == (title, description)
    assert entry.name == name


@pytest.mark.parametrize("content", ["", "\n \n", "---\nname: x\n", b"\xff\xfe", b"a\0b", "---\n- a\n---\n"])
def test_an_upload_that_is_no_skill(tmp_path: Path, content: str | bytes) -> None:
    write_files(tmp_path, {"x.md": content})
    assert list(reasons(read_entries(tmp_path / "x.md"))) == ["x"]


@given(title=any_text, text=some_text)
@example(title="----", text="-----")
@law
def test_any_markdown_becomes_a_valid_skill(tmp_path: Path, title: str, text: str) -> None:
    top = fresh(tmp_path)
    write_files(top, {"some notes.md": f"# {title}\n\n{text}\n".replace("\x00", "").encode()})
    entry = only(read_entries(top / "some notes.md"))
    disk.write_tree(top / entry.name, entry.tree)
    assert validate(top / entry.name) == []


@given(skill=skills(), files=st.dictionaries(st.sampled_from(["a.md", "references/b.bin", "scripts/c"]), st.binary()))
@law
def test_what_is_written_reads_back_and_is_valid(tmp_path: Path, skill: Skill, files: dict[str, bytes]) -> None:
    top = fresh(tmp_path)
    item = outgoing(skill, files)
    (path,) = FORMAT.write_skills([item], top).paths
    assert validate(path) == []
    assert only(read_entries(top)).tree == item.tree


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    bad = outgoing(plain_skill("bad"))
    bad = OutgoingSkill(skill=bad.skill, tree={**bad.tree, "a": build_tree_file(b""), "a/b": build_tree_file(b"")})
    with pytest.raises(Exception, match="Can't write"):
        FORMAT.write_skills([outgoing(plain_skill("good")), bad], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_export_never_mixes_with_what_is_there(tmp_path: Path) -> None:
    out = write_files(tmp_path / "out", {"mine/SKILL.md": SKILL.format("mine")})
    with pytest.raises(Refused, match="is not empty"):
        FORMAT.write_skills([outgoing(plain_skill())], out)
    FORMAT.write_skills([outgoing(plain_skill())], out, overwrite=True)
    assert [path.name for path in out.iterdir()] == ["csv-summary"]
    assert (tmp_path / "out.old/mine/SKILL.md").is_file()
    (tmp_path / "empty").mkdir()
    assert FORMAT.write_skills([outgoing(plain_skill())], tmp_path / "empty").left_out == ()


def test_what_is_not_at_hand_is_left_out(tmp_path: Path) -> None:
    item = outgoing(plain_skill("big"))
    item = OutgoingSkill(skill=item.skill, tree={**item.tree, "big.bin": TreeFile(sha256="0" * 64, size=2**30)})
    written = FORMAT.write_skills([item, outgoing(plain_skill()), outgoing(plain_skill())], tmp_path / "out")
    assert [(entry.name, entry.reason) for entry in written.left_out] == [
        ("big", "big.bin is too large to be stored, and is not available."),
        ("csv-summary", "There is another skill for the directory 'csv-summary'."),
    ]


def test_reading_again_what_was_exported_twice_changes_nothing(tmp_path: Path) -> None:
    write_files(tmp_path / "in", {"one/SKILL.md": SKILL.format("one"), "two/skill.md": SKILL.format("two")})
    first = of_kind(read_entries(tmp_path / "in"), IncomingSkill)
    FORMAT.write_skills([again(entry) for entry in first], tmp_path / "out")
    assert [entry.tree for entry in of_kind(read_entries(tmp_path / "out"), IncomingSkill)] == [
        entry.tree for entry in first
    ]
