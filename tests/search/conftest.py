"""Embedders that count or misbehave, and an engine with the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.search import store
from habitus.search.texts.embedding import Vectors, WordLlamaEmbedder


class CountingEmbedder:
    """The static model under a name of one's own, counting the texts it embeds."""

    def __init__(self, name: str = "wordllama-256") -> None:
        self._inner = WordLlamaEmbedder()
        self.name = name
        self.width = self._inner.width
        self.max_request_words = self._inner.max_request_words
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.embedded += texts
        return self._inner.embed(texts)

    def embed_words(self, words: Sequence[str]) -> Vectors:
        return self._inner.embed_words(words)


class BrokenEmbedder(CountingEmbedder):
    """Gives vectors that are not numbers."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.full_like(super().embed(texts), np.nan)


@pytest.fixture
def engine() -> Iterator[sa.Engine]:
    assert store.documents.metadata is sql.metadata
    made = sql.create_in_memory_engine()
    yield made
    made.dispose()


@pytest.fixture(scope="session")
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()
