"""Where Linux's isolation is missing, everything works but running untrusted code, and that says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ELSEWHERE = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "elsewhere")}
# What the tests of these prove, holds there as well.
CORE = ("tests/skills", "tests/memory", "tests/journal", "tests/search", "tests/jobs")
# The server of the tests reads /proc itself.
NEEDS_POSTGRESQL = "tests/jobs/test_across_hosts.py"


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**ELSEWHERE, "HABITUS_HOME": str(home), "HOME": str(home.parent)}
    command = [sys.executable, "-m", "habitus", *words]
    return subprocess.run(command, env=environ, cwd=home.parent, capture_output=True, text=True, check=False)


@pytest.mark.req("OP-09")
def test_everything_works_but_running_untrusted_code_which_refuses_in_one_line(home: Path) -> None:
    for words in (
        ("skills", "new", "tidy-inbox", "--description", "Empties an inbox.", "--when", "The inbox is full"),
        ("skills", "search", "a full inbox"),
        ("lessons", "add", "The roses are watered in the morning."),
        ("jobs", "add", "curate"),
        ("jobs", "work", "--until-idle"),
        ("db", "backup", str(home.parent / "backup.tar.gz")),
    ):
        done = run(home, *words)
        assert (done.returncode, done.stderr) == (0, ""), words
    refused = run(home, "tools", "scratchpad", "exec", "sums", "1 + 1")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "can't hold untrusted code: no protection of files, network, limits" in refused.stderr
    checked = run(home, "doctor", "--json")
    # Nothing in use is broken.
    assert checked.returncode == 0
    missing = {check["name"]: check["hint"] for check in json.loads(checked.stdout)["checks"] if check["state"] != "ok"}
    assert {"sandbox: files", "sandbox: network", "sandbox: limits"} <= missing.keys()
    assert all(missing.values())


@pytest.mark.full
@pytest.mark.req("OP-09")
def test_the_core_of_the_suite_passes_there() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "not full", *CORE]
    command += ["--ignore", NEEDS_POSTGRESQL]
    done = subprocess.run(command, cwd=ROOT, env=ELSEWHERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
