"""Environments of their own, for packages that don't stand beside what we use every day."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")


def environment(folder: Path, *packages: str) -> Path:
    """The Python of an environment with a framework, which borrows Habitus and what it needs from this one."""
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    install: list[str | Path] = [UV, "pip", "install", "-q", "--python", python, *packages]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"uv can't install {', '.join(packages)} here: {done.stderr.strip()[-300:]}")
    (library,) = folder.glob("lib/python*/site-packages")
    (library / "borrowed.pth").write_text(f"{ROOT / 'src'}\n{sysconfig.get_path('purelib')}\n")
    return python
