"""docs/reference is written from the code, so it can't be allowed to lag behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

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
