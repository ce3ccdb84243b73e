from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from habitus.skills.formats import frontmatter
from habitus.skills.formats.base import IncomingSkill, SkippedEntry
from habitus.skills.formats.detect import read_entries
from habitus.skills.formats.other_systems import istota
from habitus.skills.formats.other_systems.istota import IstotaFormat
from habitus.skills.model import Manifest, Skill
from tests.skills.formats.made import (
    again,
    any_text,
    contents,
    folder_names,
    fresh,
    law,
    manifests,
    of_kind,
    only,
    outgoing,
    plain_skill,
    reasons,
    skills,
    some_text,
    words,
    write_files,
)

pytestmark = pytest.mark.req("SK-19")

ISTOTA = IstotaFormat()

MAIN = """---
name: bike_rides
triggers: [bike, ride, "gravel, road"]
description: Plans bike rides
cli: true
always_include: true
source_types: [morning]
companion_skills: [weather]
dependencies: [gpxpy>=1.6]
env: [{"var":"RIDES_URL","from":"secret","service":"rides","key":"url","sensitive":true}]
requires_capability: [maps]
irreversible: [delete, "send: all"]
---
# Bike rides

Ask {BOT_NAME} first; shell stays ${HOME}.
"""
MODULE = """import argparse, json
from .words import GREETING

def build_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("who")
    return parser

def main():
    print(json.dumps({"status": "ok", "said": GREETING + build_parser().parse_args().who}))
"""
FILES: dict[str, str | bytes] = {
    "bike_rides/skill.md": MAIN,
    "bike_rides/__init__.py": MODULE,
    "bike_rides/__main__.py": "from istota.skills.bike_rides import main\n\nmain()\n",
    "bike_rides/words.py": "GREETING = 'Hello '\n",
    "notes/skill.md": "---\nname: notes\ndescription: Keeps notes\n---\nWrite them down.\n",
    "CHANGELOG.md": "# Changes\n\n- bike-rides: gravel too\n- notes are kept\n- motorbike_rides is something else\n",
}


def named(entries: list[IncomingSkill], name: str) -> IncomingSkill:
    return next(entry for entry in entries if entry.name == name)


def test_every_manifest_field_has_its_place(tmp_path: Path) -> None:
    entries = of_kind(read_entries(write_files(tmp_path / "skills", FILES)), IncomingSkill)
    assert [(entry.name, entry.format) for entry in entries] == [("bike-rides", "istota"), ("notes", "istota")]
    skill = entries[0].skill
    assert skill.manifest == Manifest(
        triggers=("bike", "ride", "gravel, road"),
        cli=True,
        always_include=True,
        source_types=("morning",),
        companion_skills=("weather",),
        dependencies=("gpxpy>=1.6",),
        env=({"var": "RIDES_URL", "from": "secret", "service": "rides", "key": "url", "sensitive": True},),
        requires_tools=("maps",),
        placeholders=True,
    )
    assert skill.extra == {"irreversible": ["delete", "send: all"]}
    assert skill.body == "# Bike rides\n\nAsk {BOT_NAME} first; shell stays ${HOME}."
    assert entries[0].changelog == ("- bike-rides: gravel too",)
    assert entries[1].changelog == ("- notes are kept",)


def test_export_gives_the_manifest_and_the_modules_back(tmp_path: Path) -> None:
    entries = of_kind(read_entries(write_files(tmp_path / "in", FILES)), IncomingSkill)
    ISTOTA.write_skills([again(entry) for entry in entries], tmp_path / "out")
    before, after = (_fields((tmp_path / side / "bike_rides/skill.md").read_text()) for side in ("in", "out"))
    assert after == before
    assert (
        (tmp_path / "out/bike_rides/skill.md")
        .read_text()
        .endswith("---\n" + MAIN.partition("---\n# ")[2].join(["# ", ""]))
    )
    for path in ("__init__.py", "__main__.py", "words.py"):
        assert (tmp_path / "out/bike_rides" / path).read_text() == FILES[f"bike_rides/{path}"]
    assert not (tmp_path / "out/bike_rides/scripts").exists()


def _fields(text: str) -> dict[str, object]:
    return frontmatter.parse_fields_with_diagnostics(frontmatter.split_front_matter(text, "").front or "", "")[0]


@pytest.mark.req("SB-10")
@pytest.mark.parametrize("left_out", [None, "bike_rides/__main__.py"])
def test_the_command_line_runs_from_scripts(tmp_path: Path, left_out: str | None) -> None:
    files = {path: content for path, content in FILES.items() if path != left_out}
    entries = of_kind(read_entries(write_files(tmp_path / "in", files)), IncomingSkill)
    entry = named(entries, "bike-rides")
    write_files(tmp_path / "skill", contents(entry.tree))
    command = [sys.executable, "-I", str(tmp_path / "skill/scripts/cli.py"), "you"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == {"status": "ok", "said": "Hello you"}


@pytest.mark.req("SB-10")
def test_a_command_line_that_is_only_a_main_module_runs(tmp_path: Path) -> None:
    files = {
        "one/skill.md": "---\nname: one\ndescription: One\ncli: true\n---\nx\n",
        "one/__main__.py": "import sys\nprint('main', sys.argv[1])\n",
    }
    entry = only(read_entries(write_files(tmp_path / "in", files)))
    write_files(tmp_path / "skill", contents(entry.tree))
    command = [sys.executable, "-I", str(tmp_path / "skill/scripts/cli.py"), "x"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "main x\n"


def test_imports_that_did_not_come_along_are_said(tmp_path: Path) -> None:
    files = {**FILES, "bike_rides/__init__.py": f"from istota.config import load\nfrom .. import shared\n{MODULE}"}
    entry = named(of_kind(read_entries(write_files(tmp_path / "in", files)), IncomingSkill), "bike-rides")
    assert "imports .., istota.config, which did not come along" in " ".join(map(str, entry.diagnostics))


def test_fields_of_a_toml_file_return_to_it(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "night/skill.toml": '[skill]\ntriggers = ["moon", "a\\nb"]\ncli = false\nadmin_only = true\n'
        "odd = {x = [1, 2.5]}\nsince = 2026-01-01\n",
        "night/skill.md": "---\nname: night\ndescription: At night\n---\nSleep.\n",
        "alone/skill.toml": 'description = "Only this file"\nalways_include = true\n',
    }
    entries = of_kind(read_entries(write_files(tmp_path / "in", files)), IncomingSkill)
    assert named(entries, "alone").skill.manifest.always_include
    night = named(entries, "night")
    assert (night.skill.manifest.triggers, night.skill.manifest.admin_only) == (("moon", "a\nb"), True)
    assert "skill.toml" not in night.tree
    ISTOTA.write_skills([again(entry) for entry in entries], tmp_path / "out")
    assert (tmp_path / "out/night/skill.toml").is_file()
    assert "triggers" not in (tmp_path / "out/night/skill.md").read_text()
    back = of_kind(read_entries(tmp_path / "out"), IncomingSkill)
    assert [entry.tree for entry in back] == [entry.tree for entry in entries]


@pytest.mark.full
@example(
    skill=plain_skill(), manifest=Manifest(env=({"var": "A", "from": "true", "proxy_only": True},)), extra={"a": []}
)
@given(skill=skills(), manifest=manifests(), extra=st.dictionaries(st.sampled_from(["a", "b-c"]), words.map(list)))
@law
def test_what_is_written_reads_back(tmp_path: Path, skill: Skill, manifest: Manifest, extra: dict[str, object]) -> None:
    skill = replace(skill, manifest=manifest, extra=extra)
    top = fresh(tmp_path)
    # A plain neighbour shows nothing of the layout by itself.
    ISTOTA.write_skills([outgoing(skill, {"references/x.bin": b"\0"}), outgoing(plain_skill("zz-" + skill.name))], top)
    (top / f"zz_{skill.name.replace('-', '_')}" / "skill.toml").write_text("")
    entry = next(found for found in of_kind(read_entries(top), IncomingSkill) if found.name == skill.name)
    found = entry.skill
    assert (found.title, found.description, found.when_to_use) == (skill.title, skill.description, skill.when_to_use)
    assert (found.tags, found.body, found.extra) == (skill.tags, skill.body, skill.extra)
    for field in istota.MANIFEST_FIELDS:
        assert getattr(found.manifest, field) == getattr(manifest, field), field
    assert entry.tree["references/x.bin"].content == b"\0"


@given(folder=folder_names, description=any_text, body=some_text)
@law
def test_what_was_read_is_written_back(tmp_path: Path, folder: str, description: str, body: str) -> None:
    top = fresh(tmp_path)
    body = body.replace("\r", "\n").replace("\x00", "").strip("\n") or "x"
    front = (
        f"name: {frontmatter.format_scalar(folder)}\ndescription: {frontmatter.format_scalar(description)}\ncli: true\n"
    )
    write_files(top / "in" / folder, {"skill.md": f"---\n{front}---\n{body}\n"})
    entry = only(read_entries(top / "in"))
    (path,) = ISTOTA.write_skills([again(entry)], top / "out").paths
    assert path.name == folder
    assert only(read_entries(top / "out")).tree == entry.tree
    text = (path / "skill.md").read_bytes().decode()
    assert str(_fields(text)["description"]).strip() == description.strip()
    assert text.endswith(f"---\n{body}\n")


def test_a_broken_manifest_does_not_hide_its_neighbours(tmp_path: Path) -> None:
    files = {
        **FILES,
        "bad/skill.md": "---\ncli: [\n---\n",
        "worse/skill.toml": "=",
        "open/skill.md": "---\ncli: true\n",
    }
    entries = list(read_entries(write_files(tmp_path / "skills", files)))
    assert len(of_kind(entries, IncomingSkill)) == 2
    assert set(reasons(entries)) == {"bad", "worse", "open"}
    assert "never closed" in reasons(entries)["open"]
    assert "Not valid TOML" in reasons(entries)["worse"]


def test_a_native_command_line_becomes_a_package(tmp_path: Path) -> None:
    code = b"def main():\n    print('hi')\n\nif __name__ == '__main__':\n    main()\n"
    skill = plain_skill(manifest=Manifest(cli=True))
    ISTOTA.write_skills([outgoing(skill, {"scripts/cli.py": code})], tmp_path / "out")
    package = tmp_path / "out/csv_summary"
    ran = subprocess.run(
        [sys.executable, "-m", "csv_summary"], cwd=package.parent, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "hi\n"
    assert only(read_entries(tmp_path / "out")).tree["scripts/cli.py"].content == code


def test_the_public_collection(tmp_path: Path) -> None:
    data = os.environ.get("HABITUS_BENCH_DATA")
    if not data:
        pytest.skip("HABITUS_BENCH_DATA names no directory with the public sets")
    entries = list(read_entries(Path(data) / "skill_collections" / "istota"))
    assert of_kind(entries, SkippedEntry) == []
    found = of_kind(entries, IncomingSkill)
    assert len(found) == 36
    assert sum(entry.skill.manifest.always_include for entry in found) == 7
    assert sum(entry.skill.manifest.cli for entry in found) == 22
    ISTOTA.write_skills([again(entry) for entry in found], tmp_path / "out")
    assert [entry.tree for entry in of_kind(read_entries(tmp_path / "out"), IncomingSkill)] == [
        entry.tree for entry in found
    ]
