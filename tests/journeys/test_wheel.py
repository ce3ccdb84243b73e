"""What people install: the built wheel, in an environment of its own, through its console script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.conftest import Cli

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the backend that is installed here, so that nothing is fetched."""
    out = tmp_path_factory.mktemp("dist")
    _uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(out), str(ROOT))
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory, is_thorough: bool) -> Path:
    """The console script of a fresh environment with the wheel and what it declares, at the pinned versions.

    Only a thorough run installs the dependencies once more; a quick one borrows those that are here.
    """
    place = tmp_path_factory.mktemp("fresh") / "venv"
    _uv("venv", "--python", sys.executable, str(place))
    install = (
        "pip",
        "install",
        "--python",
        str(place / "bin" / "python"),
        "-c",
        str(ROOT / "constraints.txt"),
        f"{wheel}[all]",
    )
    if not is_thorough:
        _uv(*install, "--no-deps", "--offline")
        (library,) = place.glob("lib/python*/site-packages")
        (library / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        return place / "bin" / "habitus"
    _fetched(*install)
    return place / "bin" / "habitus"


def _required() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]


def _fetched(*install: str) -> None:
    try:
        _uv(*install, "--offline")
    except subprocess.CalledProcessError:
        _uv(*install)  # the packages are not in the cache of this machine


def _uv(*args: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    subprocess.run([UV, "-q", *args], check=True, env=environ, cwd=ROOT)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= names
    assert "habitus/migrations/script.py.mako" in names
    assert "habitus/py.typed" in names
    assert all(name.startswith("habitus/") or ".dist-info/" in name for name in names)


@pytest.mark.full
@pytest.mark.req("CL-01", "SK-11", "SK-12")
def test_the_installed_command_works_from_the_first_skill_to_the_last_undo(installed: Path, run_cli: Cli) -> None:
    cli = Cli(home=run_cli.home, user_home=run_cli.user_home, cwd=run_cli.cwd, command=(str(installed),))

    def ok(*args: str) -> str:
        ran = cli(*args)
        assert (ran.code, ran.err) == (0, "")
        return ran.out

    assert ok("--version").startswith("habitus ")
    assert ok("--help").startswith("Procedural memory for AI agents")
    assert "Everything but the model was real." in ok("tour")
    ok("skills", "new", "first", "--description", "Does it.", "--when", "Asked")
    assert [(s["name"], s["state"]) for s in _own(ok("skills", "list", "--json"))] == [("first", "ok")]
    ok("skills", "edit", "first", "--append", "One more step.")
    assert "One more step." in ok("skills", "show", "first")
    ok("skills", "rollback", "first", "--to", "1")
    assert "One more step." not in ok("skills", "show", "first")
    ok("skills", "remove", "first")
    assert _own(ok("skills", "list", "--json")) == []
    ok("skills", "restore", "first")
    assert "first" in ok("skills", "list")
    ok("doctor")


def _own(listing: str) -> list[dict[str, str]]:
    return [skill for skill in json.loads(listing)["skills"] if skill["layer"] == "user"]


@pytest.mark.full
@pytest.mark.req("CL-01")
def test_bundled_skills_come_along_and_can_be_used(installed: Path, run_cli: Cli) -> None:
    cli = Cli(home=run_cli.home, user_home=run_cli.user_home, cwd=run_cli.cwd, command=(str(installed),))
    bundled = sorted(path.parent.name for path in (ROOT / "src/habitus/bundled").glob("*/SKILL.md"))
    listed = json.loads(cli("skills", "list", "--json").out)["skills"]
    assert [(skill["name"], skill["state"], skill["source"]) for skill in listed] == [
        (name, "ok", "bundled") for name in bundled
    ]


MOST_MB = 150
TURN = """
from habitus import Habitus

with Habitus.open() as habitus, habitus.turn("summarise a csv", conversation="c1") as turn:
    assert "data-summary" in turn.system
    assert turn.run("recall_skill", {"name": "data-summary"}).outcome.is_ok
    turn.done("done")
print(len(habitus.journal.list_session_turns("c1")))
"""


@pytest.mark.full
@pytest.mark.req("CL-07", "CL-01")
def test_the_library_alone_is_small_runs_a_turn_and_asks_for_what_is_absent(
    wheel: Path, tmp_path: Path, run_cli: Cli
) -> None:
    place = tmp_path / "venv"
    _uv("venv", "--python", sys.executable, str(place))
    python = str(place / "bin" / "python")
    _fetched("pip", "install", "--python", python, "-c", str(ROOT / "constraints.txt"), str(wheel))
    size = sum(file.lstat().st_size for file in place.rglob("*") if file.is_file())
    assert size <= MOST_MB * 1_000_000
    cli = Cli(
        home=run_cli.home, user_home=run_cli.user_home, cwd=run_cli.cwd, command=(str(place / "bin" / "habitus"),)
    )
    done = subprocess.run([python, "-c", TURN], env=cli.environ(), capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")
    chat = cli("chat")
    assert (chat.code, chat.err) == (
        1,
        "habitus: 'habitus chat' needs the extra 'chat', which is not installed. "
        f"Run: uv tool install 'habitus[all] @ {wheel.as_uri()}', "
        f"or: pip install 'habitus[chat] @ {wheel.as_uri()}'.\n",
    )


LOWEST = (
    *("tests/agent/test_host_turn.py", "tests/agent/test_session.py", "tests/journal", "tests/integrations"),
    *("tests/search/test_index.py", "tests/skills/test_library.py", "tests/memory/test_recall.py", "tests/repl"),
)


@pytest.mark.full
def test_the_lowest_versions_that_are_declared_do(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "venv"
    _uv("venv", "--python", sys.executable, str(place))
    python = str(place / "bin" / "python")
    lowest = ("--resolution", "lowest-direct")
    install = ("pip", "install", "--python", python)
    _fetched(*install, *lowest, "--only-binary", ":all:", "-r", str(ROOT / "pyproject.toml"), "--extra", "all")
    _uv(*install, "--no-deps", "--offline", str(wheel))
    _fetched(*install, "hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist")
    command = [python, "-m", "pytest", "-n", "2", "-m", "not full", *LOWEST]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
