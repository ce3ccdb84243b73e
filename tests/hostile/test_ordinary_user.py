"""The attacks once more, as an ordinary user: root's sandbox and a user's are held up by different parts of the kernel.

The user gets a virtual environment of the system's Python in a folder that everybody can read.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

NOBODY = 65534
SYSTEM_PYTHON = Path("/usr/bin/python3")
ROOT = Path(__file__).parents[2]
NEEDED = (
    "pytest",
    "pluggy",
    "iniconfig",
    "packaging",
    "jsonschema-rs",
    "pytest-asyncio",
    "pytest-timeout",
    "pygments",
    "sqlalchemy",
    "typing-extensions",
)
# What the kernel holds up differently for a user: who may read, write, see and signal what, and how much of it.
CHOSEN = "(of_the_host or privilege or detaches or bomb) and not bubblewrap"
SUITES = ("tests/hostile/test_escapes.py", "tests/hostile/test_exhaustion.py", "-k", CHOSEN)
MORE_SUITES = (
    "tests/hostile",
    "tests/contracts/test_runtimes.py",
    *(f"tests/sandbox/test_{name}.py" for name in ("folders", "warm", "scratchpads", "protections", "workshop")),
    "--ignore=tests/hostile/test_comparing.py",  # about text and the page, too
    "--ignore=tests/hostile/test_time.py",  # about text, which is read alike whoever reads
    "--ignore=tests/hostile/test_tools.py",  # about approvals, which live in a database that is not brought along
)


@pytest.fixture
def house() -> Iterator[Path]:
    """Everything the user needs, readable by all: our code, the tests, the libraries they use, an interpreter."""
    if os.geteuid() != 0:
        pytest.skip("already an ordinary user: the other tests ran as one")
    if not SYSTEM_PYTHON.exists():
        pytest.skip(f"{SYSTEM_PYTHON} is missing")
    folder = Path(tempfile.mkdtemp(prefix="habitus-user-"))
    try:
        folder.chmod(0o755)
        made = subprocess.run(
            [SYSTEM_PYTHON, "-m", "venv", "--without-pip", folder / "venv"], capture_output=True, text=True
        )
        if made.returncode:
            pytest.skip(f"{SYSTEM_PYTHON} can't make a virtual environment: {made.stdout.strip()[-200:]}")
        for name in (*NEEDED, "uv"):
            _copy_distribution(name, folder / "lib", folder / "venv")
        for name in ("src", "tests/hostile", "tests/sandbox", "tests/contracts"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        shutil.copy(ROOT / "tests/wheels.py", folder / "tests")
        # What every sandbox reads and may not write: it would be compiled anew each time.
        compiled = folder / "src/habitus/sandbox"
        subprocess.run([folder / "venv/bin/python", "-m", "compileall", "-q", compiled], check=True)
        (folder / "tmp").mkdir()
        os.chown(folder / "tmp", NOBODY, NOBODY)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy_distribution(name: str, library: Path, venv: Path) -> None:
    for file in distribution(name).files or ():
        if file.parts[0] == ".." and file.name == "uv":
            shutil.copy(Path(str(file.locate())), venv / "bin" / "uv")
        elif file.parts[0] != ".." and "__pycache__" not in file.parts:
            target = library / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(str(file.locate())), target)


@pytest.mark.req("SB-09")
def test_the_sandbox_holds_as_an_ordinary_user(house: Path) -> None:
    assert _passed(house, *SUITES) > 10


@pytest.mark.full
def test_everything_about_the_sandbox_holds_as_an_ordinary_user(house: Path) -> None:
    assert _passed(house, *MORE_SUITES) > 150


def _passed(house: Path, *suites: str) -> int:
    """Run the tests as nobody, none of them failing; how many passed."""
    temporary = house / "tmp"
    env = {
        "HOME": str(temporary),
        "TMPDIR": str(temporary),
        "PATH": f"{house / 'venv' / 'bin'}:/usr/bin:/bin",
        "PYTHONPATH": f"{house / 'lib'}:{house / 'src'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [str(house / "venv/bin/python"), "-m", "pytest", *suites, "-rs"]
    done = subprocess.run(
        command,
        cwd=house,
        env=env,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    counted = re.search(r"(\d+) passed", done.stdout)
    assert counted is not None
    sys.stdout.write(done.stdout[-2000:])  # the skips with their reasons, for who runs with -s
    return int(counted[1])
