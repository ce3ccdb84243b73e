from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fake_provider import FakeProvider, fake_provider
from tests.real_model import real_model


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as provider:
        yield provider


@pytest.fixture(scope="session")
def real_address() -> Iterator[str]:
    with real_model() as address:
        yield address
