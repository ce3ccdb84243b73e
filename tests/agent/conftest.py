"""Sessions on a home of their own, with a model that follows a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from habitus.agent.session import Session
from habitus.app import Habitus, read_settings
from habitus.llm.scripted import Script, ScriptedModel


@pytest.fixture
def habitus(tmp_path: Path) -> Iterator[Habitus]:
    settings = read_settings(tmp_path / "home", {"HOME": str(tmp_path), "USER": "ann"})
    settings = settings.model_copy(update={"cwd": tmp_path, "look_every": 0.0, "durable": False})
    with Habitus.open(settings) as opened:
        yield opened


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
