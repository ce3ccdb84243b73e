from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.skills.formats import recipes_md, tool_json
from habitus.skills.formats.base import IncomingSkill, PlaybookLesson
from habitus.skills.formats.detect import read_entries
from habitus.skills.formats.foreign_values import DiagnosticCollector
from habitus.skills.formats.other_systems.ghost import GhostFormat
from habitus.skills.formats.recipes_md import Recipe
from habitus.skills.formats.tool_json import ToolContract
from habitus.skills.model import SkillSource, Stage
from habitus.use_counts import UsageCounts
from tests.skills.formats.made import (
    again,
    any_text,
    counters,
    fresh,
    json_values,
    law,
    legal_names,
    of_kind,
    only,
    outgoing,
    plain_skill,
    reasons,
    some_text,
    write_files,
)

pytestmark = pytest.mark.req("SK-19")

GHOST = GhostFormat()

CODE = "import json, sys\nprint(json.dumps({'ok': sys.argv[1]}))\n"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def entry_of(name: str, **changes: Any) -> dict[str, Any]:
    entry = {
        "name": name,
        "description": "Says the weather of a city",
        "parameters_schema": SCHEMA,
        "usage_count": 7,
        "failure_count": 1,
        "status": "active",
    }
    entry |= changes
    whole = CODE + json.dumps(entry["parameters_schema"], sort_keys=True) + str(entry["description"])
    return {**entry, "content_hash": changes.get("content_hash", hashlib.md5(whole.encode()).hexdigest())}


STEPS = [
    {"tool_name": "fetch", "description": "get it", "param_template": {"url": "$url", "deep": {"n": [1, "$n"]}}},
    {"tool_name": "parse", "description": "", "param_template": {}, "branch_condition": "error", "branch_target": "no"},
    {"tool_name": "say", "description": "tell", "param_template": {"text": "yes"}, "optional": True},
]
MACRO = {
    "name": "fetch_and_say",
    "trigger_description": "Fetch a page and say what is in it",
    "steps": STEPS,
    "branches": {"no": [{"tool_name": "say", "description": "", "param_template": {"text": "no"}}]},
    "execution_mode": "sequential",
    "status": "proposed",
    "usage_count": 5,
    "success_count": 3,
    "success_rate": 0.6,
    "last_used": 1767225600.0,
    "created_at": 1767139200.5,
}
LESSON = {
    "timestamp": "2026-01-02T03:04:05",
    "trigger": "When parsing dates",
    "anti_pattern": "Guessing the order",
    "correct_pattern": "Ask for ISO 8601",
    "domains": ["parsing"],
    "confidence": 0.8,
    "source_challenge_hash": "abc",
    "frequency": 3,
    "retrievals": 9,
    "helpful_retrievals": 4,
    "last_retrieved_at": "2026-01-05T00:00:00+00:00",
    "verified": True,
    "source": "self_play",
    "graduated": False,
}
FILES: dict[str, str | bytes] = {
    "memory/acquired_skills/skills_registry.json": json.dumps(
        {
            "city_weather": entry_of("city_weather", author="me"),
            "tired": entry_of("tired", status="degraded", failure_count=4),
        }
    ),
    "memory/acquired_skills/city_weather.py": CODE,
    "memory/acquired_skills/tired.py": CODE,
    "memory/acquired_skills/retired/old_tool.py": CODE,
    "memory/composed_skills/composed_skills.json": json.dumps({"fetch_and_say": MACRO}),
    "memory/skills_playbook.json": json.dumps([LESSON, {"task": "t", "mistake": "m", "solution": "s"}]),
}


def by_name(entries: list[IncomingSkill]) -> dict[str, IncomingSkill]:
    return {entry.name: entry for entry in entries}


def test_a_tool_comes_with_its_schema_code_and_counters(tmp_path: Path) -> None:
    found = by_name(of_kind(read_entries(write_files(tmp_path, FILES)), IncomingSkill))
    assert sorted(found) == ["city-weather", "fetch-and-say", "old-tool", "tired"]
    entry = found["city-weather"]
    code = CODE.encode()
    assert entry.tree["scripts/tool.py"].content == code
    assert json.loads(entry.tree["tool.json"].content or b"") == {
        "name": "city_weather",
        "description": "Says the weather of a city",
        "parameters": SCHEMA,
        "permissions": {"network": False, "read": [], "write": [], "env": []},
        "cases": [],
        "hash": hashlib.sha256(code).hexdigest(),
    }
    assert entry.counters == {Stage.CODE: UsageCounts(used=8, succeeded=7, failed=1)}
    assert (entry.enabled, entry.status, entry.diagnostics) == (True, "active", ())
    assert entry.skill.stages == {Stage.STEPS}  # a summary reads the stages from the files
    assert entry.skill.source is SkillSource.AGENT
    assert (found["tired"].enabled, found["tired"].status) == (True, "degraded")
    assert (found["old-tool"].enabled, found["old-tool"].status) == (False, "retired")


@pytest.mark.req("LA-02")
def test_a_composed_skill_becomes_a_recipe(tmp_path: Path) -> None:
    entry = by_name(of_kind(read_entries(write_files(tmp_path, FILES)), IncomingSkill))["fetch-and-say"]
    (recipe,) = recipes_md.parse_recipes(entry.tree["chunks.md"].content or b"", DiagnosticCollector(""))
    assert recipe == Recipe(
        name="fetch_and_say",
        prose="Fetch a page and say what is in it",
        steps=(
            {"tool": "fetch", "description": "get it", "params": {"url": "$url", "deep": {"n": [1, "$n"]}}},
            {"tool": "parse", "params": {}, "on_fail": "no"},
            {"tool": "say", "description": "tell", "params": {"text": "yes"}, "optional": True},
        ),
        branches={"no": ({"tool": "say", "params": {"text": "no"}},)},
        params={"n": {}, "url": {}},
    )
    assert entry.counters == {
        Stage.CHUNKS: UsageCounts(used=5, succeeded=3, failed=2, last_used=datetime(2026, 1, 1, tzinfo=UTC))
    }
    assert (entry.enabled, entry.status) == (False, "proposed")


@pytest.mark.req("ME-01")
def test_a_playbook_comes_as_lessons(tmp_path: Path) -> None:
    lessons = of_kind(read_entries(write_files(tmp_path, FILES)), PlaybookLesson)
    assert lessons[0] == PlaybookLesson(
        origin=f"{tmp_path.name}/memory/skills_playbook.json, lesson 1",
        trigger="When parsing dates",
        anti_pattern="Guessing the order",
        correct_pattern="Ask for ISO 8601",
        domains=("parsing",),
        confidence=0.8,
        source="self_play",
        source_challenge_hash="abc",
        frequency=3,
        retrievals=9,
        helpful=4,
        last_retrieved=datetime(2026, 1, 5, tzinfo=UTC),
        verified=True,
        created_on=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        extra={"graduated": False},
    )
    assert (lessons[1].trigger, lessons[1].anti_pattern, lessons[1].correct_pattern) == ("t", "m", "s")


def test_export_gives_the_files_back(tmp_path: Path) -> None:
    entries = list(read_entries(write_files(tmp_path / "in", FILES)))
    out = tmp_path / "out"
    written = GHOST.write_skills([again(entry) for entry in of_kind(entries, IncomingSkill)], out)
    assert written.left_out == ()
    for file in ("acquired_skills/skills_registry.json", "composed_skills/composed_skills.json"):
        before, after = (json.loads((tmp_path / top / file).read_text()) for top in ("in/memory", "out"))
        assert without_ours(after) == before
    assert (out / "acquired_skills/retired/old_tool.py").read_text() == CODE
    back = list(read_entries(out))
    assert [(entry.tree, entry.counters, entry.status) for entry in of_kind(back, IncomingSkill)] == [
        (entry.tree, entry.counters, entry.status) for entry in of_kind(entries, IncomingSkill)
    ]


def without_ours(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: {key: entry[key] for key in entry if key != "habitus"} for name, entry in entries.items()}


def test_a_registry_entry_without_its_file(tmp_path: Path) -> None:
    registry = {
        "good": entry_of("good"),
        "gone": entry_of("gone"),
        "../../etc/passwd": entry_of("x"),
        "odd": 3,
        "linked": entry_of("linked"),
    }
    files: dict[str, str | bytes] = {"skills_registry.json": json.dumps(registry), "good.py": CODE, "stray.py": CODE}
    write_files(tmp_path / "acquired_skills", files)
    (tmp_path / "acquired_skills/linked.py").symlink_to("/etc/hosts")
    entries = list(read_entries(tmp_path / "acquired_skills"))
    assert [entry.name for entry in of_kind(entries, IncomingSkill)] == ["good"]
    found = reasons(entries)
    assert found.pop("linked").startswith("Can't read linked.py")
    assert found == {
        "gone": "There is no gone.py for it.",
        "../../etc/passwd": "Its name can't be that of a file.",
        "odd": "The entry is not an object.",
        "stray": "skills_registry.json has no entry for it.",
    }


def test_code_that_is_not_what_was_registered_is_said(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "skills_registry.json": json.dumps({"x": entry_of("x", content_hash="0" * 32, parameters_schema="not json")}),
        "x.py": CODE,
    }
    entry = only(read_entries(write_files(tmp_path / "t", files)))
    said = " ".join(map(str, entry.diagnostics))
    assert "its hash differs" in said
    assert "no schema of its parameters" in said


@pytest.mark.parametrize("content", ["", "{", "[1]", "3", '"x"', '{"a": {"steps": 3}}', "[" * 100_000, b"\xff"])
def test_damaged_files_end_in_reasons(tmp_path: Path, content: str | bytes) -> None:
    files = dict.fromkeys(("skills_registry.json", "composed_skills.json", "skills_playbook.json"), content)
    entries = list(read_entries(write_files(tmp_path / "m", files)))
    assert of_kind(entries, IncomingSkill) == []
    assert len(entries) >= 3 - (content == "[1]")
    assert all(reasons(entries).values())


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([{"description": "x"}], "Step 1 names no tool."),
        ([3], "Step 1 is not an object."),
        ("x", "Its steps are no list."),
        ([], "It has no steps."),
    ],
)
def test_a_composed_skill_that_is_none(tmp_path: Path, steps: object, reason: str) -> None:
    content = json.dumps({"bad": {"steps": steps}, "good": {"steps": ["fetch"]}})
    entries = list(read_entries(write_files(tmp_path / "m", {"composed_skills.json": content})))
    assert reasons(entries) == {"bad": reason}
    assert [entry.name for entry in of_kind(entries, IncomingSkill)] == ["good"]


def test_a_branch_on_words_is_kept_and_said(tmp_path: Path) -> None:
    step = {"tool": "x", "args": {"a": 1}, "branch_condition": "timeout", "branch_target": "slow"}
    content = json.dumps([{"name": "one", "steps": [step]}])
    entry = only(read_entries(write_files(tmp_path / "m", {"composed_skills.json": content})))
    assert "results are not read for words" in " ".join(map(str, entry.diagnostics))
    (recipe,) = recipes_md.parse_recipes(entry.tree["chunks.md"].content or b"", DiagnosticCollector(""))
    assert recipe.steps[0]["branch_target"] == "slow"


def test_lessons_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    content = json.dumps([LESSON, {"trigger": "x"}, {"solution": "y"}, 3, {**LESSON, "confidence": "high"}])
    entries = list(read_entries(write_files(tmp_path / "m", {"skills_playbook.json": content})))
    assert len(of_kind(entries, PlaybookLesson)) == 2
    assert of_kind(entries, PlaybookLesson)[1].confidence == 0.5


def test_prose_has_no_place_in_this_layout(tmp_path: Path) -> None:
    written = GHOST.write_skills([outgoing(plain_skill())], tmp_path / "out")
    assert [entry.name for entry in written.left_out] == ["csv-summary"]


def test_a_tool_that_rarely_fails_is_not_exported_as_failing(tmp_path: Path) -> None:
    files = tool_files("csv_summary", "d", SCHEMA, b"pass")
    counted = {Stage.CODE: UsageCounts(used=1010, succeeded=1000, failed=10)}
    GHOST.write_skills([outgoing(plain_skill(), files, counted)], tmp_path / "out")
    entry = json.loads((tmp_path / "out/acquired_skills/skills_registry.json").read_text())["csv_summary"]
    assert (entry["usage_count"], entry["failure_count"]) == (1000, 2)
    assert only(read_entries(tmp_path / "out")).counters == counted


def tool_files(name: str, description: str, parameters: dict[str, Any], code: bytes) -> dict[str, bytes]:
    tool = ToolContract(name=name, description=description, parameters=parameters, hash=tool_json.hash_code(code))
    return {"tool.json": tool_json.render_tool_json(tool), "scripts/tool.py": code}


objects = st.dictionaries(any_text, json_values, max_size=3)
steps = st.lists(
    st.builds(
        lambda tool, params, rest: {"tool": tool, "params": params, **rest},
        some_text,
        objects,
        st.fixed_dictionaries({}, optional={"description": some_text, "save_as": some_text, "optional": st.just(True)}),
    ),
    min_size=1,
    max_size=3,
).map(tuple)


@pytest.mark.full
@given(
    name=legal_names,
    description=any_text,
    schema=objects,
    code=st.binary(max_size=50),
    counted=counters(),
    recipe=st.builds(Recipe, name=some_text, prose=any_text, steps=steps, branches=st.dictionaries(some_text, steps)),
    chunked=counters(),
)
@law
def test_what_is_written_reads_back(
    tmp_path: Path,
    name: str,
    description: str,
    schema: dict[str, Any],
    code: bytes,
    counted: UsageCounts,
    recipe: Recipe,
    chunked: UsageCounts,
) -> None:
    files = tool_files(name, description, schema, code) | {"chunks.md": recipes_md.render_recipes([recipe])}
    given_counters = {Stage.CODE: counted, Stage.CHUNKS: chunked}
    top = fresh(tmp_path)
    GHOST.write_skills([outgoing(plain_skill(name), files, given_counters)], top)
    entry = only(read_entries(top))
    tool = tool_json.parse_tool_json(entry.tree["tool.json"].content or b"")
    assert (entry.name, tool.description, tool.parameters) == (name, description, schema)
    assert entry.tree["scripts/tool.py"].content == code
    (read,) = recipes_md.parse_recipes(entry.tree["chunks.md"].content or b"", DiagnosticCollector(""))
    # What a step names as `$x` is a parameter there.
    assert replace(read, params={}) == recipe
    assert entry.counters == {stage: found for stage, found in given_counters.items() if found != UsageCounts()}


@pytest.mark.full
@given(
    recipes=st.lists(
        st.builds(Recipe, name=some_text, prose=any_text, steps=steps, mode=st.sampled_from(["", "parallel"]))
    )
)
@law
def test_recipes_read_back_as_written(recipes: list[Recipe]) -> None:
    assert recipes_md.parse_recipes(recipes_md.render_recipes(recipes), DiagnosticCollector("")) == recipes


@given(document=any_text)
@law
def test_no_chunks_file_raises(document: str) -> None:
    recipes_md.parse_recipes(f"## x\n```yaml\n{document}\n```\n".encode(), DiagnosticCollector(""))
