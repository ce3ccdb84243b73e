"""What every attack needs: a sandbox of each strength this machine has, and something outside worth stealing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from habitus.sandbox.fork_servers import ForkServerPool
from habitus.sandbox.machine import MachineCapabilities, probe_machine

# The strongest and the weakest every time; what lies between them in `make test-full`.
STRENGTHS = ("bubblewrap", pytest.param("namespaces", marks=pytest.mark.full), "Landlock alone")


@pytest.fixture(scope="session")
def machine() -> MachineCapabilities:
    return probe_machine()


@pytest.fixture(params=STRENGTHS)
def strength(request: pytest.FixtureRequest, machine: MachineCapabilities) -> MachineCapabilities:
    """The machine as it is, then with bubblewrap hidden, then with namespaces hidden too."""
    if request.param == "bubblewrap":
        if machine.bubblewrap is None:
            pytest.skip(f"bubblewrap is missing or does not work here: {machine.bubblewrap_error}")
        return machine
    if machine.landlock_abi < 3 or not machine.has_seccomp:
        pytest.skip("the weaker sandbox needs Landlock and a system-call filter")
    if request.param == "namespaces":
        if not machine.has_namespaces:
            pytest.skip("this user can't make namespaces without bubblewrap")
        return replace(machine, bubblewrap=None)
    return replace(machine, bubblewrap=None, has_namespaces=False)


@pytest.fixture
async def warm(strength: MachineCapabilities, tmp_path: Path) -> AsyncIterator[ForkServerPool]:
    async with ForkServerPool(strength, tmp_path / "run") as pool:
        yield pool


@pytest.fixture
def treasure(tmp_path: Path) -> Path:
    """A file outside that its owner alone should read and change."""
    folder = tmp_path / "home"
    folder.mkdir()
    file = folder / "treasure.txt"
    file.write_text("gold")
    file.chmod(0o644)
    return file
