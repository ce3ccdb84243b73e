"""A place where jobs write down what they did, and workers that are processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

Nursed = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("effects", "deaths"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def nursed(root: Path) -> Nursed:
    """Two workers until the block is left, whoever dies; with `kills_s`, one is killed every so many seconds."""

    @contextmanager
    def nurse(*, kills_s: float = 0.0) -> Iterator[None]:
        command = [sys.executable, "-m", "tests.jobs.counting", str(root), str(kills_s)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            yield
            assert process.stdin is not None
            process.stdin.close()

    return nurse
