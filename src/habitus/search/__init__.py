"""One search index for skills, memory and tools: lexical and semantic, offline; it learns from use and may abstain.

Only the types are imported immediately. `SearchIndex` and the embedders import numpy and SQLAlchemy on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from habitus.search.model import IndexHit, IndexReport, SearchDocument, SearchResults

if TYPE_CHECKING:
    from habitus.search.index import SearchIndex, open_index
    from habitus.search.postgres_index import PostgresIndex
    from habitus.search.texts.embedding import Embedder, NoEmbedder, WordLlamaEmbedder, get_default_embedder
    from habitus.search.texts.minilm import MiniLMEmbedder

__all__ = [
    "Embedder",
    "IndexHit",
    "IndexReport",
    "MiniLMEmbedder",
    "NoEmbedder",
    "PostgresIndex",
    "SearchDocument",
    "SearchIndex",
    "SearchResults",
    "WordLlamaEmbedder",
    "get_default_embedder",
    "open_index",
]

_LAZY_MODULES = {
    "SearchIndex": "index",
    "MiniLMEmbedder": "texts.minilm",
    "PostgresIndex": "postgres_index",
    "Embedder": "texts.embedding",
    "NoEmbedder": "texts.embedding",
    "WordLlamaEmbedder": "texts.embedding",
    "get_default_embedder": "texts.embedding",
    "open_index": "index",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module 'habitus.search' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"habitus.search.{_LAZY_MODULES[name]}"), name)
