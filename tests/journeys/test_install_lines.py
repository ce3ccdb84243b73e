"""The install lines of the README and the guides, word for word, each in a new account of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.environments import ROOT, UV
from tests.learning.hosts import Did, claude_code

pytestmark = [pytest.mark.full, pytest.mark.req("CL-01", "CL-08")]

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guides" / "agents.md").read_text(encoding="utf-8")
AWAY = 'django.db.utils.OperationalError: connection to server at "localhost", port 5432 failed: Connection refused'
NEVER = "Never apply anything to prod yourself; give me the command instead."


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """A home with three sessions of Claude Code, and uv on its path."""
    (programs := tmp_path / ".local" / "bin").mkdir(parents=True)
    for name in ("uv", "uvx"):
        (programs / name).symlink_to(UV.with_name(name))
    (sessions := tmp_path / ".claude" / "projects" / "-srv-shop").mkdir(parents=True)
    test = "python manage.py test billing"
    for number in range(3):
        deeds = [
            Did(said=f"fix the totals of invoice {number}"),
            Did(command=test, said=AWAY, code=1),
            Did(command="docker compose up -d db", said=" Container shop-db-1  Started"),
            Did(command=test, said="Ran 42 tests in 3.2s\n\nOK"),
        ]
        if number:
            deeds.append(Did(said=NEVER))
        else:
            deeds.append(Did(command="git commit -am 'fix totals'", said="[main 3f2a] fix totals"))
        claude_code(sessions / f"session-{number}", deeds)
    return tmp_path


def run_lines(lines: Sequence[str], account: Path, *also: Path) -> list[str]:
    """What each line of a shell prints, in the checkout; without a terminal, `connect` is told yes."""
    cache = subprocess.run([UV, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HABITUS_", "VIRTUAL_ENV"))}
    environ |= {
        "HOME": str(account),
        "PATH": ":".join(map(str, [*also, account / ".local" / "bin", "/usr/bin", "/bin"])),
        "UV_CACHE_DIR": cache,
        "UV_PYTHON": sys.executable,
    }
    printed = []
    for line in lines:
        said = re.sub(r"^(habitus (?:dis)?connect [\w-]+)(?= *(?:#|$))", r"\1 --yes", line)
        done = subprocess.run(["sh", "-c", said], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        printed.append(done.stdout)
    return printed


def find_block(page: str, word: str) -> list[str]:
    """The lines of the block of a page that begins with a word."""
    (block,) = re.findall(rf"^```\n({word}.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(block).splitlines()


def test_the_readme_checks_installs_connects_and_uninstalls(account: Path) -> None:
    checks, installs, connects, uninstalls = find_block(README, "uvx ")
    example = find_block(README, "Claude Code: ")
    (checked,) = run_lines([checks], account)
    assert checked.splitlines()[: len(example)] == example
    assert not (account / ".habitus").exists()
    run_lines([installs, connects], account)
    server = json.loads((account / ".claude.json").read_text())["mcpServers"]["habitus"]
    assert Path(server["command"]).exists()
    run_lines(["habitus skills new tea-time --when Tea --description 'Makes tea.' --title Tea", uninstalls], account)
    assert not (account / ".local" / "bin" / "habitus").exists()
    assert (account / ".habitus" / "skills" / "tea-time" / "SKILL.md").exists()


def test_the_guide_installs_what_connecting_needs(account: Path) -> None:
    subprocess.run([UV, "venv", "-q", "--seed", "--python", sys.executable, account / "venv"], check=True)
    _, _, connected, disconnected = run_lines(find_block(GUIDE, "pip install "), account, account / "venv" / "bin")
    assert "Claude Code is connected." in connected
    assert "Claude Code is disconnected." in disconnected
