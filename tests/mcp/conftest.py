"""A server in this process, with the official client connected to it in either generation of the protocol."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from habitus.app import read_settings
from habitus.mcp.server import LazyHome, make_mcp_server
from habitus.mcp.server_options import McpServerOptions
from habitus.settings import Settings
from habitus.skills.model import Skill
from tests.fake_provider import FakeProvider, fake_provider

UV = Path(sys.executable).with_name("uv")
MODES = ("legacy", "auto")  # with a greeting first; and the later protocol, where every request stands for itself

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def place(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home, in surroundings of its own."""
    for name, value in {"HOME": str(tmp_path), "HABITUS_USER": "ann", "HABITUS_LOOK_EVERY": "0.01"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HABITUS_DURABLE", "false")
    monkeypatch.chdir(tmp_path)
    return home


@pytest.fixture
def habitus_settings(place: Path) -> Settings:
    return read_settings(place)


@pytest.fixture
def habitus_skills() -> list[Skill]:
    return [Skill(name="brew-tea", description="How tea is brewed", body="1. Boil water.")]


@pytest.fixture
def connect(place: Path) -> Connect:
    @asynccontextmanager
    async def connected(
        mode: str = "auto", *, client: dict[str, Any] | None = None, **scope: Any
    ) -> AsyncIterator[Client]:
        behind = LazyHome(McpServerOptions(home=place, **scope))
        try:
            async with Client(make_mcp_server(behind), mode=mode, **(client or {})) as connected:
                yield connected
        finally:
            await behind.close()

    return connected


@pytest.fixture(scope="session")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with clients that can't stand beside our own."""
    folder = tmp_path_factory.mktemp("clients") / "venv"
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([UV, "pip", "install", "-q", "--python", python, "mcp<2", "claude-agent-sdk"], check=True)
    return python


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as running:
        yield running


def text_of(result: Any) -> str:
    """What a call came to, in words."""
    (content,) = result.content
    return str(content.text)
