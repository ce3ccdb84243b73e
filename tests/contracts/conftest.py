"""The stores that the contract suite runs on.

What they need is imported by the fixtures: the contract of the runtimes, beside them, also runs where it is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import sqlalchemy as sa

    from habitus.skills.stores.versioned import SkillStore
    from tests.contracts.lines import Line
    from tests.contracts.stores import Ticking


@pytest.fixture
def clock() -> Ticking:
    from tests.contracts.stores import Ticking

    return Ticking()


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    from tests.contracts import postgres

    with postgres.schema(postgres_server) as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """A database with every table, of either kind."""
    from habitus import sql
    from tests.homes import migrated

    if request.param == "sqlite":
        address = sql.build_sqlite_url(migrated(tmp_path / "habitus.db"))
    else:
        address = request.getfixturevalue("url")
    engine = sql.open_engine_with_current_schema(address)
    yield engine
    engine.dispose()


@pytest.fixture
def line(url: str) -> Iterator[Line]:
    from tests.contracts.lines import line_to

    with line_to(url) as line:
        yield line


@pytest.fixture(params=["files", "in_memory", "postgresql", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Ticking) -> Iterator[SkillStore]:
    from tests.contracts import postgres
    from tests.contracts.stores import STORES

    with ExitStack() as stack:
        url = ""
        if request.param == "postgresql":
            url = stack.enter_context(postgres.schema(request.getfixturevalue("postgres_server")))
        store = STORES[request.param](tmp_path, clock, url)
        stack.callback(store.engine.dispose)
        yield store
