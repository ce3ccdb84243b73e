"""docs/reference and the public types are written from the code, so they can't be allowed to lag behind."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import typed_face

import habitus

ROOT = Path(__file__).parents[2]


def test_reference_is_up_to_date(python: str) -> None:
    script = [python, str(ROOT / "scripts" / "reference.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.req("CL-07")
def test_the_page_of_the_python_api_has_every_public_name_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    described = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert sorted(described) == sorted(habitus.__all__)
    assert sorted(habitus.__all__) == sorted(name for names in habitus._HOMES.values() for name in names)


@pytest.mark.req("CL-07")
def test_the_types_of_the_public_names_are_those_of_the_code() -> None:
    assert typed_face.Face().text() == typed_face.FACE.read_text(encoding="utf-8"), "Run: make docs"


@pytest.mark.full
@pytest.mark.req("CL-07")
def test_a_strict_check_of_the_example_of_a_loop_reads_no_more_than_the_public_types(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "agents.md").read_text(encoding="utf-8")
    (example, *_) = re.findall(r"^<!-- run -->\n```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    (tmp_path / "loop.py").write_text(example, encoding="utf-8")
    options = ["--strict", "--config-file=", "--cache-dir", str(tmp_path), "--verbose", "loop.py"]
    done = subprocess.run(
        [Path(sys.executable).with_name("mypy"), *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "Success: no issues found in 1 source file\n")
    assert re.findall(r"Parsing \S+ \((habitus\S*)\)", done.stderr) == ["habitus"]
