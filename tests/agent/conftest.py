"""Sessions on a home of their own, with a model that follows a script."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from habitus.agent.session import Session
from habitus.app import Habitus
from habitus.llm.scripted import Script, ScriptedModel


@pytest.fixture(scope="session")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a machine that says: show me the sales of last month."""
    speaker = shutil.which("espeak-ng")
    if speaker is None:
        pytest.skip("nothing here can speak (Debian: apt-get install espeak-ng)")
    path = tmp_path_factory.mktemp("speech") / "request.wav"
    said = "show me the sales of last month"
    subprocess.run([speaker, "-v", "en-us+f3", "-s", "150", "-w", path, said], check=True)
    return path


Talk = Callable[..., tuple[Session, ScriptedModel]]


@pytest.fixture
async def talk(habitus: Habitus) -> AsyncIterator[Talk]:
    """`talk(script)` opens a session and its model; everything is closed at the end."""
    sessions: list[Session] = []

    def start(script: Script, *, model: dict[str, Any] | None = None, **options: Any) -> tuple[Session, ScriptedModel]:
        scripted = ScriptedModel(script, **(model or {}))
        sessions.append(habitus.session(scripted, **options))
        return sessions[-1], scripted

    yield start
    for session in sessions:
        await session.close()
