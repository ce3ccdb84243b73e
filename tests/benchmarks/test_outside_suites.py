"""The suites of skills-ref and Anton against ours, with the failures that are decisions of ours by name."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.environments import ROOT, environment

SCRIPT = ROOT / "benchmarks" / "outside_suites.py"


def _unpack(folder: Path, package: str) -> Path:
    """The sources of a package, with its tests."""
    fetch: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":all:",
        "-d",
        folder,
        package,
    ]
    done = subprocess.run(fetch, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip can't fetch {package} here: {done.stderr.strip()[-300:]}")
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


def _run(python: str | Path, cwd: Path, suite: str, *tests: str) -> tuple[int, set[str]]:
    """How many passed, and the names of those that failed."""
    done = subprocess.run([python, SCRIPT, suite, *tests], cwd=cwd, capture_output=True, text=True, check=False)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout + done.stderr
    return int(passed[1]), set(re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE))


@pytest.mark.full
@pytest.mark.req("SK-01", "SK-02")
def test_we_judge_files_as_the_suite_of_the_standard_does(tmp_path: Path) -> None:
    suite = _unpack(tmp_path, "skills-ref==0.1.1")
    prompt_form = {"test_empty_list", "test_single_skill", "test_multiple_skills", "test_special_characters_escaped"}
    assert _run(sys.executable, suite, "skills-ref", "tests") == (36, prompt_form)


@pytest.mark.full
@pytest.mark.req("SK-01")
def test_anton_works_with_its_skills_in_our_hands(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    suite = _unpack(tmp_path / "sources", "anton-agent==2.26.9.27.1")
    python = environment(tmp_path / "venv", "anton-agent==2.26.9.27.1", "pytest-asyncio")
    tests = [f"tests/test_{name}.py" for name in ("skills_store", "recall_skill", "skills_e2e")]
    decided = {
        "test_empty_input_falls_back",  # a name of no letters is ours with a hash
        "test_load_after_save_round_trip",  # the last line end of a body is not part of it
        "test_load_with_corrupt_skill_md_returns_none",  # a text without frontmatter is read
    }
    assert _run(python, suite, "anton", *tests) == (48, decided)
