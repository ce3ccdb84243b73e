"""Agents of other frameworks: the guide's examples with the real packages, against a provider on loopback."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from habitus.app import Habitus, read_settings
from habitus.app.use_cases.skills import show_stats
from habitus.errors import NotInstalled
from habitus.events import OutcomeKind
from habitus.integrations.agent_run import require_package_version
from habitus.journal.model import SkillPlacementKind
from habitus.journal.usage import get_deciding_or_heaviest_outcome
from habitus.skills.model import Skill
from tests.conftest import Cli
from tests.environments import environment
from tests.fake_provider import FakeProvider, Reply, fake_provider
from tests.mcp.test_real_clients import answers

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "agents.md").read_text(encoding="utf-8")
QUESTION = "What time is it, in tea time?"
MOST_LINES = 12

Call = tuple[str, Mapping[str, object]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """A section of the guide, the package it is about, and what the reader brings to the example."""

    heading: str
    package: str
    module: str
    brings: str
    beside: tuple[str, ...] = ()
    prefix: str = ""  # of our tools' names
    own: str = "clock"  # a tool of the agent's own that fails
    ends: Call | str = "Nearly."
    is_absent: bool = True  # from the environment of the tests


FRAMEWORKS = [
    Framework(
        heading="LangChain and LangGraph",
        package="langchain",
        module="langchain",
        beside=("langchain-openai",),
        brings="""
from langchain_core.tools import ToolException, tool
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="gpt-x")
@tool
def clock(zone: str) -> str:
    "The time in a zone."
    raise ToolException("KeyError: 'zone'")
clock.handle_tool_error = True
""",
    ),
    Framework(
        heading="OpenAI Agents SDK",
        package="openai-agents",
        module="openai_agents",
        brings="""
from agents import function_tool, set_default_openai_api, set_tracing_disabled
set_default_openai_api("chat_completions")
set_tracing_disabled(True)
model = "gpt-x"
@function_tool
def clock(zone: str) -> str:
    "The time in a zone."
    raise KeyError("zone")
""",
    ),
    Framework(
        heading="smolagents",
        package="smolagents",
        module="smolagents",
        beside=("openai",),
        ends=("final_answer", {"answer": "Nearly."}),
        brings="""
import os
from smolagents import OpenAIServerModel, tool
model = OpenAIServerModel("gpt-x", api_base=os.environ["OPENAI_BASE_URL"], api_key="none")
@tool
def clock(zone: str) -> str:
    '''The time in a zone.

    Args:
        zone: which
    '''
    raise KeyError("zone")
""",
    ),
    Framework(
        heading="Claude Agent SDK",
        package="claude-agent-sdk",
        module="claude_agent_sdk",
        prefix="mcp__habitus__",
        own="Read",
        is_absent=False,  # its program is used as a model
        brings="""
from claude_agent_sdk import ClaudeAgentOptions
options = ClaudeAgentOptions(model="claude-sonnet-4-5", permission_mode="bypassPermissions", setting_sources=[])
""",
    ),
]


def example(heading: str) -> str:
    """The code of a section of the guide."""
    (section,) = re.findall(rf"^#### {re.escape(heading)}\n(.*?)(?=^##|\Z)", GUIDE, re.MULTILINE | re.DOTALL)
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return str(code)


@pytest.mark.req("CL-12")
@pytest.mark.parametrize("heading", ["pydantic-ai", *(one.heading for one in FRAMEWORKS), "Agno, CrewAI and others"])
def test_a_framework_takes_at_most_twelve_lines(heading: str) -> None:
    assert len([line for line in example(heading).splitlines() if line.strip()]) <= MOST_LINES


@pytest.mark.req("CL-12")
@pytest.mark.parametrize("one", FRAMEWORKS, ids=lambda one: one.package)
def test_the_guide_the_extra_and_the_module_name_the_same_lowest_version(one: Framework) -> None:
    lowest = lowest_of(one.package)
    assert f"| `habitus[{one.package}]` | {lowest} |" in GUIDE
    module = ROOT / "src" / "habitus" / "integrations" / f"{one.module}.py"
    assert f'require_package_version("{one.package}", "{lowest}")' in module.read_text(encoding="utf-8")


@pytest.mark.req("CL-12")
@pytest.mark.parametrize("one", [one for one in FRAMEWORKS if one.is_absent], ids=lambda one: one.package)
def test_a_framework_that_is_absent_is_asked_for_by_the_name_of_its_extra(one: Framework) -> None:
    with pytest.raises(
        ImportError, match=rf"the extra '{one.package}'.*Run: pip install 'habitus\[{one.package}\] @ file:"
    ):
        importlib.import_module(f"habitus.integrations.{one.module}")


@pytest.mark.req("CL-12")
def test_a_framework_that_is_too_old_is_refused_with_the_lowest_version() -> None:
    here = metadata.version("pydantic-ai-slim")
    said = (
        f"This needs pydantic-ai-slim 99.1 or later, and {here} is installed. "
        "Run: pip install 'habitus[pydantic-ai] @ file:"
    )
    with pytest.raises(NotInstalled, match=re.escape(said)):
        require_package_version("pydantic-ai-slim", "99.1", extra="pydantic-ai")


def lowest_of(package: str) -> str:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][package]
    (wanted,) = [one for one in map(Requirement, declared) if one.name == package]
    return next(part.version for part in wanted.specifier if part.operator == ">=")


def by_anthropic(number: int, said: Call | str) -> Reply:
    if isinstance(said, str):
        return answers({"type": "text", "text": said})
    return answers({"type": "tool_use", "id": f"call_{number}", "name": said[0], "input": said[1]})


def by_openai(number: int, said: Call | str) -> Reply:
    message: dict[str, Any] = {"role": "assistant", "content": said if isinstance(said, str) else None}
    if not isinstance(said, str):
        function = {"name": said[0], "arguments": json.dumps(said[1])}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "stop" if isinstance(said, str) else "tool_calls"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [choice], "usage": usage}
    return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(answer).encode())


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as running:
        yield running


@pytest.mark.full
@pytest.mark.req("CL-12", "LA-06")
@pytest.mark.parametrize("version", ["lowest", "newest"])
@pytest.mark.parametrize("one", FRAMEWORKS, ids=lambda one: one.package)
def test_the_example_of_the_guide_runs_with_the_real_package(
    one: Framework, version: str, provider: FakeProvider, tmp_path: Path, run_cli: Cli
) -> None:
    wanted = f"{one.package}=={lowest_of(one.package)}" if version == "lowest" else one.package
    python = environment(tmp_path / "venv", wanted, *one.beside)
    with Habitus.open(read_settings(run_cli.home)) as habitus:
        tea = Skill(name="tea-time", description="What tea time is", body="1. At five.")
        habitus.skills.create(tea, habitus.build_author())
    failing = [(one.own, {"file_path" if one.prefix else "zone": f"/nowhere/{n}"}) for n in range(4)]
    said: list[Call | str] = [(f"{one.prefix}recall_skill", {"name": "tea-time"}), *failing, one.ends]
    answer = by_anthropic if one.prefix else by_openai
    provider.gives(*(answer(number, one) for number, one in enumerate(said)))
    environ = {
        **run_cli.environ(),
        "ANTHROPIC_BASE_URL": provider.address,
        "OPENAI_BASE_URL": f"{provider.address}/v1",
        **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY"), "none"),
        "HABITUS_ACC_MODE": "active",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "IS_SANDBOX": "1",  # the tests may be run by root
    }
    program = run_cli.cwd / "program.py"
    program.write_text(f"question = {QUESTION!r}\n{one.brings}\n{example(one.heading)}")
    done = subprocess.run([python, program], env=environ, cwd=run_cli.cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("Nearly.")
    seen = [json.dumps(request.body) for request in provider.requests if "messages" in request.body]
    first, second, last = seen[0], seen[1], seen[-1]
    assert "tea-time" in first
    assert f"{one.prefix}recall_skill" in first
    assert "1. At five." in second
    assert "repeated_error_signature" in last
    with Habitus.open(read_settings(run_cli.home)) as habitus:
        (session,) = habitus.journal.list_sessions()
        (turn,) = habitus.journal.list_session_turns(session.id)
    assert turn.request == QUESTION
    assert "Nearly." in str(turn.messages[-1].content)
    assert ("tea-time", SkillPlacementKind.LOADED) in {(entry.name, entry.place) for entry in turn.selected}
    results: list[Any] = [event.detail.get("success") for event in turn.events if event.kind.value == "tool_result"]
    assert results == [True, *[False] * 4]
    judged = get_deciding_or_heaviest_outcome(turn.outcomes)
    assert judged is not None
    assert judged.kind is OutcomeKind.FAILED
    # Once more, without an error: nobody judged either run, so neither is a success.
    provider.gives(*(answer(number, one) for number, one in enumerate((said[0], said[-1]))))
    again = subprocess.run([python, program], env=environ, cwd=run_cli.cwd, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    with Habitus.open(read_settings(run_cli.home)) as habitus:
        (row,) = show_stats(habitus, name="tea-time").stats
    assert (row.used, row.succeeded, row.failed, row.no_feedback, row.reliability) == (2, 0, 0, 2, None)
    assert row.ran_without_error == 1


def test_the_runs_of_every_integration_are_counted_here_or_beside() -> None:
    modules = {file.stem for file in (ROOT / "src" / "habitus" / "integrations").glob("[!_]*.py")}
    assert modules == {"agent_run", "pydantic_ai", *(one.module for one in FRAMEWORKS)}


@pytest.mark.full
@pytest.mark.req("CL-12")
def test_a_framework_without_an_integration_recalls_a_skill_over_mcp(
    provider: FakeProvider, tmp_path: Path, run_cli: Cli, program: Path
) -> None:
    python = environment(tmp_path / "venv", "agno", "openai", "mcp")
    environ = run_cli.environ({"PATH": f"{program.parent}:{os.environ['PATH']}"})
    del environ["HABITUS_HOME"]  # the MCP client hands on little more than HOME and PATH
    with Habitus.open(read_settings(Path(environ["HOME"]) / ".habitus")) as habitus:
        tea = Skill(name="tea-time", description="What tea time is", body="1. At five.")
        habitus.skills.create(tea, habitus.build_author())
    provider.gives(by_openai(1, ("recall_skill", {"name": "tea-time"})), by_openai(2, "Nearly."))
    file = run_cli.cwd / "program.py"
    file.write_text(
        "from agno.models.openai import OpenAIChat\n"
        f"model = OpenAIChat('gpt-x', base_url='{provider.address}/v1', api_key='none')\n"
        f"question = {QUESTION!r}\n{example('Agno, CrewAI and others')}"
    )
    environ["AGNO_TELEMETRY"] = "false"
    done = subprocess.run([python, file], env=environ, cwd=run_cli.cwd, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.rstrip().endswith("Nearly.")) == (0, True), done.stdout + done.stderr
    first, second = [json.dumps(request.body) for request in provider.requests if "messages" in request.body]
    assert "search_skills" in first
    assert "1. At five." in second


@pytest.mark.full
@pytest.mark.req("CL-12")
def test_the_whole_example_of_langgraph_runs(provider: FakeProvider, tmp_path: Path, run_cli: Cli) -> None:
    python = environment(tmp_path / "venv", "langchain", "langchain-openai")
    provider.gives(by_openai(1, ("clock", {})), by_openai(2, "Nearly."))
    environ = run_cli.environ({"OPENAI_BASE_URL": f"{provider.address}/v1", "OPENAI_API_KEY": "none"})
    example = [str(python), str(ROOT / "examples" / "langgraph_agent.py"), QUESTION]
    done = subprocess.run(example, cwd=run_cli.cwd, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "Nearly.\n"), done.stderr
    with Habitus.open(read_settings(run_cli.home)) as habitus:
        (turn,) = habitus.journal.list_session_turns("c1")
    assert turn.request == QUESTION
