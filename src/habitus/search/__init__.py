"""One search index for skills, memory and tools: lexical and semantic, offline; it learns from use and may abstain.

Only the types are imported immediately. `SearchIndex` and the embedders import numpy and SQLAlchemy on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from habitus.search.model import Document, Hit, Report, Results

if TYPE_CHECKING:
    from habitus.search.index import Index, open_index
    from habitus.search.server import ServerIndex
    from habitus.search.texts.embedding import Embedder, NoEmbedder, WordLlama, default_embedder
    from habitus.search.texts.minilm import MiniLM

__all__ = [
    "Document",
    "Embedder",
    "Hit",
    "Index",
    "MiniLM",
    "NoEmbedder",
    "Report",
    "Results",
    "ServerIndex",
    "WordLlama",
    "default_embedder",
    "open_index",
]

_HOMES = {
    "Index": "index",
    "MiniLM": "texts.minilm",
    "ServerIndex": "server",
    "Embedder": "texts.embedding",
    "NoEmbedder": "texts.embedding",
    "WordLlama": "texts.embedding",
    "default_embedder": "texts.embedding",
    "open_index": "index",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'habitus.search' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"habitus.search.{_HOMES[name]}"), name)
