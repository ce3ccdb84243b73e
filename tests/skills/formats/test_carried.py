"""An export says what its layout has no place for."""

from __future__ import annotations

from pathlib import Path

import pytest

from habitus.files import build_tree_file
from habitus.skills.formats import conversion, detect
from habitus.skills.formats.base import OutgoingSkill, SkippedEntry
from habitus.skills.model import Manifest, Skill, Stage
from habitus.use_counts import UsageCounts

pytestmark = pytest.mark.req("SK-19")

PLAIN = Skill(name="plain", title="Plain", description="Says little.", body="# Steps\n\n1. Do it.")
RICH = Skill(
    name="csv-summary",
    title="CSV",
    description="Sums up a CSV.",
    when_to_use="somebody asks for sums",
    tags=("csv",),
    license="MIT",
    body="# Steps\n\n1. Do it.",
    manifest=Manifest(triggers=("csv",), always_include=True),
)
FILES = {
    "references/a.md": build_tree_file(b"x"),
    "tool.json": build_tree_file(b'{"name": "csv_summary", "description": "d", "parameters": {}}'),
    "scripts/tool.py": build_tree_file(b"def run():\n    return 1\n"),
}
COUNTERS = {Stage.STEPS: UsageCounts(recommended=3, used=2, succeeded=1)}


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("anton", "tags, license, triggers, always_include"),
        ("ghost", "title, when to use, tags, license, triggers, always_include, counters, references/a.md"),
        ("istota", "counters"),
        (
            "table",
            "when to use, license, triggers, always_include, counters, references/a.md, scripts/tool.py, tool.json",
        ),
        ("skill", "counters"),
    ],
)
def test_what_does_not_come_back_is_named(tmp_path: Path, name: str, missing: str) -> None:
    outgoing = [
        OutgoingSkill(skill=RICH, tree={**conversion.build_imported_skill_files(RICH, {}), **FILES}, counters=COUNTERS),
        OutgoingSkill(skill=PLAIN, tree=conversion.build_imported_skill_files(PLAIN, {})),
    ]
    form = detect.get_format_by_name(name)
    form.write_skills(outgoing, tmp_path / "out")
    assert detect.list_skills_losing_fields(form, outgoing, tmp_path / "out") == (
        SkippedEntry(origin=RICH.layer, name="csv-summary", reason=f"'{name}' has no place for: {missing}."),
    )
