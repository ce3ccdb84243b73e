"""An export says what its layout has no place for."""

from __future__ import annotations

from pathlib import Path

import pytest

from habitus.files import file_of
from habitus.skills.formats import detect, fitting
from habitus.skills.formats.base import NotTaken, Outgoing
from habitus.skills.model import Counters, Manifest, Skill, Stage

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
    "references/a.md": file_of(b"x"),
    "tool.json": file_of(b'{"name": "csv_summary", "description": "d", "parameters": {}}'),
    "scripts/tool.py": file_of(b"def run():\n    return 1\n"),
}
COUNTERS = {Stage.STEPS: Counters(recommended=3, used=2, succeeded=1)}


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
        Outgoing(skill=RICH, tree={**fitting.folder(RICH, {}), **FILES}, counters=COUNTERS),
        Outgoing(skill=PLAIN, tree=fitting.folder(PLAIN, {})),
    ]
    form = detect.format_named(name)
    form.write(outgoing, tmp_path / "out")
    assert detect.lost(form, outgoing, tmp_path / "out") == (
        NotTaken(origin=RICH.layer, name="csv-summary", reason=f"'{name}' has no place for: {missing}."),
    )
