from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fake_provider import FakeProvider, fake_provider


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as provider:
        yield provider
