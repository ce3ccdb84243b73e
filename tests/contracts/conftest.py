"""The stores that the contract suite runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from habitus.skills.stores.base import SkillStore
from tests.contracts import postgres
from tests.contracts.stores import STORES, Ticking


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres.server(tmp_path_factory) as url:
        yield url


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Ticking) -> Iterator[SkillStore]:
    with ExitStack() as stack:
        url = ""
        if request.param == "postgresql":
            url = stack.enter_context(postgres.schema(request.getfixturevalue("postgres_server")))
        store = STORES[request.param](tmp_path, clock, url)
        stack.callback(store._engine.dispose)
        yield store
