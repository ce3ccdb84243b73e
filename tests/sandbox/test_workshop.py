"""Making, running and re-testing tools in the real sandbox."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from habitus.errors import ToolFailed
from habitus.events import OutcomeKind
from habitus.sandbox.fork_servers import ForkServerPool
from habitus.sandbox.machine import MachineCapabilities
from habitus.sandbox.model import Permissions, SandboxLimits
from habitus.sandbox.venvs import EnvironmentCache, VenvBuilder
from habitus.tasks.checks import ReplyEqualsCheck
from habitus.tasks.judging import infer_json_schema_of_result, is_result_fitting_schema
from habitus.tasks.schema import DEEPEST, validate_parameters_schema, validate_payload
from habitus.tools.code_stage import build_case_from_call, parse_dependencies, replace_script_header
from habitus.tools.execution import LONGEST_CASE, ToolExecutor, compute_tool_fingerprint
from habitus.tools.model import ToolDraft

pytestmark = pytest.mark.req("SB-05", "SB-06")

ADD = """
import json, sys
payload = json.loads(sys.stdin.read() if sys.argv[1] == "-" else sys.argv[1])
print(json.dumps({"total": sum(payload["numbers"])}))
"""
NUMBERS = {
    "type": "object",
    "properties": {"numbers": {"type": "array", "items": {"type": "number"}}},
    "required": ["numbers"],
}
DRAFT = ToolDraft(name="add-up", description="Adds up.", parameters=NUMBERS, code=ADD, payload={"numbers": [1, 2]})


@pytest.fixture
async def workshop(machine: MachineCapabilities, tmp_path: Path, shelf: VenvBuilder) -> AsyncIterator[ToolExecutor]:
    async with ForkServerPool(machine, tmp_path / "run", allow_weaker=True) as warm:
        yield ToolExecutor(warm, EnvironmentCache(tmp_path / "environments", shelf), limits=SandboxLimits(wall_s=300))


async def test_a_tool_that_passes_its_test_is_returned_with_the_case(workshop: ToolExecutor) -> None:
    tool = await workshop.test_draft_and_build_program(DRAFT)
    assert tool.code.startswith("# /// script\n# requires-python")
    shape = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
    assert tool.cases == (build_case_from_call({"numbers": [1, 2]}, shape, ReplyEqualsCheck(value={"total": 3})),)
    run = await workshop.run_tool(tool, {"numbers": [20, 22]})
    assert (run.outcome.is_ok, json.loads(run.stdout)) == (True, {"total": 42})


async def test_code_that_transport_damaged_is_mended_first(workshop: ToolExecutor) -> None:
    tool = await workshop.test_draft_and_build_program(replace(DRAFT, code=f"Here it is:\n```python\n{ADD}```\nEnjoy!"))
    assert "```" not in tool.code


async def test_schema_and_payload_may_come_as_json_text(workshop: ToolExecutor) -> None:
    tool = await workshop.test_draft_and_build_program(
        replace(DRAFT, parameters=json.dumps(NUMBERS), payload='{"numbers": []}')
    )
    assert tool.parameters == NUMBERS


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"code": "print({}['x'])"}, "It failed on its test payload: KeyError: 'x'"),
        ({"code": "def run(payload):\n    return 1"}, "It printed nothing. Read the payload from sys.argv[1]"),
        ({"code": "print('   ')"}, "It printed nothing."),
        ({"code": "import sys; sys.stdout.buffer.write(bytes(range(256)))"}, "It printed bytes that are not text."),
        ({"code": "import sys; sys.stdout.buffer.write(b'a\\0b')"}, "It printed bytes that are not text."),
        ({"code": "print('x' * 3_000_000)"}, "which is too much. Print less."),
        ({"code": "def half(x):\n    if x:\n        return [x,\n"}, "The code stops in the middle."),
        ({"code": "I can't do that."}, "There is no Python code in this text."),
        ({"code": "x = 1\n" * 200_000}, "The code has 1,200,000 characters"),
        ({"description": " \n"}, "The tool has no description."),
        ({"description": "x" * 2000}, "The description has 2,000 characters"),
        ({"parameters": {"type": "nonsense"}}, 'must be of type object, not "nonsense"'),
        ({"parameters": {"properties": {"a": {"type": "nonsense"}}}}, "not valid JSON Schema at 'properties/a/type'"),
        ({"parameters": [1]}, "The parameters are not a JSON Schema object"),
        ({"parameters": "{not json"}, "The parameters can't be read as JSON"),
        ({"parameters": {"type": "array"}}, 'must be of type object, not "array"'),
        ({"parameters": {"$ref": "http://127.0.0.1:9/x"}}, "Retrieval is disabled"),
        ({"payload": {"numbers": ["one"]}}, "The test payload does not fit the parameters at 'numbers[0]'"),
        ({"payload": {}}, 'The test payload does not fit the parameters: "numbers" is a required property.'),
        ({"payload": {"numbers": [1] * LONGEST_CASE}}, "it is kept as a case, so 131,072 is the most"),
        ({"payload": {"numbers": [float("nan")]}}, "The test payload can't be written as JSON"),
        ({"dependencies": ("./here",)}, "'./here' is not a package requirement."),
        ({"dependencies": ("x @ https://127.0.0.1/x.whl",)}, "names an address."),
        ({"dependencies": ("habitus_source",)}, "Could not install habitus_source"),
        ({"permissions": Permissions(read=(Path("/nowhere/at/all"),))}, "Can't grant '/nowhere/at/all'"),
        ({"permissions": Permissions(write=(Path("/proc"),))}, "that would open the whole machine"),
    ],
)  # fmt: skip
async def test_each_gate_says_in_one_line_why_it_is_closed(
    workshop: ToolExecutor, change: dict[str, Any], cause: str
) -> None:
    with pytest.raises(ToolFailed) as refused:
        await workshop.test_draft_and_build_program(replace(DRAFT, **change))
    assert cause in str(refused.value)
    if "dependencies" not in change:
        assert "\n" not in str(refused.value)


async def test_a_tool_that_does_not_end_is_refused(
    machine: MachineCapabilities, tmp_path: Path, shelf: VenvBuilder
) -> None:
    async with ForkServerPool(machine, tmp_path / "run", allow_weaker=True) as warm:
        workshop = ToolExecutor(
            warm, EnvironmentCache(tmp_path / "environments", shelf), limits=SandboxLimits(wall_s=0.5)
        )
        with pytest.raises(ToolFailed, match=r"It did not end by itself. It was stopped after 0.5 s."):
            await workshop.test_draft_and_build_program(replace(DRAFT, code="while True: pass"))


@pytest.mark.full
async def test_ten_megabytes_reach_a_tool_on_standard_input(workshop: ToolExecutor) -> None:
    tool = await workshop.test_draft_and_build_program(DRAFT)
    run = await workshop.run_tool(tool, {"numbers": [1] * 4_000_000})
    assert json.loads(run.stdout) == {"total": 4_000_000}
    with pytest.raises(ToolFailed, match="32 MiB is the most a tool takes"):
        await workshop.run_tool(tool, {"numbers": [], "text": "x" * (33 << 20)})


async def test_wrong_arguments_are_the_callers_mistake_and_run_nothing(workshop: ToolExecutor) -> None:
    tool = await workshop.test_draft_and_build_program(DRAFT)
    with pytest.raises(ToolFailed, match="The payload does not fit the parameters at 'numbers'"):
        await workshop.run_tool(tool, {"numbers": "many"})


async def test_kept_cases_are_run_again_and_the_failing_ones_named(workshop: ToolExecutor) -> None:
    tool = await workshop.test_draft_and_build_program(DRAFT)
    fresh = await workshop.rerun_stored_cases(tool, passed_fingerprint=compute_tool_fingerprint(tool))
    assert (fresh.passed, fresh.was_stale, fresh.cases_counting_against_tool) == (True, False, ())
    other = replace(tool, code="print('just text')")
    report = await workshop.rerun_stored_cases(other, passed_fingerprint=compute_tool_fingerprint(tool))
    assert (report.passed, report.was_stale) == (False, True)
    assert [result.payload for result in report.cases_counting_against_tool] == [{"numbers": [1, 2]}]
    assert report.cases_counting_against_tool[0].outcome.reason == "it has another shape than expected: just text"
    wrong = await workshop.rerun_stored_cases(replace(tool, code="print('{\"total\": 42}')"))
    assert (
        wrong.cases_counting_against_tool[0].outcome.reason == "it gives another result: total is 42, and should be 3"
    )


async def test_what_two_runs_do_not_agree_on_is_compared_by_its_shape_and_says_so(workshop: ToolExecutor) -> None:
    unsteady = ADD.replace("print(", "import os\nprint(os.urandom(4).hex(), ")
    by_shape = await workshop.test_draft_and_build_program(replace(DRAFT, code=unsteady))
    assert [case.compared_parts_description for case in by_shape.cases] == ["shape only"]
    assert (await workshop.rerun_stored_cases(by_shape)).results[0].compares == "shape only"
    clock = await workshop.test_draft_and_build_program(replace(DRAFT, code=f"import time\ntime.time()\n{ADD}"))
    assert clock.cases[0].expected_result is None  # two runs in a row say nothing of tomorrow's


async def test_a_new_version_must_go_on_passing_the_old_cases(workshop: ToolExecutor) -> None:
    tool = await workshop.test_draft_and_build_program(DRAFT)
    picky = ADD + "assert len(payload['numbers']) != 2, 'no pairs'\n"
    with pytest.raises(ToolFailed, match=r"worked before, \{\"numbers\": \[1, 2\]\}: AssertionError: no pairs"):
        await workshop.test_draft_and_build_program(
            replace(DRAFT, code=picky, payload={"numbers": [1]}), stored_cases=tool.cases
        )
    both = await workshop.test_draft_and_build_program(
        replace(DRAFT, payload={"numbers": [1]}), stored_cases=tool.cases
    )
    assert [case.payload for case in both.cases] == [{"numbers": [1, 2]}, {"numbers": [1]}]


async def test_proof_is_for_this_code_these_dependencies_and_this_interpreter(workshop: ToolExecutor) -> None:
    tool = await workshop.test_draft_and_build_program(DRAFT)
    assert compute_tool_fingerprint(tool) == compute_tool_fingerprint(
        replace(tool, description="Other words.", cases=())
    )
    assert compute_tool_fingerprint(tool) != compute_tool_fingerprint(replace(tool, code=tool.code + "#"))
    assert compute_tool_fingerprint(tool) != compute_tool_fingerprint(replace(tool, dependencies=("habitus_greeting",)))


@pytest.mark.full
async def test_dependencies_come_as_wheels_into_an_environment_that_is_shared(
    workshop: ToolExecutor, machine: MachineCapabilities, tmp_path: Path, shelf: VenvBuilder
) -> None:
    code = "import habitus_greeting\nprint(habitus_greeting.HELLO)"
    draft = replace(DRAFT, code=code, dependencies=("habitus_greeting",))
    tool = await workshop.test_draft_and_build_program(draft)
    in_header = await workshop.test_draft_and_build_program(replace(draft, code=tool.code, dependencies=()))
    assert in_header.dependencies == ("habitus_greeting",)
    assert in_header.code == tool.code
    assert len(list((tmp_path / "environments").iterdir())) == 1
    shutil.rmtree(tmp_path / "environments")
    async with ForkServerPool(machine, tmp_path / "run", allow_weaker=True) as warm:
        again = ToolExecutor(warm, EnvironmentCache(tmp_path / "environments", shelf))
        assert (await again.run_tool(tool, {"numbers": []})).stdout == "hello\n"


@pytest.mark.full
async def test_packages_that_can_not_be_had_count_against_nobody(workshop: ToolExecutor) -> None:
    tool = await workshop.test_draft_and_build_program(DRAFT)
    run = await workshop.run_tool(replace(tool, dependencies=("habitus_source",)), {"numbers": []})
    assert run.outcome.kind is OutcomeKind.INFRA
    assert "Could not install habitus_source" in run.outcome.reason


async def test_only_granted_variables_and_folders_reach_a_tool(workshop: ToolExecutor, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "note.txt").write_text("hello")
    code = f"""
import json, os
names = sorted(name for name in os.environ if name.startswith("MY_"))
print(json.dumps([names, os.path.exists({str(tmp_path / "given")!r})]))
"""
    granted = Permissions(read=(tmp_path / "given",), env=("MY_KEY",))
    variables = {"MY_KEY": "1", "MY_OTHER": "2"}
    without = await workshop.test_draft_and_build_program(replace(DRAFT, code=code), env=variables)
    assert json.loads((await workshop.run_tool(without, {"numbers": []}, env=variables)).stdout) == [[], False]
    given = replace(without, permissions=granted)
    assert json.loads((await workshop.run_tool(given, {"numbers": []}, env=variables)).stdout) == [["MY_KEY"], True]


async def test_the_written_file_runs_with_plain_uv(workshop: ToolExecutor, tmp_path: Path) -> None:
    tool = await workshop.test_draft_and_build_program(DRAFT)
    (tmp_path / "tool.py").write_text(tool.code)
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "run", "--offline", "--no-project", "--quiet", "--python", sys.executable]
    done = subprocess.run(
        [*command, "tool.py", '{"numbers": [1, 2, 3]}'], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ('{"total": 6}\n', "", 0)


def test_a_header_replaces_the_one_that_was_there_and_keeps_the_first_line() -> None:
    code = (
        "#!/usr/bin/env python3\n# -*- coding: latin-1 -*-\n# /// script\n# dependencies = ['b']\n# ///\nprint('ä')\n"
    )
    assert parse_dependencies(code) == ("b",)
    written = replace_script_header(code, ["a>=1", "b"])
    assert parse_dependencies(written) == ("a>=1", "b")
    assert replace_script_header(written, ["a>=1", "b"]) == written
    assert written.startswith("#!/usr/bin/env python3\n# /// script\n")
    assert "latin-1" not in written
    assert written.count("# ///") == 2
    with pytest.raises(ToolFailed, match="not valid TOML"):
        parse_dependencies("# /// script\n# dependencies = [\n# ///\n")


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ('{"a": 1}', '{"a": 2.5}', True),
        ('{"a": 1}', '{"a": "one"}', False),
        ('{"a": 1}', '{"b": 1}', False),
        ('{"a": null}', '{"a": [1]}', True),
        ("[1, 2]", "[]", True),
        ("[1, 2]", '["x"]', False),
        ("plain text", "other text", True),
        ("plain text", "42", True),
        ("true", "1", False),
    ],
)
def test_a_shape_is_about_keys_and_types_not_values(before: str, after: str, same: bool) -> None:
    assert is_result_fitting_schema(infer_json_schema_of_result(before), before)
    assert is_result_fitting_schema(infer_json_schema_of_result(before), after) is same


def _nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def test_a_schema_can_not_hang_or_end_this_process() -> None:
    fan = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    for schema, cause in [
        ({"$defs": {**fan, "d40": {}}, "properties": {"a": {"$ref": "#/$defs/d0"}}}, "fan out too far"),
        ({"properties": {"a": {"$ref": "#"}}}, "refers to itself"),
        ({"properties": {"a": {"$dynamicRef": "#x"}}}, "refers to itself"),
        (_nested(DEEPEST + 5), "nested deeper than 100 levels"),
        ({"title": "x" * 70_000}, "longer than 64 KiB"),
    ]:
        with pytest.raises(ToolFailed, match=cause):
            validate_parameters_schema(schema)
    shared = {"$defs": {"n": {"type": "number"}}, "properties": {k: {"$ref": "#/$defs/n"} for k in "abc"}}
    assert validate_parameters_schema(shared) == {"type": "object", **shared}
    with pytest.raises(ToolFailed, match="nested deeper"):
        validate_payload({"type": "object"}, _nested(100_000))
    with pytest.raises(ToolFailed, match="back-references are not supported"):
        validate_parameters_schema({"properties": {"a": {"pattern": "^(a|a|b\\1)+$"}}})
    slow = validate_parameters_schema({"properties": {"a": {"pattern": "^(a|a|ab)+$"}}})
    with pytest.raises(ToolFailed, match="does not fit"):
        validate_payload(slow, {"a": "a" * 60 + "c"})
