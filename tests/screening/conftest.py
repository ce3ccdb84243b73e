"""The word vectors that a second look reads."""

from __future__ import annotations

import pytest

from habitus.search import WordLlama


@pytest.fixture(scope="session")
def embedder() -> WordLlama:
    return WordLlama()
