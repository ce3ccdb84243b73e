"""Harmless skills of many kinds, written here: a rule of screening that goes too wide holds one of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Direct

SKILLS = Path(__file__).with_name("harmless_skills.txt")
LEAST = 40  # skills


@pytest.mark.req("SC-07")
def test_no_harmless_skill_of_ours_would_wait(direct: Direct) -> None:
    _lay_out(SKILLS.read_text("utf-8"), direct.cli.cwd / "harmless")
    report = json.loads(direct("skills", "scan", "harmless", "--json").out)
    assert (len(report["scanned"]) >= LEAST, report["unreadable"]) == (True, [])
    held = [
        f"{one['name']}/{found['path']}:{found['line']}: {found['rule']}: {found['quote']}"
        for one in report["scanned"]
        for found in one["findings"]
        if found["severity"] == "high"
    ]
    assert held == []


def _lay_out(text: str, folder: Path) -> None:
    """The files below each `=== path`."""
    for path, content in re.findall(r"(?ms)^=== (\S+)\n(.*?)(?=^=== |\Z)", text):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content, "utf-8")
