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

from tests.environments import ROOT, UV, environment
from tests.learning.hosts import Did, claude_code

pytestmark = [pytest.mark.full, pytest.mark.req("CL-01", "CL-08")]

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guides" / "agents.md").read_text(encoding="utf-8")
AWAY = 'django.db.utils.OperationalError: connection to server at "localhost", port 5432 failed: Connection refused'
NEVER = "Never apply anything to prod yourself; give me the command instead."

_INSTALLS = re.compile(r"(?:sudo )?(?:apt|pip|pipx|uv tool|uvx) [a-z-].*")
# Of the machine, not of an account; apt asks for root and for Debian's mirrors.
SYSTEM_PACKAGES = {
    "apt update",
    "apt install -y sudo",
    "sudo apt update",
    "sudo apt install -y postgresql nginx ssl-cert pipx",
}
PUBLISHED = "uv tool install 'habitus[all]'"


def list_install_lines() -> set[str]:
    """Every install command of the README and the docs, in a block or amid a sentence."""
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if "reference" not in page.parts)]
    found = set()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        blocks = [block.splitlines() for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
        inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
        lines = [line.removeprefix("$ ").partition(" #")[0] for line in [*inline, *(one for b in blocks for one in b)]]
        found |= {part.strip() for line in lines for part in line.split("&&") if _INSTALLS.fullmatch(part.strip())}
    return found


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


def test_every_other_install_line_stands_for_the_published_form_or_for_system_packages() -> None:
    """The published form stands once, marked as not there yet."""
    lines = list_install_lines()
    assert {line for line in lines if "apt " in line} == SYSTEM_PACKAGES
    assert {line for line in lines if "install 'habitus" in line} == {PUBLISHED}
    assert README.count(PUBLISHED) == README.count(f"Once Habitus is published, `{PUBLISHED}`") == 1


@pytest.mark.parametrize("line", sorted(list_install_lines() - SYSTEM_PACKAGES - {PUBLISHED}))
def test_an_install_line_works_from_a_checkout(line: str, account: Path) -> None:
    installed = account / ".local" / "bin"
    if line.startswith("pip "):
        subprocess.run([UV, "venv", "-q", "--seed", "--python", sys.executable, account / "venv"], check=True)
        installed = account / "venv" / "bin"
    elif line.startswith("pipx "):
        installed = environment(account / "pipx", "pipx").parent
        (account / ".local" / "bin" / "uv").unlink()
    elif line.endswith(" habitus"):
        run_lines(["uv tool install ."], account)
    run_lines([line], account, installed)
    program = account / ".local" / "bin" / "uv" if line == "pipx install uv" else installed / "habitus"
    if "uninstall" in line:
        assert not program.exists()
    elif not line.startswith("uvx"):
        run_lines([f"{program} --version"], account, installed)
    if extras := re.search(r"\[(\w+)\]", line):
        python = program.resolve().with_name("python")
        modules = {"mcp": "mcp", "postgres": "psycopg", "all": "mcp, psycopg, anthropic, prompt_toolkit"}
        run_lines([f"{python} -c 'import {modules[extras[1]]}'"], account)
