"""What is installed by name: complete, asked for in one line, and declared without pinning anything."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from habitus import optional_packages
from habitus.cli.commands import build_commands
from habitus.errors import UserError
from habitus.llm.providers import open_provider_model

ROOT = Path(__file__).parents[2]
FRAMEWORKS = {"claude-agent-sdk", "langchain", "openai-agents", "smolagents"}  # whoever wants one has it already
NOT_IN_ALL = {"all", "bench", "docs", "test", "minilm", *FRAMEWORKS}  # MiniLM would bring PyTorch along


@pytest.fixture
def declared() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def test_all_brings_every_extra_and_each_is_known_by_its_name(declared: dict[str, list[str]]) -> None:
    (everything,) = map(Requirement, declared["all"])
    assert everything.extras == declared.keys() - NOT_IN_ALL - {""}
    assert set(optional_packages.EXTRA_BY_MODULE.values()) <= everything.extras


def test_nothing_is_pinned_and_everything_says_how_old_it_may_be(declared: dict[str, list[str]]) -> None:
    wanted = [Requirement(line) for lines in declared.values() for line in lines]
    assert [str(one) for one in wanted if any(part.operator in ("==", "===", "~=") for part in one.specifier)] == []
    oldest = {one.name for one in wanted if any(part.operator == ">=" for part in one.specifier)}
    assert {one.name for one in wanted} - oldest == {"habitus"}


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ({"url": "file:///src/habitus", "dir_info": {"editable": True}}, " @ file:///src/habitus"),
        (
            {"url": "https://x.test/habitus", "vcs_info": {"vcs": "git", "commit_id": "0ff1ce"}},
            " @ git+https://x.test/habitus@0ff1ce",
        ),
        (None, ""),
    ],
)
def test_an_extra_is_installed_from_where_habitus_came_from(
    tmp_path: Path, origin: dict[str, object] | None, expected: str
) -> None:
    """Not by a name that somebody else may own in a registry, unless it came from there."""
    installed = tmp_path / "habitus-9.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: habitus\nVersion: 9\n")
    if origin is not None:
        (installed / "direct_url.json").write_text(json.dumps(origin))
    ask = "from habitus.optional_packages import describe_install; print(describe_install('fastapi'))"
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {ask}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = f"Run: uv tool install 'habitus[all]{expected}', or: pip install 'habitus[web]{expected}'.\n"
    assert ran.stdout == told


@pytest.mark.req("CL-01")
def test_what_is_not_installed_is_asked_for_by_name_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("prompt_toolkit", "habitus.repl.terminal", "habitus.repl.terminal", "habitus.cli.agents.chat"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    (chat,) = [command for command in build_commands() if command.name == "chat"]
    with pytest.raises(UserError, match=r"'habitus chat' needs the extra 'chat'.*'habitus\[all\] @ file:") as caught:
        chat.make_context("chat", [])
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(
        UserError, match=r"claude-x needs the extra 'anthropic'.*pip install 'habitus\[anthropic\] @ file:"
    ):
        open_provider_model("anthropic:claude-x", {"ANTHROPIC_API_KEY": "k"})
