"""What a skill can do beyond being read, and the words under which trust in it is kept."""

from __future__ import annotations

import json

import pytest

from habitus.files import TreeFile, build_tree_file
from habitus.skills.sources.trust import SkillPower, SkillPowerKind, list_skill_powers


def file(text: str) -> TreeFile:
    return build_tree_file(text.encode())


@pytest.mark.req("SK-21")
def test_powers_read_as_they_did_when_trust_was_first_kept() -> None:
    tree = {
        "SKILL.md": file(
            "---\nname: all-of-it\ndescription: Does it all.\nallowed-tools: Bash Read\nalways_include: true\n"
            "exclude_skills: [other]\nhooks: {a: 1}\n---\n\nDo it.\n"
        ),
        "scripts/run.py": file("print(1)\n"),
        "tool.json": file(json.dumps({"permissions": {"network": True, "read": ["/data"], "env": ["TOKEN"]}})),
    }
    digest = tree["scripts/run.py"].sha256[:16]
    found = list_skill_powers("all-of-it", tree)
    assert sorted(map(str, found)) == [
        "asks for the variable TOKEN",
        'installs hooks {"a": "1"}',
        "is put into every prompt",
        "may use the tool Bash",
        "may use the tool Read",
        "pushes out the skill other",
        "reads files in /data",
        f"runs scripts/run.py ({digest})",
        "uses the network",
    ]
    assert SkillPower(SkillPowerKind.RUNS, f"scripts/run.py ({digest})") in found


def test_a_skill_that_says_that_it_runs_something_has_no_code_for_it() -> None:
    """The kind decides, not the words: here the name of a skill reads like a script."""
    tree = {"SKILL.md": file("---\nname: a\ndescription: A.\nallowed-tools: runs\n---\n\nx\n")}
    assert [power.kind for power in list_skill_powers("a", tree)] == [SkillPowerKind.USES_TOOL]
