from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skills_ref import validate

from habitus.errors import Invalid, NotFound, StorageFailed
from habitus.files import build_tree_file
from habitus.skills.formats import disk
from habitus.skills.formats.base import IncomingSkill, SkillFormat, SkippedEntry, resolve_name_conflicts
from habitus.skills.formats.detect import FORMATS, get_format_by_name, read_entries
from tests.skills.formats.made import again, fresh, json_values, law, of_kind, reasons, taken, write_files

pytestmark = pytest.mark.req("SK-18", "SK-19")


FILES: dict[str, str | bytes] = {
    "anton/csv_summary/declarative.md": "Read it.",
    "anton/csv_summary/meta.json": json.dumps({"label": "csv_summary", "name": "CSV", "when_to_use": "a <b> CSV"}),
    "anton/migrated/SKILL.md": "---\nname: migrated\ndescription: New style.\n---\nDo.\n",
    "ghost/acquired_skills/skills_registry.json": json.dumps({"my_tool": {"description": "", "parameters_schema": {}}}),
    "ghost/acquired_skills/my_tool.py": "print(1)",
    "istota/CHANGELOG.md": "x",
    "istota/mail_box/skill.md": "---\nname: mail_box\ndescription: Mail\ntriggers: [mail]\n---\nRead {BOT_NAME}.\n",
    "plain/one/SKILL.md": "---\nname: one\ndescription: One.\n---\nDo.\n",
    "plain/lower/skill.md": "---\nname: lower\ndescription: Lower.\n---\nSay {USER}.\n",
    "other/meta.json": "{}",
}


def test_a_tree_of_several_layouts(tmp_path: Path) -> None:
    entries = list(read_entries(write_files(tmp_path / "all", FILES)))
    assert of_kind(entries, SkippedEntry) == []
    assert {entry.name: entry.format for entry in of_kind(entries, IncomingSkill)} == {
        "csv-summary": "anton",
        "migrated": "skill",
        "my-tool": "ghost",
        "mail-box": "istota",
        "one": "skill",
        "lower": "skill",
    }


def test_everything_read_is_a_valid_skill_and_reads_the_same_twice(tmp_path: Path) -> None:
    top = write_files(tmp_path / "all", FILES)
    first, second = (of_kind(read_entries(top), IncomingSkill) for _ in range(2))
    assert first == second
    for entry in first:
        disk.write_tree(tmp_path / "out" / entry.name, entry.tree)
        assert validate(tmp_path / "out" / entry.name) == []


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_every_format_takes_every_skill_it_has_a_place_for(tmp_path: Path, format: SkillFormat) -> None:
    skills = [again(entry) for entry in of_kind(read_entries(write_files(tmp_path / "all", FILES)), IncomingSkill)]
    to = tmp_path / "out"
    written = format.write_skills(skills, to)
    found = {entry.name for entry in of_kind(read_entries(to, (format,)), IncomingSkill)}
    left_out = {entry.name for entry in written.left_out}
    assert found | left_out == {item.skill.name for item in skills}
    assert not found & left_out
    assert not left_out or format.name == "ghost"
    assert list(tmp_path.glob(".habitus-*")) == []


def test_a_directory_called_like_a_file_is_no_file(tmp_path: Path) -> None:
    write_files(tmp_path / "top", {"SKILL.md/one/SKILL.md": "---\nname: one\ndescription: One.\n---\nDo.\n"})
    assert taken(read_entries(tmp_path / "top")) == ["one"]


def test_nothing_that_fits_says_so(tmp_path: Path) -> None:
    write_files(tmp_path / "empty", {"a/b.txt": "x"})
    assert "There is no skill in it" in reasons(read_entries(tmp_path / "empty"))["empty"]
    write_files(tmp_path, {"x.pdf": "x"})
    assert "A .pdf file is nothing" in reasons(read_entries(tmp_path / "x.pdf"))["x"]


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="There is no"):
        read_entries(tmp_path / "gone")
    with pytest.raises(Invalid, match="There is no format 'yaml'"):
        get_format_by_name("yaml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_may_not_be_read(tmp_path: Path) -> None:
    top = write_files(tmp_path / "all", FILES)
    (top / "plain").chmod(0)
    assert reasons(read_entries(top)) == {"plain": "Can't look into it: Permission denied."}
    with pytest.raises(StorageFailed):
        read_entries(top / "plain")
    (top / "plain").chmod(0o755)


def test_links_to_elsewhere_are_not_followed(tmp_path: Path) -> None:
    write_files(tmp_path / "elsewhere", FILES)
    top = write_files(tmp_path / "top", {"one/SKILL.md": "---\nname: one\ndescription: One.\n---\nDo.\n"})
    (top / "link").symlink_to(tmp_path / "elsewhere")
    (top / "loop").symlink_to(top)
    assert taken(read_entries(top)) == ["one"]


@pytest.mark.full
def test_twenty_thousand_files(tmp_path: Path) -> None:
    for number in range(2_000):
        folder = tmp_path / "many" / f"skill-{number}"
        write_files(folder, {"SKILL.md": f"---\nname: skill-{number}\ndescription: Number {number}.\n---\nDo.\n"})
    for number in range(18_000):
        (tmp_path / "many" / f"noise-{number}.txt").touch()
    assert sum(isinstance(entry, IncomingSkill) for entry in read_entries(tmp_path / "many")) == 2_000


_KEYS = [
    *("label", "name", "description", "when_to_use", "provenance", "created_at", "stage_1", "recommended", "last_used"),
    *("parameters_schema", "usage_count", "failure_count", "status", "content_hash", "habitus", "steps", "branches"),
    *("tool", "params", "trigger", "solution", "confidence", "domains", "_id", "content", "tags", "version", "enabled"),
]
_plausible = st.recursive(
    json_values | st.sampled_from([float("nan"), 10**400, -1, "1e999", "2026-99-99", "\ud800", True]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=6),
    max_leaves=12,
)


@pytest.mark.full
@given(value=_plausible, name=st.sampled_from(_KEYS))
@law
def test_no_json_makes_a_reader_raise(tmp_path: Path, value: object, name: str) -> None:
    content = json.dumps(value if isinstance(value, list) else {name: value})
    top = fresh(tmp_path)
    files: dict[str, str | bytes] = {
        "anton/x/declarative.md": "Do.",
        "anton/x/meta.json": content,
        "anton/x/stats.json": content,
        "ghost/skills_registry.json": content,
        f"ghost/{name}.py": "",
        "ghost/composed_skills.json": content,
        "ghost/skills_playbook.json": content,
        "rows.json": content,
    }
    write_files(top, files)
    entries = [*read_entries(top), *read_entries(top / "rows.json")]
    skills = [again(entry) for entry in of_kind(entries, IncomingSkill)]
    for format in FORMATS:
        format.write_skills(skills, top / "out" / format.name)


def test_one_format_alone_reads_only_its_own(tmp_path: Path) -> None:
    top = write_files(tmp_path / "all", FILES)
    assert taken(read_entries(top, (get_format_by_name("anton"),))) == ["csv-summary"]


@given(found=st.lists(st.tuples(st.sampled_from(["a", "a-2", "b"]), st.sampled_from("xyz")), max_size=8))
@law
def test_every_name_is_given_once_and_nothing_but_copies_is_lost_when_both_are_kept(
    found: list[tuple[str, str]],
) -> None:
    entries = [
        IncomingSkill(
            name=name,
            tree={"SKILL.md": build_tree_file(f"---\nname: {name}\ndescription: D.\n---\n{body}\n".encode())},
            origin=str(number),
            format="skill",
        )
        for number, (name, body) in enumerate(found)
    ]
    for keep_both in (False, True):
        told = list(resolve_name_conflicts(entries, keep_both=keep_both))
        taken = of_kind(told, IncomingSkill)
        assert [entry.origin for entry in told] == [entry.origin for entry in entries]
        assert len({entry.name for entry in taken}) == len(taken)
        assert all(entry.skill.name == entry.name for entry in taken)
        assert len(taken) == len(set(found) if keep_both else {name for name, _ in found})
