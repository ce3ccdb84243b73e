"""A Habitus with a clock that is turned by hand, and tools made in its real sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from habitus.app import Habitus, read_settings
from habitus.settings import Settings
from habitus.skills.model import ActorKind, Author

PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
SHOUT = 'import json, sys\nprint(json.dumps({"loud": json.loads(sys.argv[1])["text"].upper()}))\n'
ADA = Author(actor=ActorKind.USER, name="ada")
AGENT = Author(actor=ActorKind.AGENT, name="helper", reason="needed it twice")
JOB = Author(actor=ActorKind.JOB, name="curator")


@dataclass
class Time:
    now: datetime = datetime(2026, 5, 4, 9, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(microseconds=1)
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def environ(home: Path, tmp_path: Path) -> dict[str, str]:
    return {"HABITUS_HOME": str(home), "HOME": str(tmp_path / "person"), "HABITUS_ALLOW_WEAKER_SANDBOX": "1"}


@pytest.fixture
def habitus_settings(environ: dict[str, str]) -> Settings:
    return read_settings(environ=environ)


@pytest.fixture
def habitus_clock(time: Time) -> Time:
    return time


async def make(habitus: Habitus, name: str = "shout", *, author: Author = ADA, **changes: Any) -> Any:
    given = {"description": "Makes it loud.", "parameters": PARAMETERS, "code": SHOUT, "payload": {"text": "hi"}}
    return await habitus.tools.create(name, author=author, **{**given, **changes})
