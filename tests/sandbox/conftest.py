"""Scratchpads to play with: one virtual environment for all tests, and a factory that closes what it made."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from habitus.sandbox.machine import MachineCapabilities, get_base_python, probe_machine
from habitus.sandbox.model import MIB, CellTimeouts, Permissions, SandboxLimits
from habitus.sandbox.runtimes.local import LocalRuntime
from habitus.sandbox.scratchpads import SessionScratchpads
from habitus.sandbox.venvs import EnvironmentCache, VenvBuilder
from tests.wheels import write_wheel

MakePads = Callable[..., SessionScratchpads]
PATIENT = CellTimeouts(total_s=300, silence_s=300)


@pytest.fixture(scope="session")
def machine() -> MachineCapabilities:
    return probe_machine()


@pytest.fixture(scope="session")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seed") / "venv"
    asyncio.run(VenvBuilder(os.environ, python=get_base_python()).create_venv(folder))
    return folder


@pytest.fixture
def pads_folder(tmp_path: Path, seed: Path) -> Path:
    folder = tmp_path / "pads"
    (folder / "one").mkdir(parents=True)
    shutil.copytree(seed, folder / "one" / "venv", symlinks=True)
    return folder


@pytest.fixture
async def make_pads(machine: MachineCapabilities, pads_folder: Path) -> AsyncIterator[MakePads]:
    made = []

    def make(**options: Any) -> SessionScratchpads:
        """`timeouts` are for cells that come with an estimate: others may take their time on a busy machine."""
        limits = options.pop("limits", SandboxLimits(cpu_s=None, memory=512 * MIB))
        venvs = options.pop("venvs", None) or VenvBuilder(os.environ, python=get_base_python())
        timeouts = options.pop("timeouts", PATIENT)
        environments = EnvironmentCache(pads_folder.with_name("environments"), venvs)
        runtime = LocalRuntime(machine, pads_folder, environments, permissions=Permissions(), limits=limits)
        options = {"grace_s": 300.0, **options}
        made.append(
            SessionScratchpads(runtime, timeouts=lambda estimated: timeouts if estimated else PATIENT, **options)
        )
        return made[-1]

    yield make
    for pads in made:
        await pads.close()


@pytest.fixture
def shelf(tmp_path: Path) -> VenvBuilder:
    """An index that is a folder: one wheel, and one source package that must never be built."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    write_wheel(folder, "habitus_greeting", "HELLO = 'hello'\n")
    (folder / "habitus_source-1.0.tar.gz").write_bytes(b"not even opened")
    settings = {"UV_FIND_LINKS": str(folder), "UV_OFFLINE": "1", "UV_CACHE_DIR": str(tmp_path / "cache")}
    return VenvBuilder({**settings, "PATH": os.environ["PATH"]}, python=get_base_python())
