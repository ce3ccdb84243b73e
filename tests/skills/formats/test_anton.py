from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.skills.formats.base import IncomingSkill
from habitus.skills.formats.detect import read_entries
from habitus.skills.formats.other_systems.anton import AntonFormat
from habitus.skills.model import Manifest, Skill, SkillSource, Stage
from habitus.use_counts import UsageCounts
from tests.skills.formats.made import (
    NOW,
    again,
    any_text,
    contents,
    counters,
    counts,
    folder_names,
    fresh,
    json_values,
    law,
    of_kind,
    only,
    outgoing,
    plain_skill,
    reasons,
    skills,
    timestamps,
    write_files,
)

pytestmark = pytest.mark.req("SK-19")

ANTON = AntonFormat()


META = {
    "label": "csv_summary",
    "name": "CSV Summary",
    "description": "Sums up a CSV file.",
    "when_to_use": "A CSV file needs a summary",
    "provenance": "manual",
    "created_at": "2026-02-03T04:05:06+00:00",
    "stage_1_present": True,
    "stage_2_present": True,
    "stage_3_present": True,
}
STATS = {
    "total_recalls": 7,
    "stage_1": {"recommended": 7, "used": 5, "last_used": "2026-02-04T00:00:00+00:00", "confidence": 0.0},
    "stage_2": {"recommended": 0, "used": 0, "last_used": "", "confidence": 0.0},
    "stage_3": {"recommended": 1, "used": 2, "last_used": "", "confidence": 0.0},
}
FILES: dict[str, str | bytes] = {
    "csv_summary/meta.json": json.dumps(META),
    "csv_summary/declarative.md": "# Steps\n\n1. Read the header.\n",
    "csv_summary/chunks.md": "## sum\n\nAdds up.\n",
    "csv_summary/code/__init__.py": "",
    "csv_summary/code/columns.py": "def columns():\n    return []\n",
    "csv_summary/requirements.txt": "# for columns\npandas>=2  # tables\n-r other.txt\n\nrich\n",
    "csv_summary/stats.json": json.dumps(STATS),
}


def test_every_field_has_its_place(tmp_path: Path) -> None:
    entry = only(read_entries(write_files(tmp_path / "skills", FILES)))
    skill = entry.skill
    assert (entry.name, entry.format, entry.origin) == ("csv-summary", "anton", "skills/csv_summary")
    assert (skill.title, skill.description) == ("CSV Summary", "Sums up a CSV file.")
    assert skill.when_to_use == "A CSV file needs a summary"
    assert skill.body == "# Steps\n\n1. Read the header."
    assert skill.source is SkillSource.USER
    assert skill.manifest.dependencies == ("pandas>=2", "rich")
    assert entry.created_on == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert entry.counters == {
        Stage.STEPS: UsageCounts(recommended=7, used=5, last_used=datetime(2026, 2, 4, tzinfo=UTC)),
        Stage.CODE: UsageCounts(recommended=1, used=2),
    }
    assert set(entry.tree) == {
        *("SKILL.md", "chunks.md", "requirements.txt", "scripts/__init__.py", "scripts/columns.py"),
    }


def test_export_gives_the_files_back(tmp_path: Path) -> None:
    entry = only(read_entries(write_files(tmp_path / "in", FILES)))
    written = ANTON.write_skills([again(entry)], tmp_path / "out")
    assert written.paths == (tmp_path / "out/csv_summary",)
    for path in ("chunks.md", "code/__init__.py", "code/columns.py", "requirements.txt", "declarative.md"):
        assert (tmp_path / "out/csv_summary" / path).read_text() == FILES[f"csv_summary/{path}"]
    meta = json.loads((tmp_path / "out/csv_summary/meta.json").read_text())
    assert meta == {**META, "created_at": "2026-02-03T04:05:06Z"}
    stats = json.loads((tmp_path / "out/csv_summary/stats.json").read_text())
    assert stats["stage_1"] | {"last_used": ""} == {
        "recommended": 7,
        "used": 5,
        "last_used": "",
        "confidence": 0.0,
        "succeeded": 0,
        "failed": 0,
    }


@given(skill=skills(), steps=counters(), code=counters(), dependencies=st.lists(st.sampled_from(["rich", "a-b>=2"])))
@law
def test_what_is_written_reads_back(
    tmp_path: Path, skill: Skill, steps: UsageCounts, code: UsageCounts, dependencies: list[str]
) -> None:
    skill = replace(skill, manifest=Manifest(dependencies=tuple(dependencies)))
    files = {"chunks.md": b"## a\r\n", "scripts/x.py": b"\xff", "references/a b.md": b"hello", "tool.json": b"{}"}
    given_counters = {
        stage: found for stage, found in ((Stage.STEPS, steps), (Stage.CODE, code)) if found != UsageCounts()
    }
    top = fresh(tmp_path)
    ANTON.write_skills([outgoing(skill, files, given_counters)], top)
    entry = only(read_entries(top))
    found = entry.skill
    assert (found.name, found.title, found.description) == (skill.name, skill.title, skill.description)
    assert (found.when_to_use, found.body) == (skill.when_to_use, skill.body)
    assert found.manifest.dependencies == skill.manifest.dependencies
    assert entry.counters == given_counters
    assert entry.created_on == skill.created_on
    assert {path: content for path, content in contents(entry.tree).items() if path in files} == files


@pytest.mark.full
@given(
    label=folder_names,
    fields=st.fixed_dictionaries(
        {"name": any_text, "description": any_text, "when_to_use": any_text, "provenance": any_text}
    ),
    extra=st.dictionaries(st.sampled_from(["notes", "owner"]), json_values.filter(lambda value: value is not None)),
    steps=any_text,
    created=timestamps,
    recommended=counts,
)
@law
def test_what_was_read_is_written_back(
    tmp_path: Path,
    label: str,
    fields: dict[str, str],
    extra: dict[str, object],
    steps: str,
    created: datetime,
    recommended: int,
) -> None:
    top = fresh(tmp_path)
    meta = {"label": label, **fields, **extra, "created_at": created.isoformat()}
    steps = steps.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    files: dict[str, str | bytes] = {
        "meta.json": json.dumps(meta),
        "declarative.md": steps.encode(),
        "stats.json": json.dumps({"stage_1": {"recommended": recommended}}),
    }
    write_files(top / "in" / label, files)
    entry = only(read_entries(top / "in"))
    (path,) = ANTON.write_skills([again(entry)], top / "out").paths
    assert path.name == label
    back = json.loads((path / "meta.json").read_text())
    assert {key: back[key] for key in (*fields, *extra, "label")} == {**fields, **extra, "label": label}
    assert datetime.fromisoformat(back["created_at"]) == created
    is_blank = not steps.strip("\n")
    assert (path / "declarative.md").read_text("utf-8-sig") == ("" if is_blank else steps.removeprefix("\ufeff"))
    assert json.loads((path / "stats.json").read_text())["stage_1"]["recommended"] == recommended
    again_read = only(read_entries(top / "out"))
    assert (again_read.tree, again_read.counters) == (entry.tree, entry.counters)


def test_a_damaged_side_file_costs_only_what_it_said(tmp_path: Path) -> None:
    files = {**FILES, "csv_summary/meta.json": "{", "csv_summary/stats.json": '{"stage_1": 3, "stage_2": {"used": -1}}'}
    entry = only(read_entries(write_files(tmp_path / "skills", files)))
    assert entry.skill.body.startswith("# Steps")
    assert entry.counters == {}
    said = " ".join(map(str, entry.diagnostics))
    assert "meta.json is not valid JSON" in said
    assert "stage_1 that is not an object" in said


def test_a_skill_without_steps_is_left_out_and_its_neighbour_is_not(tmp_path: Path) -> None:
    files = {**FILES, "broken/meta.json": json.dumps(META), "bytes/declarative.md": b"\xff\xfe"}
    entries = list(read_entries(write_files(tmp_path / "skills", files)))
    assert [entry.name for entry in of_kind(entries, IncomingSkill)] == ["csv-summary"]
    assert reasons(entries) == {
        "broken": "There is no declarative.md in it.",
        "bytes": "declarative.md is not UTF-8 at byte 0.",
    }


def test_two_labels_that_come_to_one_name(tmp_path: Path) -> None:
    files = {f"{label}/declarative.md": f"Steps of {label}" for label in ("a_b", "a-b", "A B")}
    entries = list(read_entries(write_files(tmp_path / "skills", files)))
    assert [entry.origin for entry in of_kind(entries, IncomingSkill)] == ["skills/A B"]
    assert len(reasons(entries)) == 1
    assert "skills/A B is called 'a-b' too and came first" in reasons(entries)["a-b"]


def test_a_clash_of_code_and_scripts_loses_neither(tmp_path: Path) -> None:
    files = {**FILES, "csv_summary/scripts/columns.py": "other"}
    entry = only(read_entries(write_files(tmp_path / "in", files)))
    ANTON.write_skills([again(entry)], tmp_path / "out")
    assert only(read_entries(tmp_path / "out")).tree == entry.tree
    assert (tmp_path / "out/csv_summary/scripts/columns.py").read_text() == "other"


def test_a_native_skill_is_spelt_as_the_source_spells(tmp_path: Path) -> None:
    ANTON.write_skills([outgoing(plain_skill(source=SkillSource.AGENT, created_on=NOW))], tmp_path / "out")
    meta = json.loads((tmp_path / "out/csv_summary/meta.json").read_text())
    assert (meta["label"], meta["provenance"]) == ("csv_summary", "consolidator")
