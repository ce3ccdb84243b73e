"""Programs from npm, for tests with the real other side."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = "node@22"  # as an npm package, where a program needs a later one than systems have


def install(folder: Path, *packages: str) -> Path:
    """Install packages into a folder of their own; where their programs are."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm (Debian: apt-get install npm)")
    (folder / "package.json").write_text("{}")
    command = [npm, "install", "--no-fund", "--no-audit", "--loglevel=error", *packages]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:  # a release whose parts for this machine are not published yet, for one
        pytest.skip(f"npm can't install {', '.join(packages)} here: {done.stderr.strip()[-300:]}")
    return folder / "node_modules" / ".bin"
