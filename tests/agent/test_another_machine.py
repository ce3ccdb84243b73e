"""A session whose scratchpads are on another machine: what is attached goes there, what cells make comes back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from habitus.agent.stream import ToolFinished
from habitus.app import Habitus, read_settings
from habitus.files import build_tree_file
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.skills.model import Manifest, Skill
from tests.contracts.sshd import another_machine

pytestmark = pytest.mark.req("AG-11", "SB-13")

LOOK = """
import os, subprocess, sys
print(open("{path}").read().strip())
print(subprocess.run([sys.executable, "{skill}/scripts/fill.py"], capture_output=True, text=True).stdout.strip())
for path in ("{path}", "{skill}/scripts/fill.py"):
    try:
        open(path, "w")
    except OSError as error:
        print(type(error).__name__)
open("plot.png", "wb").write(bytes(1_000_000))
print(skills.run("fill").stdout.strip())
"""


@pytest.mark.full
async def test_files_go_there_and_pictures_come_back(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, sales = tmp_path / "there", tmp_path / "sales.csv"
    sales.write_text("region,units\nnorth,12\n")
    with another_machine(tmp_path, monkeypatch) as address:
        (home / "habitus.toml").write_text(f'[sandbox]\nruntime = "{address}{there}"\n')
        with Habitus.open(read_settings(home, {"HOME": str(tmp_path), "USER": "ann"})) as habitus:
            skill = Skill(name="fill", description="Fills forms", body="Run it.", manifest=Manifest(cli=True))
            cli = build_tree_file(b"import os\n\ndef main():\n    print(os.listdir('.'))\n")
            habitus.skills.create(skill, habitus.build_author(), files={"scripts/cli.py": cli})
            script = home / "skills/fill/scripts/fill.py"
            script.write_text("print('filled')\n")
            finished = await _ask(habitus, sales)
    recalled, first, changed, unchanged = (event.content for event in finished)
    assert "scripts/fill.py" in recalled
    assert first.splitlines()[:4] == ["region,units", "north,12", "filled", "OSError"]
    assert "\n['tool.py']" in first  # the command line has run on this machine, in a folder of its own
    assert "skills.run('fill', '--help')" in recalled
    assert "habitus-skill" not in recalled  # whose socket that machine could not reach
    assert changed == "region,units\nsouth,7"
    assert unchanged == "['sales-2.csv', 'sales.csv']"
    [made] = finished[1].made
    assert Path(made).read_bytes() == bytes(1_000_000)
    assert Path(made).is_relative_to(home)
    assert {path.name for path in there.rglob("*.csv")} == {"sales.csv", "sales-2.csv"}


@pytest.mark.full
async def test_a_machine_that_does_not_answer_takes_no_preview_away(home: Path, tmp_path: Path) -> None:
    (home / "habitus.toml").write_text('[sandbox]\nruntime = "ssh://nobody@localhost:1"\n')
    (tmp_path / "note.txt").write_text("hello\n")
    model = ScriptedModel([says("ok")])
    with Habitus.open(read_settings(home, {"HOME": str(tmp_path), "USER": "ann"})) as habitus:
        async with habitus.session(model) as session:
            await session.turn("look", [tmp_path / "note.txt"])
    asked = str(model.asked[0].messages)
    assert "note.txt, 6 bytes, read-only at /given/attached/note.txt" in asked
    assert "hello" in asked


async def _ask(habitus: Habitus, sales: Path) -> list[ToolFinished]:
    def cell(code: str) -> Any:
        def run(ask: Any) -> Any:
            told = str(ask.messages)
            path = re.findall(r"read-only at (/[^:\]]+?):", told)[-1]
            [skill] = set(re.findall(r"Code finds them in (/\S+),", told))
            named = code.replace("{path}", path).replace("{skill}", skill)
            return calls("scratchpad", {"action": "exec", "code": named})

        return run

    lists = "import os; print(sorted(os.listdir(os.path.dirname('{path}'))))"
    script = [calls("recall_skill", {"name": "fill"}), cell(LOOK), says("12"), cell("print(open('{path}').read())")]
    session = habitus.session(ScriptedModel([*script, cell(lists), says("7")]))
    seen = [event async for event in session.turn_stream("sum it up", [sales])]
    sales.write_text("region,units\nsouth,7\n")
    seen += [event async for event in session.turn_stream("and now?", [sales])]
    await session.close()
    return [event for event in seen if isinstance(event, ToolFinished)]
