"""The examples about failing work in any agent's log run as they stand in the guide to lessons."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "lessons.md"
SECTION = GUIDE.read_text().partition("## Find failing work in any agent's log\n")[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)


@pytest.mark.req("EL-08")
def test_the_examples_print_what_the_guide_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    failed = {"trace": "s", "turn": 1, "tool": "t", "args": "{}", "success": False, "error": "no"}
    (tmp_path / "session.jsonl").write_text(f"{json.dumps(failed)}\n{json.dumps(failed)}\n{{cut")
    printed = []
    for example in EXAMPLES:
        exec(compile(example, str(GUIDE), "exec"), {})
        printed.append(capsys.readouterr().out)
    library, files, monitor = printed
    assert library.startswith("repeated_tool_error (when): When a tool fails twice in a row")
    assert files == "s turn 1, rounds [1]: repeated_tool_error\ncould not read: {'cut line': 1}\n"
    assert monitor.startswith("[Habitus self-check — kill_loop] When a cell is killed only because it was silent")
    assert monitor.count("\n") == 2


def test_the_first_example_fits_in_ten_lines() -> None:
    assert len(EXAMPLES[0].strip().splitlines()) <= 10


def test_the_guide_names_every_detector() -> None:
    from habitus.learning import detectors

    assert re.findall(r"^\| `(\w+)` \|", SECTION, re.MULTILINE) == list(detectors.DETECTORS)
